"""SB8xx, too: what a release makes of a model's tokenizer beside what the reference makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Seen, raised
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case
    from samebits.records.tokenizer import TokenizerSignal

_SHOWN = 12
"""Ids of a text that evidence shows."""


def pair(case: Case) -> tuple[TokenizerSignal, TokenizerSignal] | None:
    """Return the tokenizer of the reference and that of the cell, where both were looked at."""
    theirs = case.reference.signals.tokenizer if case.reference is not None else None
    mine = case.capture.signals.tokenizer
    return (theirs, mine) if theirs is not None and mine is not None else None


def sides(case: Case, there: str, here: str) -> tuple[str, ...]:
    """Return one line per side, each with its stack."""
    assert case.reference is not None
    return (f"{case.reference.cell.stack}: {there}", f"{case.capture.cell.stack}: {here}")


def _other_ids(case: Case) -> Iterator[Seen]:
    """Speak of texts that become other ids, special tokens left out."""
    both = pair(case)
    for name, one in both[0].texts.items() if both else ():
        other = both[1].texts.get(name) if both else None
        if both is None or other is None or one.text != other.text or one.bare == other.bare:
            continue
        part = next(
            (i for i, (a, b) in enumerate(zip(one.bare, other.bare, strict=False)) if a != b),
            min(len(one.bare), len(other.bare)),
        )
        told = (
            f"{signal.class_name}, {len(text.bare)} ids, from number {part} on "
            f"{list(text.bare[part : part + _SHOWN])}"
            for signal, text in zip(both, (one, other), strict=True)
        )
        yield Seen(f"text {name}", sides(case, *told))


def _padding_side(case: Case) -> Iterator[Seen]:
    both = pair(case)
    if both is None or both[0].padding_side == both[1].padding_side:
        return
    there, here = (f"{t.class_name} pads on the {t.padding_side}" for t in both)
    declared = both[1].declared_padding_side or both[0].declared_padding_side
    said = (
        f"tokenizer_config.json says {declared}" if declared else "tokenizer_config.json is silent"
    )
    yield Seen("padding_side", (*sides(case, there, here), said))


def _chat(case: Case) -> Iterator[Seen]:
    both = pair(case)
    if both is None or both[0].chat is None or both[1].chat is None:
        return
    there, here = both[0].chat, both[1].chat
    if there.said != here.said:
        told = (answer.raised or f"returns {answer.type}" for answer in (there, here))
        yield Seen("apply_chat_template(messages)", sides(case, *told))


def _methods(case: Case) -> Iterator[Seen]:
    both = pair(case)
    if both is None:
        return
    lines = []
    gone = [n for n, there in both[0].methods.items() if there and both[1].methods.get(n) is False]
    if gone:
        lines.append(f"not there any more: {', '.join(gone)}")
    one, other = (answer.batch.raised or f"returns {answer.batch.type}" for answer in both)
    if both[0].batch.said != both[1].batch.said:
        lines += [f"decode of a list of lists, {line}" for line in sides(case, one, other)]
    if set(both[0].gives) != set(both[1].gives):
        given = (", ".join(tokenizer.gives) for tokenizer in both)
        lines += [f"a call gives, {line}" for line in sides(case, *given)]
    if lines:
        yield Seen(both[1].class_name, tuple(lines))


RULES = (
    Rule(
        RuleText(
            code="SB806",
            name="the tokenizer splits the same text into other tokens",
            kind="silent",
            looks_for="a text whose ids differ from the reference's although no special token is asked "
            "for",
            cause="5.x builds its own tokenizer for classes that it knows (LlamaTokenizer …), from the "
            "vocabulary and merges of tokenizer.json, with a normalizer, pre-tokenizer and handling of "
            "unknown characters of its own, instead of taking the file's.",
            remedy="Name the class that takes tokenizer.json as it is.",
            example='{"tokenizer_class": "PreTrainedTokenizerFast"}  # tokenizer_config.json',
            releases="depends on class and file; measured: an unknown character is dropped by 5.23's "
            "LlamaTokenizer where 4.x gives the unknown token",
            references=(
                "transformers/models/llama/tokenization_llama.py",
                "tests/custom/tokenizer-llama.diff",
            ),
        ),
        _other_ids,
    ),
    Rule(
        RuleText(
            code="SB807",
            name="the tokenizer pads on the other side",
            kind="silent",
            looks_for="padding_side of the loaded tokenizer being another than in the reference",
            cause="tokenizer_config.json names no side, and the default is that of the class which the "
            "release makes of tokenizer_class: 4.x's LlamaTokenizerFast pads left, TokenizersBackend "
            "right. A decoder that is fed a batch padded on the right goes on from padding.",
            remedy="Write the side down, and set it in code that depends on it.",
            example='{"padding_side": "left"}  # tokenizer_config.json',
            releases="llama: left in 4.x, right in 5.0 to 5.2, left again by 5.6",
            references=(
                "transformers/tokenization_utils_tokenizers.py",
                "tests/custom/tokenizer-llama.repair.diff",
            ),
        ),
        _padding_side,
    ),
    Rule(
        RuleText(
            code="SB808",
            name="apply_chat_template returns another type",
            kind="api",
            scope="release",
            looks_for="apply_chat_template of one message, without further arguments, returning another "
            "type than in the reference",
            cause="5.0 made return_dict=True the default: a BatchEncoding, whose len() is the number of "
            "its fields, where 4.x returned the list of ids.",
            remedy="Say return_dict in every call.",
            example="ids = tokenizer.apply_chat_template(messages, return_dict=False)",
            releases="list: through 4.57; BatchEncoding: 5.0.0 and later",
            references=("transformers/tokenization_utils_base.py, apply_chat_template",),
        ),
        _chat,
    ),
    Rule(
        RuleText(
            code="SB809",
            name="the tokenizer's methods are not those of the reference",
            kind="api",
            scope="release",
            looks_for="methods that the reference's tokenizer has and this one has not, another answer "
            "to decode of a list of lists, or other fields of what a call returns",
            cause="5.0 removed encode_plus, batch_encode_plus, build_inputs_with_special_tokens, "
            "prepare_for_model, as_target_tokenizer and additional_special_tokens, lets decode take a "
            "batch, and no longer gives token_type_ids to models that do not ask for them.",
            remedy="Call the tokenizer itself. Fields: name those that the model takes.",
            example='batch = tokenizer(texts, padding=True, return_tensors="pt")\n'
            '{"model_input_names": ["input_ids", "attention_mask"]}  # tokenizer_config.json',
            releases="through 4.57; 5.0.0 and later lack them",
            references=("transformers/tokenization_utils_base.py", "MIGRATION_GUIDE_V5.md"),
        ),
        _methods,
    ),
    Rule(
        RuleText(
            code="SB810",
            name="the tokenizer is of a class that this release does not know",
            kind="crash",
            looks_for="Tokenizer class TokenizersBackend does not exist",
            cause="The tokenizer was saved by 5.x, which writes tokenizer_class TokenizersBackend "
            "(SB802). 4.x does not have this class.",
            remedy="Set tokenizer_class in tokenizer_config.json to PreTrainedTokenizerFast.",
            example='{"tokenizer_class": "PreTrainedTokenizerFast"}  # tokenizer_config.json',
            releases="saved by 5.x, loaded by 4.x",
            references=(
                "https://github.com/huggingface/transformers/issues/47553",
                "tests/custom/tokenizer-backend.repair.diff",
            ),
        ),
        raised("ValueError", r"Tokenizer class TokenizersBackend does not exist"),
    ),
)
