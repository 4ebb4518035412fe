"""SB8xx: rules for tokenizers that behave differently from the reference's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from samebits.compare.facts import ABSENT
from samebits.findings.case import Case
from samebits.findings.rule import RAISED, Rule, Sighting, of_exception
from samebits.records.tokenizer import TokenizerSignal

_PACKAGE = (
    r"(?i:(sentencepiece|protobuf)(?= library but it was not found)"
    r"|(?<=No module named .)(sentencepiece|google|tiktoken)"
    r"|(?<=need to have )sentencepiece|(?<=`)tiktoken(?=` is required))"
)
"""The package that an exception of a tokenizer's load says is missing, from 4.48 to 5.24."""
_WITH = (
    "--environment-package sentencepiece --environment-package protobuf",
    "--environment-package tiktoken",
)
"""5.x names tiktoken wherever it cannot read a file by sentencepiece."""
_ADDS = {"add_bos_token": "bos", "add_eos_token": "eos"}
_MAX_LINES = 6


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
    if reference.type_name != candidate.type_name:
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
    if tokenizers[0].batch.type_name != tokenizers[1].batch.type_name:
        lines += [
            f"decode of a list of lists, {line}" for line in side_lines(case, reference, candidate)
        ]
    if set(tokenizers[0].gives) != set(tokenizers[1].gives):
        fields = (", ".join(tokenizer.gives) for tokenizer in tokenizers)
        lines += [f"a call returns, {line}" for line in side_lines(case, *fields)]
    if lines:
        yield Sighting(tokenizers[1].class_name, tuple(lines))


def _not_as_stated(case: Case) -> Iterator[Sighting]:
    """Find keys of the checkpoint's files of which the tokenizer has another value.

    One that it has not at all counts where the reference has it.
    """
    tokenizer = case.capture.signals.tokenizer
    if tokenizer is None:
        return
    pair = tokenizer_pair(case)
    others = pair[0] if pair is not None else None
    lines: dict[str, list[str]] = {}
    for key, (stated, value) in tokenizer.unlike.items():
        if value == ABSENT and (others is None or key in others.unlike):
            continue
        if key in _ADDS and _adds(tokenizer, _ADDS[key]) == (stated == "true"):
            continue  # a post-processor does what is stated
        line = f"{key}: the checkpoint states {stated}, {tokenizer.class_name} has {value}"
        if others is not None:
            had = others.unlike[key][1] if key in others.unlike else "it"
            line += f"; the reference has {had}"
        lines.setdefault(key.partition(".")[0], []).append(line)
    for where, of_key in lines.items():
        yield Sighting(where, tuple(of_key[:_MAX_LINES]))


def _adds(tokenizer: TokenizerSignal, name: str) -> bool:
    """Return True if the tokenizer adds a special token to a text."""
    fixed, token = tokenizer.texts.get("fixed"), tokenizer.special.get(name)
    return fixed is not None and token in fixed.ids and token not in fixed.bare


def adds_unasked(tokenizer: TokenizerSignal) -> bool:
    """Return True if the tokenizer adds a special token that the checkpoint states not to add."""
    stated = {key: tokenizer.unlike[key][0] for key in _ADDS.keys() & tokenizer.unlike.keys()}
    return any(stated[key] == "false" and _adds(tokenizer, _ADDS[key]) for key in stated)


def _package_missing(case: Case) -> Iterator[Sighting]:
    """Find a tokenizer that cannot be loaded without a package that the stack does not have.

    4.x asks for protobuf while it handles any other exception, of which the traceback tells.
    """
    failure = case.failure
    if failure is None or failure.phase != "tokenizer":
        return
    missing = case.raised("ImportError|ModuleNotFoundError|ValueError", _PACKAGE)
    hidden, during, _ = failure.traceback.partition("During handling of the above exception")
    if missing is not None and (not during or re.search(_PACKAGE, hidden)):
        name = missing[0].lower()
        remedy = " or, for a file of tiktoken, ".join(_WITH) if name == "tiktoken" else _WITH[0]
        yield Sighting(name, (*case.exception_lines(), f"with it: samebits check {remedy}"))


def _base_called_too_early(case: Case) -> Iterator[Sighting]:
    """Find a method of a custom tokenizer that its base class calls before ``__init__`` is through."""
    failure = case.failure
    if failure is None or failure.phase != "tokenizer":
        return
    own = [frame for frame in failure.frames if frame.own]
    if len(own) < 2 or "super().__init__(" not in own[0].code or own[-1].function == "__init__":
        return
    if case.raised("AttributeError|TypeError", ""):
        called = f"__init__ of the base class calls {own[-1].function}() at once"
        yield Sighting(case.place(own[0]), (*case.exception_lines(), called))


RULES = (
    Rule("SB807", _changed_padding_side),
    Rule("SB808", _chat_template_type),
    Rule("SB809", _changed_methods),
    of_exception("SB810", "ValueError", r"Tokenizer class TokenizersBackend does not exist"),
    Rule("SB827", _not_as_stated),
    Rule("SB828", _package_missing, explains=RAISED),
    Rule("SB867", _base_called_too_early, explains=RAISED),
    of_exception(
        "SB868", "TypeError", r"\b_pad\(\) got an unexpected keyword argument 'padding_side'"
    ),
)
