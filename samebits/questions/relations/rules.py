"""Rules for relations inside a cell that are broken: caches, padding, batches, causality."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from samebits.compare.phases import DECODED
from samebits.findings.caches import (
    NAMED_ERRORS,
    OLD_NAME,
    moved_beyond_window,
    refused_keys,
    renamed_cache,
)
from samebits.findings.case import Case, seen_with
from samebits.findings.rule import COMPUTED, RAISED, Check, Rule, Sighting
from samebits.questions.relations.judge import Standing, judge_relation
from samebits.questions.relations.records import (
    LEFT_TO_CLASSES,
    PADDED_GENERATION,
    RELATIONS,
    Relation,
    RelationName,
)
from samebits.records.capture import Capture
from samebits.records.settings import BATCH_INVARIANT, OFF

_OF_BATCHES: tuple[RelationName, ...] = ("batch size", "batch position", "row order")
"""The relations that a batch-invariant mode promises byte for byte. Padding changes the length, too."""
_PADDING: tuple[RelationName, ...] = ("left padding", "right padding")
_CACHED_RELATIONS: tuple[RelationName, ...] = (
    "full forward = prefill + decode",
    "prefill split anywhere",
    "multi-token verify = single-token decode",
)
_CHUNKED_RELATIONS: tuple[RelationName, ...] = (
    "prefill split anywhere",
    "multi-token verify = single-token decode",
)
_GENERATION: RelationName = "generate() with images or sounds = forward"
_LATER_TURN: RelationName = "generate() over the cache of a turn = anew"
_UNCACHED: RelationName = "generate(use_cache=False) with images or sounds = with a cache"
_BY_HAND: RelationName = "greedy by hand = generate()"
_OF_EMBEDDINGS: tuple[RelationName, ...] = (
    "embeddings = token ids",
    "generate() from embeddings = from token ids",
)
_CHUNK = re.compile(r"chunk_gated_delta_rule$")
_RECURRENT = re.compile(r"recurrent_gated_delta_rule$")


def broken_in(case: Case, *names: RelationName) -> Iterator[Relation]:
    """Yield the relations inside the cell that are broken in float64, too."""
    return with_standing(case, Standing.BROKEN, *names)


def with_standing(case: Case, wanted: Standing, *names: RelationName) -> Iterator[Relation]:
    """Yield the relations of these names that have the wanted standing."""
    for relation, standing in _standings(case.capture):
        if relation.relation in names and standing == wanted:
            yield relation


def _standings(capture: Capture | None) -> Iterator[tuple[Relation, Standing]]:
    """Yield the relations inside a cell, each with its standing; nothing without a cell."""
    relations = RELATIONS.in_cell(capture) if capture is not None else None
    for relation in relations.relations if relations is not None else ():
        assert capture is not None
        yield relation, judge_relation(relation, capture.cell.variant.dtype)


def asked_of_made(case: Case) -> tuple[str, ...]:
    """Return the line of evidence that a made model answered for the relations; none if it did not."""
    relations = RELATIONS.in_cell(case.capture)
    return seen_with(relations.asked_of if relations is not None else None)


def _has_delta_net(capture: Capture) -> bool:
    """Return True if a gated delta-net ran. Other linear attention (minimax) does not count."""
    code = capture.signals.code
    return code is not None and any("GatedDeltaNet" in name for name in code.executed)


def _distances(relation: Relation) -> str:
    assert relation.distance is not None
    assert relation.promoted is not None
    outputs = (layer for layer in relation.layers if layer.name.startswith("output"))
    what = ", ".join(layer.name for layer in outputs if layer.distance.max_abs != 0)
    return (
        f"{relation.relation} ({relation.case}): {what or 'logits'} differ by up to "
        f"{relation.distance.max_abs:.2g}, and by {relation.promoted.max_abs:.2g} in float64"
    )


def _seen(case: Case, relations: list[Relation]) -> tuple[str, ...]:
    """Return the evidence of relations: their distances, and whose they are if a made model's."""
    return (*map(_distances, relations), *asked_of_made(case))


def _broken_chunks(case: Case) -> Iterator[Sighting]:
    """Find chunks that ignore the recurrent state while single-token decoding keeps it."""
    if not _has_delta_net(case.capture):
        return
    broken = list(broken_in(case, *_CHUNKED_RELATIONS))
    if broken and not list(broken_in(case, "full forward = prefill + decode")):
        yield Sighting("multi-token forward with a cache", _seen(case, broken))


def _is_not_causal(case: Case) -> bool:
    """Return True if rows depend on later tokens, so that decoding cannot agree with a forward."""
    return any(not relation.note for relation in broken_in(case, "causality"))


def _formulations(case: Case) -> Iterator[Sighting]:
    """Find a delta-net whose two formulations ran and differ by rounding."""
    decoded = (case.capture.signals.first_token or {}).values()
    code = case.capture.signals.code
    chunked = [name for name in (code.executed if code is not None else {}) if _CHUNK.search(name)]
    stepped = {name for token in decoded for name in token.functions if _RECURRENT.search(name)}
    if not chunked or not stepped:
        return
    relations = list(with_standing(case, Standing.ROUNDING, "full forward = prefill + decode"))
    if relations:
        ran = f"the prompt ran {chunked[0]}, the token after it {min(stepped)}"
        yield Sighting("gated delta rule", (ran, *_seen(case, relations)))


def _broken_cached_forward(case: Case) -> Iterator[Sighting]:
    """Find a cached path that computes a different function, unless a narrower rule applies."""
    yield from _other_generation(case)
    if list(_broken_chunks(case)) or _is_not_causal(case):
        return
    broken = [r for r in broken_in(case, *_CACHED_RELATIONS) if not r.note]
    if broken:
        yield Sighting("forward with a cache", _seen(case, broken))


def _broken_padding(case: Case) -> Iterator[Sighting]:
    names: list[RelationName] = [*_PADDING, "batch size", "rows with images = one by one"]
    if _is_not_causal(case):
        names.remove("right padding")
    broken = [r for r in broken_in(case, *names) if not r.note]
    if broken:
        of_padding = all(r.relation in _PADDING for r in broken)
        of_prompts = tuple(_padded_prompts(case)) if of_padding else None
        yield Sighting("padded batch", _seen(case, broken), of_prompts=of_prompts)
    else:
        yield from _broken_in_one(case)


def _broken_in_one(case: Case) -> Iterator[Sighting]:
    """Find padding without positions that one side keeps off real tokens, and the other does not."""
    for broken, of_reference in _broken_on_one_side(case, LEFT_TO_CLASSES):
        if noted := [relation for relation in broken if relation.note]:
            yield Sighting(
                "padded batch, positions left out",
                _seen(case, noted),
                of_reference=of_reference,
                of_prompts=tuple(_padded_prompts(case)),
            )


def _broken_on_one_side(
    case: Case, names: Iterable[RelationName]
) -> Iterator[tuple[list[Relation], bool]]:
    """Yield the relations that one side breaks and the other side keeps, and whether it is the reference that does."""
    for side, counterpart, of_reference in case.sides():
        before = _kept(counterpart).intersection(names)
        broken = [
            relation
            for relation, standing in _standings(side)
            if relation.relation in before and standing == Standing.BROKEN
        ]
        if broken:
            yield broken, of_reference


def _padded_prompts(case: Case) -> Iterator[str]:
    for prompt, facts in (case.capture.signals.forward or {}).items():
        if len(set(facts.real_rows or ())) > 1:
            yield prompt


def _broken(name: RelationName, where: str) -> Check:
    """Return what finds a relation that is broken, and not by the model's design."""

    def check(case: Case) -> Iterator[Sighting]:
        broken = [relation for relation in broken_in(case, name) if not relation.note]
        if broken:
            yield Sighting(where, _seen(case, broken))

    return check


def _decoding_change(case: Case) -> str | None:
    """Return how decoding differs from the reference or a full forward; None if it does not."""
    if case.first() in ("decode", "greedy"):
        return "decoding with the cache is the first signal that differs from the reference"
    if case.failure is not None and case.failure.phase.startswith("greedy"):
        is_named = any(list(check(case)) for check in NAMED_ERRORS)
        return None if is_named else case.exception_lines()[0]
    return _broken_behind_cache(case)


def _change_behind_cache(case: Case) -> str | None:
    """Return how decoding differs, for code that only runs on a cache; None if it does not.

    generate() hands no cache to a forward that knows it by an old name. Its decoding then differs
    for that reason alone, while relations hand it the cache by the name that it knows.
    """
    if not case.idioms(OLD_NAME):
        return _decoding_change(case)
    return _broken_behind_cache(case)


def _broken_behind_cache(case: Case) -> str | None:
    """Return how decoding differs from a full forward, other than by the model's design; None if it does not."""
    broken = next((r for r in broken_in(case, *_CACHED_RELATIONS) if not r.note), None)
    return "; ".join(_seen(case, [broken])) if broken is not None else None


def _cache_truth(case: Case) -> Iterator[Sighting]:
    change = _change_behind_cache(case)
    for idiom in case.idioms("truth of a cache") if change else ():
        yield Sighting(f"{idiom.file}:{idiom.line}", (f"tested: {idiom.code}", change or ""))


def _past_key_value(case: Case) -> Iterator[Sighting]:
    change = _change_behind_cache(case)
    for idiom in case.idioms("past_key_value keyword") if change else ():
        yield Sighting(f"{idiom.file}:{idiom.line}", (f"called: {idiom.code}", change or ""))


def _renamed_cache(case: Case) -> Iterator[Sighting]:
    """Find a cache that generate() passes by another name, where a loop over the forward shows it or the reference does."""
    before = _kept(case.reference)
    broken = [r for r in broken_in(case, _BY_HAND) if r.relation in before]
    yield from renamed_cache(case, "; ".join(_seen(case, broken)))


def _windowed_cache(case: Case) -> Iterator[Sighting]:
    """Find own attention that counts more keys than the cache of generate() keeps, by what it raises or by its ids."""
    yield from refused_keys(case)
    own = next((fact for fact in case.classes if "Attention" in fact.name), None)
    evidence = moved_beyond_window(case)
    if own is None or not evidence:
        return
    for broken, of_reference in _broken_on_one_side(case, (_BY_HAND,)):
        lines = (*evidence, *_seen(case, broken))
        yield Sighting(f"{own.file}:{own.line}", lines, of_reference=of_reference)


def _batch_dependent(case: Case) -> Iterator[Sighting]:
    """Find a row whose bytes depend on its batch, though a mode is on that promises otherwise."""
    signals, relations = case.capture.signals, RELATIONS.in_cell(case.capture)
    mode = signals.settings.values.get(BATCH_INVARIANT, OFF) if signals.settings else OFF
    if mode == OFF or relations is None:
        return
    broken = [
        f"{relation.relation} ({relation.case}): the bytes differ"
        for relation in relations.relations
        if relation.relation in _OF_BATCHES and not relation.holds
    ]
    if broken:
        yield Sighting(BATCH_INVARIANT, (f"{mode} is on", *broken, *asked_of_made(case)))


def _other_embeddings(case: Case) -> Iterator[Sighting]:
    """Find embeddings of which something else is computed than of their token ids, but not in the reference."""
    before = _kept(case.reference)
    broken = [r for r in broken_in(case, *_OF_EMBEDDINGS) if r.relation in before]
    if broken:
        yield Sighting("inputs_embeds", _seen(case, broken))


def _unused_embeddings(case: Case) -> Iterator[Sighting]:
    """Find embeddings that own code passes over beside an empty cache, where generate() from them raises on one side."""
    sides = [side for side in (case.reference, case.capture) if side is not None]
    raised = [_raised(side, "generate() from embeddings = from token ids") for side in sides]
    if len(sides) < 2 or bool(raised[0]) == bool(raised[1]):
        return
    for idiom in case.idioms("embeddings beside no cache"):
        evidence = (f"tested: {idiom.code}", *raised[0], *raised[1])
        raises = sides[0 if raised[0] else 1].cell.stack
        yield Sighting(f"{idiom.file}:{idiom.line}", evidence, raises=raises)


def _raised(capture: Capture, name: RelationName) -> tuple[str, ...]:
    """Return the exceptions of a relation in a cell."""
    relations = RELATIONS.in_cell(capture)
    tried = relations.inapplicable if relations is not None else ()
    return tuple(each.reason for each in tried if each.raised and each.relation == name)


def _other_generation(case: Case) -> Iterator[Sighting]:
    """Find a generate() with an image or a sound that its own forward contradicts, but not in the reference.

    One that padding changes behind its first step is wrong whatever the reference does.
    """
    before = _kept(case.reference)
    broken = [r for r in broken_in(case, _GENERATION, _LATER_TURN) if r.relation in before]
    if broken:
        yield Sighting("generate() with an image or a sound", _seen(case, broken))
    if padded := [r for r in broken_in(case, PADDED_GENERATION) if not r.note]:
        yield Sighting("generate() of a padded row", _seen(case, padded))
    for broken, of_reference in _broken_on_one_side(case, (_UNCACHED,)):
        where = "generate(use_cache=False) with an image or a sound"
        yield Sighting(where, _seen(case, broken), of_reference=of_reference)


def _kept(capture: Capture | None) -> set[RelationName]:
    """Return the relations that hold in a cell, or all but rounding of them."""
    holding = (Standing.HOLDS, Standing.ROUNDING)
    return {r.relation for r, standing in _standings(capture) if standing in holding}


RULES = (
    Rule("SB606", _broken("SDPA = eager attention", "attention")),
    Rule("SB703", _broken_chunks, explains=DECODED),
    Rule("SB704", _broken_cached_forward, explains=DECODED),
    Rule("SB705", _broken_padding, explains=COMPUTED),
    Rule("SB706", _broken("causality", "causality"), explains=COMPUTED),
    Rule("SB708", _cache_truth, explains=DECODED | RAISED),
    Rule("SB709", _past_key_value, explains=DECODED | RAISED),
    Rule("SB710", _formulations, explains=DECODED),
    Rule("SB713", _renamed_cache, explains=DECODED | RAISED),
    Rule("SB714", _other_embeddings),
    Rule("SB729", _unused_embeddings),
    Rule("SB725", _windowed_cache, explains=DECODED | RAISED),
    Rule(
        "SB717",
        _broken("rows of text after images = before", "rows of text after rows with images"),
    ),
    Rule("SB719", _broken("experts in another order", "experts"), explains=COMPUTED),
    Rule("SB923", _batch_dependent),
)
