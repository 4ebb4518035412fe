"""SB8xx: rules for tokenizers that behave differently from the reference's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.rule import RAISED, Rule, Sighting, raised

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case
    from samebits.records.tokenizer import TokenizerSignal


def tokenizer_pair(case: Case) -> tuple[TokenizerSignal, TokenizerSignal] | None:
    """Return the tokenizers of the reference and of the cell; None if one was not observed."""
    reference = case.reference.signals.tokenizer if case.reference is not None else None
    candidate = case.capture.signals.tokenizer
    return (reference, candidate) if reference is not None and candidate is not None else None


def side_lines(case: Case, reference: str, candidate: str) -> tuple[str, ...]:
    """Return one line per side, each with the name of its stack."""
    assert case.reference is not None
    return (f"{case.reference.cell.stack}: {reference}", f"{case.capture.cell.stack}: {candidate}")


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
    Rule("SB807", _changed_padding_side),
    Rule("SB808", _chat_template_type),
    Rule("SB809", _changed_methods),
    Rule(
        "SB810",
        raised("ValueError", r"Tokenizer class TokenizersBackend does not exist"),
        explains=RAISED,
    ),
)
