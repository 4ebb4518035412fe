"""SB8xx: rules for tokenizers that behave differently from the reference's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Sighting, raised
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case
    from samebits.records.tokenizer import TokenizerSignal

_MAX_IDS = 12
"""Token ids of a text that the evidence shows."""


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
            f"{signal.class_name}, {len(text.bare)} ids, from number {first_difference} on "
            f"{list(text.bare[first_difference : first_difference + _MAX_IDS])}"
            for signal, text in zip(tokenizers, (reference, candidate), strict=True)
        )
        yield Sighting(f"text {name}", side_lines(case, *lines))


def _changed_padding_side(case: Case) -> Iterator[Sighting]:
    tokenizers = tokenizer_pair(case)
    if tokenizers is None or tokenizers[0].padding_side == tokenizers[1].padding_side:
        return
    reference, candidate = (f"{t.class_name} pads on the {t.padding_side}" for t in tokenizers)
    declared = tokenizers[1].declared_padding_side or tokenizers[0].declared_padding_side
    origin = (
        f"tokenizer_config.json says {declared}" if declared else "tokenizer_config.json is silent"
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
        lines.append(f"not there any more: {', '.join(removed)}")
    reference, candidate = (
        answer.batch.raised or f"returns {answer.batch.type}" for answer in tokenizers
    )
    if tokenizers[0].batch.said != tokenizers[1].batch.said:
        lines += [
            f"decode of a list of lists, {line}" for line in side_lines(case, reference, candidate)
        ]
    if set(tokenizers[0].gives) != set(tokenizers[1].gives):
        fields = (", ".join(tokenizer.gives) for tokenizer in tokenizers)
        lines += [f"a call gives, {line}" for line in side_lines(case, *fields)]
    if lines:
        yield Sighting(tokenizers[1].class_name, tuple(lines))


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
        _different_ids,
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
        _changed_padding_side,
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
        _chat_template_type,
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
        _changed_methods,
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
