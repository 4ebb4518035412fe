"""SB7xx: rules for the KV cache, as an object and for the numbers of cached decoding."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.compare.standing import Standing
from samebits.findings.rule import COMPUTED, DECODED, RAISED, Rule, Sighting, raised

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case
    from samebits.records.capture import Capture
    from samebits.records.relations import Relation, RelationName
    from samebits.records.state import LeftBehind

_attribute = raised("AttributeError", r"'\w*Cache'( object)? has no attribute '\w+'")
_tuple = raised(
    "TypeError|AttributeError",
    r"'\w*Cache' object is not (subscriptable|iterable)"
    r"|'tuple' object has no attribute '(get_seq_length|update|get_usable_length)'",
)
_crop = raised("ValueError", r"Calling `crop` with a positive value")
_other_name = raised("TypeError", r"unexpected keyword argument 'cache'")
_NAMED_ERRORS = (_attribute, _tuple, _crop, _other_name)
"""Cache exceptions with a rule of their own, for which no suspicious line is reported."""
_OLD_NAME = "old name of the cache"
_CACHED_RELATIONS: tuple[RelationName, ...] = (
    "full forward = prefill + decode",
    "prefill split anywhere",
    "multi-token verify = single-token decode",
)
_CHUNKED_RELATIONS: tuple[RelationName, ...] = (
    "prefill split anywhere",
    "multi-token verify = single-token decode",
)


def _has_delta_net(capture: Capture) -> bool:
    """Return True if a gated delta-net ran. Other linear attention (minimax) does not count."""
    code = capture.signals.code
    return code is not None and any("GatedDeltaNet" in name for name in code.executed)


def _distances(relation: Relation) -> str:
    assert relation.distance is not None
    assert relation.promoted is not None
    what = ", ".join(layer.name for layer in relation.layers if layer.name.startswith("output"))
    return (
        f"{relation.relation} ({relation.case}): {what or 'logits'} differ by up to "
        f"{relation.distance.max_abs:.2g}, and by {relation.promoted.max_abs:.2g} in float64"
    )


def _seen(case: Case, relations: list[Relation]) -> tuple[str, ...]:
    """Return the evidence of relations: their distances, and whose they are if a made model's."""
    return (*map(_distances, relations), *case.asked_of)


def _broken_chunks(case: Case) -> Iterator[Sighting]:
    """Find chunks that ignore the recurrent state while single-token decoding keeps it."""
    if not _has_delta_net(case.capture):
        return
    broken = list(case.broken(*_CHUNKED_RELATIONS))
    if broken and not list(case.broken("full forward = prefill + decode")):
        yield Sighting("multi-token forward with a cache", _seen(case, broken))


def _is_not_causal(case: Case) -> bool:
    """Return True if rows depend on later tokens, so that decoding cannot agree with a forward."""
    return any(not relation.note for relation in case.broken("causality"))


def _formulations(case: Case) -> Iterator[Sighting]:
    """Find a delta-net whose two formulations ran and differ by rounding."""
    decoded = (case.capture.signals.first_token or {}).values()
    code = case.capture.signals.code
    chunked = [name for name in (code.executed if code is not None else {}) if _CHUNK.search(name)]
    stepped = {name for token in decoded for name in token.functions if _RECURRENT.search(name)}
    if not chunked or not stepped:
        return
    relations = list(case.standing(Standing.ROUNDING, "full forward = prefill + decode"))
    if relations:
        ran = f"the prompt ran {chunked[0]}, the token after it {min(stepped)}"
        yield Sighting("gated delta rule", (ran, *_seen(case, relations)))


_CHUNK = re.compile(r"chunk_gated_delta_rule$")
_RECURRENT = re.compile(r"recurrent_gated_delta_rule$")


def _broken_cached_forward(case: Case) -> Iterator[Sighting]:
    """Find a cached path that computes a different function, unless a narrower rule applies."""
    if list(_broken_chunks(case)) or _is_not_causal(case):
        return
    broken = [r for r in case.broken(*_CACHED_RELATIONS) if not r.note]
    if broken:
        yield Sighting("forward with a cache", _seen(case, broken))


def _broken_padding(case: Case) -> Iterator[Sighting]:
    names: list[RelationName] = ["left padding", "right padding", "batch size"]
    if _is_not_causal(case):
        names.remove("right padding")
    broken = [r for r in case.broken(*names) if not r.note]
    if broken:
        yield Sighting("padded batch", _seen(case, broken))


def _broken_causality(case: Case) -> Iterator[Sighting]:
    broken = [relation for relation in case.broken("causality") if not relation.note]
    if broken:
        yield Sighting("causality", _seen(case, broken))


def _scaled_rope(case: Case) -> Iterator[Sighting]:
    """Find rotary frequencies that a text scaled and that the next forward still has."""
    state = case.capture.signals.state
    if state is not None and state.causes and all(_is_rope(case, c) for c in state.causes):
        yield from _left_behind(case)


def _other_state(case: Case) -> Iterator[Sighting]:
    """Find any other value that a model leaves in its modules and that changes its next forward."""
    state = case.capture.signals.state
    if state is not None and not all(_is_rope(case, c) for c in state.causes):
        yield from _left_behind(case)


def _is_rope(case: Case, value: LeftBehind) -> bool:
    return value.kind == "buffer" and value.name in (case.capture.signals.inv_freq or {})


def _left_behind(case: Case) -> Iterator[Sighting]:
    """Yield the values that a model leaves in its modules, if these change its next forward."""
    state = case.capture.signals.state
    if state is None or not state.is_left or not state.causes:
        return
    off = state.distance.max_abs if state.distance is not None else 0.0
    amount = f": the logits are off by {off:.2g}" if off else ""
    names = ", ".join(cause.name for cause in state.causes)
    again = (
        f"prompt {state.prompt}, run again after all prompts and generate(), gives other bytes "
        f"than the first time in {', '.join(state.outputs) or 'its output'}{amount}"
    )
    undone = f"it gives the first bytes again once this is as it was: {names}"
    yield Sighting(state.causes[0].name, (again, undone))


def _decoding_change(case: Case) -> str | None:
    """Return how decoding differs from the reference or a full forward; None if it does not."""
    if case.first() in ("decode", "greedy"):
        return "decoding with the cache is the first signal that differs from the reference"
    if case.failure is not None and case.failure.phase.startswith("greedy"):
        is_named = any(list(check(case)) for check in _NAMED_ERRORS)
        return None if is_named else case.exception_lines()[0]
    broken = next(case.broken(*_CACHED_RELATIONS), None)
    return "; ".join(_seen(case, [broken])) if broken is not None else None


def _change_behind_cache(case: Case) -> str | None:
    """Return how decoding differs, for code that only runs on a cache; None if it does not.

    generate() hands no cache to a forward that knows it by an old name. Its decoding then differs
    for that reason alone, while relations hand it the cache by the name that it knows.
    """
    if not case.idioms(_OLD_NAME):
        return _decoding_change(case)
    broken = next(case.broken(*_CACHED_RELATIONS), None)
    return "; ".join(_seen(case, [broken])) if broken is not None else None


def _renamed_cache(case: Case) -> Iterator[Sighting]:
    """Find a forward that generate() hands its cache by a name which it does not take."""
    yield from _other_name(case)
    idioms = case.idioms(_OLD_NAME)
    if not idioms or _has_idiom(case.reference) or not _only_decoding_differs(case):
        return
    change = "decoding with the cache differs from the reference, and one forward does not"
    for idiom in idioms:
        passed = f"generate() of this release passes cache=, which this does not take: {idiom.code}"
        yield Sighting(f"{idiom.file}:{idiom.line}", (passed, change))


def _has_idiom(reference: Capture | None) -> bool:
    code = reference.signals.code if reference is not None else None
    return code is not None and any(idiom.name == _OLD_NAME for idiom in code.idioms)


def _only_decoding_differs(case: Case) -> bool:
    """Return True if forwards have the reference's bits, or differ from them by rounding alone."""
    if case.first() in DECODED:
        return True
    rests_on = {d.signal for d in case.ladder.rests_on} if case.ladder is not None else set()
    return bool(rests_on) and rests_on <= DECODED


def _cache_truth(case: Case) -> Iterator[Sighting]:
    change = _change_behind_cache(case)
    for idiom in case.idioms("truth of a cache") if change else ():
        yield Sighting(f"{idiom.file}:{idiom.line}", (f"tested: {idiom.code}", change or ""))


def _past_key_value(case: Case) -> Iterator[Sighting]:
    change = _change_behind_cache(case)
    for idiom in case.idioms("past_key_value keyword") if change else ():
        yield Sighting(f"{idiom.file}:{idiom.line}", (f"called: {idiom.code}", change or ""))


RULES = (
    Rule("SB701", _attribute, explains=RAISED),
    Rule("SB702", _tuple, explains=RAISED),
    Rule("SB703", _broken_chunks, explains=DECODED),
    Rule("SB704", _broken_cached_forward, explains=DECODED),
    Rule("SB705", _broken_padding, explains=COMPUTED),
    Rule("SB706", _broken_causality, explains=COMPUTED),
    Rule("SB707", _crop, explains=RAISED),
    Rule("SB708", _cache_truth, explains=DECODED | RAISED),
    Rule("SB709", _past_key_value, explains=DECODED | RAISED),
    Rule("SB710", _formulations, explains=DECODED),
    Rule("SB711", _scaled_rope, explains=frozenset({"state"})),
    Rule("SB712", _other_state, explains=frozenset({"state"})),
    Rule("SB713", _renamed_cache, explains=DECODED | RAISED),
)
