"""SB806: texts with different token ids, and the part of the backend that makes them differ."""

from __future__ import annotations

import json
from collections.abc import Iterator

from samebits.findings.case import Case
from samebits.findings.rule import Sighting
from samebits.findings.tokenizers import side_lines, tokenizer_pair
from samebits.questions.texts.compare import (
    BARE,
    ENCODE,
    Difference,
    Trial,
    differences,
    differing_stages,
    is_raised,
    place,
    trials,
)
from samebits.questions.texts.records import Outcomes, Parts
from samebits.questions.texts.sides import corpora, texts_pair
from samebits.text.numbers import plural

_MAX_IDS = 12
"""Token ids of a text that the evidence shows."""
_MAX_PART = 300
"""Characters of a part of the backend that the evidence shows."""
_PARTS = ("normalizer", "pre_tokenizer", "model", "post_processor", "decoder", "added_tokens")


def different_ids(case: Case) -> Iterator[Sighting]:
    """Find texts with different token ids, special tokens left out."""
    tokenizers = tokenizer_pair(case)
    for name, reference in tokenizers[0].texts.items() if tokenizers else ():
        candidate = tokenizers[1].texts.get(name) if tokenizers else None
        if (
            tokenizers is None
            or candidate is None
            or reference.text != candidate.text
            or reference.bare == candidate.bare
        ):
            continue
        first_difference = next(
            (
                i
                for i, (a, b) in enumerate(zip(reference.bare, candidate.bare, strict=False))
                if a != b
            ),
            min(len(reference.bare), len(candidate.bare)),
        )
        lines = (
            f"{signal.class_name}, {len(text.bare)} ids, from index {first_difference} on "
            f"{list(text.bare[first_difference : first_difference + _MAX_IDS])}"
            for signal, text in zip(tokenizers, (reference, candidate), strict=True)
        )
        yield Sighting(f"text {name}", side_lines(case, *lines))
    yield from _different_corpus(case)


def _different_corpus(case: Case) -> Iterator[Sighting]:
    """Find the first text of the corpus with different ids, and the part that is read otherwise."""
    both = corpora(case)
    differing = [d for d in differences(BARE, *both) if not is_raised(d)] if both else []
    if both is None or not differing:
        return
    first = place(BARE, differing[0], *both)
    n_texts = plural(len(both[0].operations[BARE]), "text")
    shown = zip(_described(case), (first.reference, first.candidate), strict=True)
    lines = (f"{described}, from index {first.position[0]} on {ids}" for described, ids in shown)
    yield Sighting(
        f"text {first.case} of the corpus",
        (
            f"{len(differing)} of {n_texts} differ, the first is {first.case}",
            *side_lines(case, *lines),
            *_part_lines(case, first.case, differing, both),
            *_slow_lines(case, differing, both),
        ),
    )


def _described(case: Case) -> Iterator[str]:
    """Yield the class of each side with its backend."""
    sides = zip(tokenizer_pair(case) or (), texts_pair(case) or (), strict=True)
    for tokenizer, texts in sides:
        yield f"{tokenizer.class_name}{_backend(texts.parts)}"


def _backend(parts: Parts | None) -> str:
    if parts is None:
        return ""
    if not parts.built:
        return " (in Python)"
    return f" (backend tokenizers, {_type(parts.built['model'])})"


def _type(part: str) -> str:
    """Return the type of a part, such as ``ByteLevel``; ``none`` if there is no such part."""
    try:
        value = json.loads(part)
    except ValueError:  # cut, as it is long
        return "several"
    if value is None:
        return "none"
    return str(value.get("type")) if isinstance(value, dict) else f"{len(value)} tokens"


def _part_lines(
    case: Case, text: str, differing: list[Difference], corpora: tuple[Outcomes, Outcomes]
) -> Iterator[str]:
    """Yield what was put back and gives the other ids, or what changed, on both sides and in the file."""
    reference, candidate = (side.parts for side in texts_pair(case) or ())
    if reference is None or candidate is None:
        return
    built = reference.built, candidate.built
    if not all(built):
        return
    changed = [name for name in _PARTS if built[0].get(name) != built[1].get(name)]
    tried = trials(differing, *corpora)
    shown_by = next((trial for trial in tried if trial.n_same == len(differing)), None)
    if shown_by is not None:
        parts = tuple(shown_by.parts.split(", "))
        yield f"what gives something else is the {' and the '.join(parts)}"
    else:
        parts = differing_stages(text, *corpora, changed)
        parts = parts or tuple(changed)
        if parts:
            word = "confirmed" if tried else "tried"
            yield f"parts that changed, listed, not {word}: {', '.join(parts)}"
    if tried:
        best = max(tried, key=lambda trial: trial.n_same)
        yield _trial_line(case, best, len(differing))
    for part in parts:
        shown = (f"{part} {sides.get(part, 'null')[:_MAX_PART]}" for sides in built)
        yield from side_lines(case, *shown)
        declared = (reference.declared or candidate.declared).get(part)
        if declared is not None:
            yield f"tokenizer.json: {part} {declared[:_MAX_PART]}"
            yield from _as_declared(case, part, built, declared)
    others = [
        f"{name} ({' → '.join(types)})"
        for name in changed
        if name not in parts and len(set(types := [_type(sides[name]) for sides in built])) > 1
    ]
    if others:
        yield f"parts of another type: {', '.join(others)}"


def _trial_line(case: Case, trial: Trial, n_differing: int) -> str:
    assert case.reference is not None
    stacks = case.reference.cell.stack, case.capture.cell.stack
    changed, other = stacks if trial.is_reference else stacks[::-1]
    return (
        f"tried: with the {trial.parts} of tokenizer.json, {changed} gives {other}'s ids for "
        f"{trial.n_same} of {plural(n_differing, 'text')} that differ"
    )


def _as_declared(
    case: Case, part: str, built: tuple[dict[str, str], dict[str, str]], declared: str
) -> Iterator[str]:
    """Yield which release has a part as the file has it, if only one has."""
    assert case.reference is not None
    stacks = case.reference.cell.stack, case.capture.cell.stack
    same = [stack for stack, sides in zip(stacks, built, strict=True) if sides[part] == declared]
    if len(same) == 1:
        yield f"{same[0]} has the {part} of tokenizer.json, and the other release does not"


def _slow_lines(
    case: Case, differing: list[Difference], corpora: tuple[Outcomes, Outcomes]
) -> Iterator[str]:
    """Yield whether the candidate gives what the reference's class in Python gives."""
    assert case.reference is not None
    reference, candidate = corpora
    pairs = [
        (slow, whole)
        for d in differing
        if (slow := reference.value("slow class", d.case)) is not None
        and (whole := candidate.value(ENCODE, d.case)) is not None
    ]
    if pairs and all(slow == whole for slow, whole in pairs):
        yield f"{case.reference.cell.stack}'s class in Python gives the same ids as this release"
