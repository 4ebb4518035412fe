"""SB8xx: rules for tokenizers that behave differently from the reference's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from samebits.compare.texts import (
    BARE,
    ENCODE,
    differences,
    differing_stages,
    is_raised,
    place,
    trials,
)
from samebits.findings.rule import RAISED, Rule, Sighting, raised
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.compare.texts import Difference, Trial
    from samebits.findings.case import Case
    from samebits.records.tokenizer import TokenizerSignal

_MAX_IDS = 12
"""Token ids of a text that the evidence shows."""
_MAX_PART = 300
"""Characters of a part of the backend that the evidence shows."""
_PARTS = ("normalizer", "pre_tokenizer", "model", "post_processor", "decoder", "added_tokens")


def tokenizer_pair(case: Case) -> tuple[TokenizerSignal, TokenizerSignal] | None:
    """Return the tokenizers of the reference and of the cell; None if one was not observed."""
    reference = case.reference.signals.tokenizer if case.reference is not None else None
    candidate = case.capture.signals.tokenizer
    return (reference, candidate) if reference is not None and candidate is not None else None


def side_lines(case: Case, reference: str, candidate: str) -> tuple[str, ...]:
    """Return one line per side, each with the name of its stack."""
    assert case.reference is not None
    return (f"{case.reference.cell.stack}: {reference}", f"{case.capture.cell.stack}: {candidate}")


def _different_ids(case: Case) -> Iterator[Sighting]:
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
    tokenizers = tokenizer_pair(case)
    if tokenizers is None or tokenizers[0].corpus is None or tokenizers[1].corpus is None:
        return
    corpora = tokenizers[0].corpus, tokenizers[1].corpus
    differing = [d for d in differences(BARE, *corpora) if not is_raised(d)]
    if not differing:
        return
    first = place(BARE, differing[0], *corpora)
    n_texts = plural(len(corpora[0].operations[BARE]), "text")
    shown = zip(tokenizers, (first.reference, first.candidate), strict=True)
    lines = (
        f"{_described(signal)}, from index {first.position[0]} on {ids}" for signal, ids in shown
    )
    yield Sighting(
        f"text {first.case} of the corpus",
        (
            f"{len(differing)} of {n_texts} differ, the first is {first.case}",
            *side_lines(case, *lines),
            *_part_lines(case, first.case, differing),
            *_slow_lines(case, differing),
        ),
    )


def _described(signal: TokenizerSignal) -> str:
    """Return the class with its backend."""
    if signal.parts is None:
        return signal.class_name
    if not signal.parts.built:
        return f"{signal.class_name} (in Python)"
    return f"{signal.class_name} (backend tokenizers, {_type(signal.parts.built['model'])})"


def _type(part: str) -> str:
    """Return the type of a part, such as ``ByteLevel``; ``none`` if there is no such part."""
    try:
        value = json.loads(part)
    except ValueError:  # cut, as it is long
        return "several"
    if value is None:
        return "none"
    return str(value.get("type")) if isinstance(value, dict) else f"{len(value)} tokens"


def _part_lines(case: Case, text: str, differing: list[Difference]) -> Iterator[str]:
    """Yield what was put back and gives the other ids, or what changed, on both sides and in the file."""
    tokenizers = tokenizer_pair(case)
    assert tokenizers is not None
    reference, candidate = tokenizers
    if reference.parts is None or candidate.parts is None:
        return
    assert reference.corpus is not None
    assert candidate.corpus is not None
    built = reference.parts.built, candidate.parts.built
    if not all(built):
        return
    changed = [name for name in _PARTS if built[0].get(name) != built[1].get(name)]
    tried = trials(differing, reference.corpus, candidate.corpus)
    shown_by = next((trial for trial in tried if trial.n_same == len(differing)), None)
    if shown_by is not None:
        parts = tuple(shown_by.parts.split(", "))
        yield f"what gives something else is the {' and the '.join(parts)}"
    else:
        parts = differing_stages(text, reference.corpus, candidate.corpus, changed)
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
        declared = (reference.parts.declared or candidate.parts.declared).get(part)
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


def _slow_lines(case: Case, differing: list[Difference]) -> Iterator[str]:
    """Yield whether the candidate gives what the reference's class in Python gives."""
    tokenizers = tokenizer_pair(case)
    assert tokenizers is not None
    assert case.reference is not None
    reference, candidate = (tokenizer.corpus for tokenizer in tokenizers)
    assert reference is not None
    assert candidate is not None
    pairs = [
        (slow, whole)
        for d in differing
        if (slow := reference.value("slow class", d.case)) is not None
        and (whole := candidate.value(ENCODE, d.case)) is not None
    ]
    if pairs and all(slow == whole for slow, whole in pairs):
        yield f"{case.reference.cell.stack}'s class in Python gives the same ids as this release"


def _changed_padding_side(case: Case) -> Iterator[Sighting]:
    tokenizers = tokenizer_pair(case)
    if tokenizers is None or tokenizers[0].padding_side == tokenizers[1].padding_side:
        return
    reference, candidate = (f"{t.class_name} pads on the {t.padding_side}" for t in tokenizers)
    declared = tokenizers[1].declared_padding_side or tokenizers[0].declared_padding_side
    origin = (
        f"tokenizer_config.json sets {declared}"
        if declared
        else "tokenizer_config.json sets no side"
    )
    yield Sighting("padding_side", (*side_lines(case, reference, candidate), origin))


def _chat_template_type(case: Case) -> Iterator[Sighting]:
    tokenizers = tokenizer_pair(case)
    if tokenizers is None or tokenizers[0].chat is None or tokenizers[1].chat is None:
        return
    reference, candidate = tokenizers[0].chat, tokenizers[1].chat
    if reference.said != candidate.said:
        lines = (answer.raised or f"returns {answer.type}" for answer in (reference, candidate))
        yield Sighting("apply_chat_template(messages)", side_lines(case, *lines))


def _changed_methods(case: Case) -> Iterator[Sighting]:
    tokenizers = tokenizer_pair(case)
    if tokenizers is None:
        return
    lines = []
    removed = [
        n
        for n, has_method in tokenizers[0].methods.items()
        if has_method and tokenizers[1].methods.get(n) is False
    ]
    if removed:
        lines.append(f"removed: {', '.join(removed)}")
    reference, candidate = (
        answer.batch.raised or f"returns {answer.batch.type}" for answer in tokenizers
    )
    if tokenizers[0].batch.said != tokenizers[1].batch.said:
        lines += [
            f"decode of a list of lists, {line}" for line in side_lines(case, reference, candidate)
        ]
    if set(tokenizers[0].gives) != set(tokenizers[1].gives):
        fields = (", ".join(tokenizer.gives) for tokenizer in tokenizers)
        lines += [f"a call returns, {line}" for line in side_lines(case, *fields)]
    if lines:
        yield Sighting(tokenizers[1].class_name, tuple(lines))


RULES = (
    Rule("SB806", _different_ids),
    Rule("SB807", _changed_padding_side),
    Rule("SB808", _chat_template_type),
    Rule("SB809", _changed_methods),
    Rule(
        "SB810",
        raised("ValueError", r"Tokenizer class TokenizersBackend does not exist"),
        explains=RAISED,
    ),
)
