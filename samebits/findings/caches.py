"""SB7xx: rules for the KV cache, as an object and for the numbers of cached decoding."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations

from samebits.base.finding_pages import finding_page
from samebits.compare.describe import some
from samebits.compare.phases import DECODED, word_and_prompt
from samebits.findings.case import Case
from samebits.findings.rule import RAISED, STATE, Check, Rule, Sighting, raised
from samebits.records.capture import Capture
from samebits.records.state import LeftBehind

_tuple = raised(
    "TypeError|AttributeError",
    r"'\w*Cache' object is not (subscriptable|iterable)"
    r"|'tuple' object has no attribute '(get_seq_length|update|get_usable_length)'",
)
_ATTRIBUTE = r"'\w*Cache'(?: object)? has no attribute '(\w+)'"
_STATEFUL = "_is_stateful"
_NONE = r"'NoneType' object (is not (subscriptable|iterable)|has no attribute '\w+')"


def _attribute(case: Case) -> Iterator[Sighting]:
    """Find an attribute that caches no longer have, and say what stands in its place."""
    match = case.raised("AttributeError", _ATTRIBUTE)
    if match is None or _is_of_own_cache(case, match[1]):
        return
    instead = finding_page("SB701").instead.get(match[1])
    advice = (f"instead of {match[1]}: {instead}",) if instead else ()
    yield Sighting(case.raised_at(), (*case.exception_lines(), *advice))


def _foreign(case: Case) -> Iterator[Sighting]:
    """Find a cache of the library where a model that makes its own reads what that one has."""
    match = case.raised("AttributeError", _ATTRIBUTE)
    if match is not None and _is_of_own_cache(case, match[1]):
        own = next(fact for fact in case.classes if _STATEFUL in fact.attributes)
        stateful = f"class {own.name} declares {_STATEFUL} ({own.file}:{own.line})"
        yield Sighting(case.raised_at(), (*case.exception_lines(), stateful))


def _is_of_own_cache(case: Case, name: str) -> bool:
    """Return True for an attribute that is none of a cache of the library, read by a model that makes its own."""
    is_own = bool(case.frames) and case.frames[-1].own
    is_stateful = any(_STATEFUL in fact.attributes for fact in case.classes)
    return is_own and is_stateful and name not in finding_page("SB701").instead


def _none_at(pattern: str) -> Check:
    """Return a check for None where a line of the model's own code that matches reads a value."""

    def check(case: Case) -> Iterator[Sighting]:
        last = case.frames[-1] if case.frames else None
        if last is None or not last.own or not re.search(pattern, last.code):
            return
        if case.raised("TypeError|AttributeError", _NONE):
            yield Sighting(case.raised_at(), case.exception_lines())

    return check


_empty_tuple = _none_at(r"\bpast_key_values\[")
_none_of_positions = _none_at(r"\bcache_position\[")


def _no_positions(case: Case) -> Iterator[Sighting]:
    """Find an own method that reads the positions that generate() no longer counts: as None, or under their key."""
    yield from _none_of_positions(case)
    is_own = bool(case.frames) and case.frames[-1].own
    if is_own and case.raised("KeyError", "^'cache_position'$"):
        yield Sighting(case.raised_at(), case.exception_lines())


_CACHE_FILE = "transformers/cache_utils.py"
_LAYER = "self.layers[layer_idx]"
_crop = raised("ValueError", r"Calling `crop` with a positive value")
_unknown_positions = raised(
    "TypeError", r"\bforward\(\) got an unexpected keyword argument 'cache_position'"
)
_other_name = raised("TypeError", r"unexpected keyword argument 'cache'")
NAMED_ERRORS = (
    _attribute,
    _foreign,
    _tuple,
    _empty_tuple,
    _no_positions,
    _unknown_positions,
    _crop,
    _other_name,
)
"""Cache exceptions with a rule of their own, for which no suspicious line is reported."""
OLD_NAME = "old name of the cache"


def _own_reordering(case: Case) -> Iterator[Sighting]:
    """Find beams that raise in a model whose own ``_reorder_cache`` takes a cache for a tuple, or makes it one."""
    phase = case.failure.phase if case.failure is not None else ""
    own = next((fact for fact in case.classes if "_reorder_cache" in fact.methods), None)
    if own is None or not re.search(r"\bbeams?\b", phase):
        return
    if case.raised("AttributeError|TypeError", rf"{_NONE}|'tuple' object has no attribute"):
        declared = f"class {own.name} has a _reorder_cache of its own ({own.file}:{own.line})"
        yield Sighting(case.raised_at(), (*case.exception_lines(), declared))


def _no_layers(case: Case) -> Iterator[Sighting]:
    """Find a config that does not say how many layers the cache of generate() gets."""
    match = case.raised(
        "AttributeError", r"'(\w*Config)' object has no attribute 'num_hidden_layers'"
    )
    if match is None or not any(frame.file.endswith(_CACHE_FILE) for frame in case.frames):
        return
    own = next((fact for fact in case.classes if fact.name == match[1]), None)
    where = f"{own.file}:{own.line}" if own is not None else case.raised_at()
    yield Sighting(where, case.exception_lines())


def refused_keys(case: Case) -> Iterator[Sighting]:
    """Find own code that raises for more keys than a cache keeps, which generate() made with the window of the config."""
    if not case.frames or not case.frames[-1].own or case.failure is None:
        return
    if word_and_prompt(case.failure.phase)[0] not in DECODED:
        return
    smaller = _smaller_sizes(case.failure.message)
    for field, window in _windows(case):
        if window in smaller:
            yield Sighting(case.raised_at(), (*case.exception_lines(), f"{field}: {window}"))


def _windows(case: Case) -> Iterator[tuple[str, int]]:
    """Yield the fields of the config from which a cache takes its window, and their values."""
    config = case.capture.signals.config or {}
    for field in ("sliding_window", "attention_chunk_size"):
        if isinstance(window := config.get(field), int) and window > 0:
            yield field, window


def moved_beyond_window(case: Case) -> tuple[str, ...]:
    """Return the evidence that generate() of own attention moves for all texts longer than the window, and for no other."""
    if case.reference is None or case.is_rounding or not _only_decoding_differs(case):
        return ()
    before, after = (run.signals.greedy or {} for run in (case.reference, case.capture))
    moved = {p: before[p].ids != after[p].ids for p in before.keys() & after.keys()}
    lengths = {p: _length(case.capture, p) + len(before[p].ids) for p in moved}
    for field, window in _windows(case):
        longer = {p for p, length in lengths.items() if length > window}
        if longer and longer < moved.keys() and all(moved[p] is (p in longer) for p in moved):
            return (
                f"{field}: {window}",
                f"other ids for {some(sorted(longer))}, and for no shorter text",
            )
    return ()


def _length(capture: Capture, prompt: str) -> int:
    """Return the number of tokens of a prompt; 0 if it is not of token ids."""
    facts = (capture.signals.forward or {}).get(prompt)
    ids = facts.inputs.get("input_ids") if facts is not None else None
    return ids.shape[-1] if ids is not None else 0


def _smaller_sizes(message: str) -> set[int]:
    """Return the smaller size of each place in which two shapes of a message differ."""
    groups = re.findall(r"[(\[]\s*(\d+(?:\s*,\s*\d+)*)\s*[)\]]", message)
    shapes = [tuple(map(int, group.split(","))) for group in groups]
    pairs = [(a, b) for a, b in combinations(shapes, 2) if len(a) == len(b)]
    return {min(sizes) for a, b in pairs for sizes in zip(a, b, strict=True) if len({*sizes}) == 2}


def _too_few_layers(case: Case) -> Iterator[Sighting]:
    """Find a cache that has no place for a layer of the model."""
    frame = case.frame(own=False)
    if frame is None or not frame.file.endswith(_CACHE_FILE) or _LAYER not in frame.code:
        return
    if case.raised("IndexError", r"list index out of range"):
        yield Sighting(case.raised_at(), case.exception_lines())


def _no_tuple(case: Case) -> Iterator[Sighting]:
    """Find a cache that is no tuple, and the None that an empty cache gives for a layer in 4.54 to 4.57."""
    yield from _tuple(case)
    yield from _empty_tuple(case)


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
        f"prompt {state.prompt}, run again after all prompts and generate(), gives different bytes "
        f"than the first time in {', '.join(state.outputs) or 'its output'}{amount}"
    )
    undone = f"with this restored, it gives the first bytes again: {names}"
    yield Sighting(state.causes[0].name, (again, undone))


def renamed_cache(case: Case, inside: str = "") -> Iterator[Sighting]:
    """Find a forward that generate() hands its cache by a name which it does not take.

    ``inside`` is how generate() and a loop over the same forward differ inside the release; '' if they do not.
    """
    yield from _other_name(case)
    idioms = case.idioms(OLD_NAME)
    is_shown = bool(inside) or _only_decoding_differs(case)
    if not idioms or _has_idiom(case.reference) or not is_shown:
        return
    change = (
        inside or "decoding with the cache differs from the reference, and one forward does not"
    )
    if not inside and case.ladder is not None and case.ladder.kind == "rounding":
        change += (
            "; it differs by rounding alone: each step computes the whole text, without a cache"
        )
    for idiom in idioms:
        passed = f"generate() of this release passes cache=, which this does not take: {idiom.code}"
        yield Sighting(f"{idiom.file}:{idiom.line}", (passed, change))


def _has_idiom(reference: Capture | None) -> bool:
    code = reference.signals.code if reference is not None else None
    return code is not None and any(idiom.name == OLD_NAME for idiom in code.idioms)


def _only_decoding_differs(case: Case) -> bool:
    """Return True if forwards have the reference's bits, or differ from them by rounding alone."""
    if case.first() in DECODED:
        return True
    rests_on = {d.signal for d in case.ladder.rests_on} if case.ladder is not None else set()
    return bool(rests_on) and rests_on <= DECODED


RULES = (
    Rule("SB701", _attribute, explains=RAISED),
    Rule("SB702", _no_tuple, explains=RAISED),
    Rule("SB707", _crop, explains=RAISED),
    Rule("SB711", _scaled_rope, explains=STATE),
    Rule("SB712", _other_state, explains=STATE),
    Rule("SB715", _no_positions, explains=RAISED),
    Rule("SB716", _too_few_layers, explains=RAISED),
    Rule("SB721", _unknown_positions, explains=RAISED),
    Rule("SB722", _foreign, explains=RAISED),
    Rule("SB723", _no_layers, explains=RAISED),
    Rule("SB724", _own_reordering, explains=RAISED),
)
