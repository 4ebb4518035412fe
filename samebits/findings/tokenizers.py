"""SB8xx: rules for tokenizers that behave differently from the reference's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from samebits.compare.texts import (
    BARE,
    ENCODE,
    differences,
    differing_stage,
    is_raised,
    place,
)
from samebits.findings.rule import Rule, Sighting, raised
from samebits.records.finding import RuleText
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.compare.texts import Difference
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
            *_part_lines(case, first.case),
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


def _part_lines(case: Case, text: str) -> Iterator[str]:
    """Yield the part of the backend that gives other ids for a text, on both sides and in the file."""
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
    part = differing_stage(text, reference.corpus, candidate.corpus)
    if not part and "added_tokens" in changed:
        part = "added_tokens"
    if part:
        yield f"the part that gives something else is the {part}"
        shown = (f"{part} {sides.get(part, 'null')[:_MAX_PART]}" for sides in built)
        yield from side_lines(case, *shown)
        declared = (reference.parts.declared or candidate.parts.declared).get(part)
        if declared is not None:
            yield f"tokenizer.json: {part} {declared[:_MAX_PART]}"
    others = [
        f"{name} ({' → '.join(types)})"
        for name in changed
        if name != part and len(set(types := [_type(sides[name]) for sides in built])) > 1
    ]
    if others:
        yield f"parts of another type: {', '.join(others)}"


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
    Rule(
        RuleText(
            code="SB806",
            name="the tokenizer splits the same text into different tokens",
            kind="silent",
            looks_for="a prompt, or a text of the corpus, whose ids without special tokens differ "
            "from the reference's. The evidence names the part of the backend that first gives "
            "something else for this text, as both releases have it and as tokenizer.json has it",
            cause="4.x uses the tokenizer in tokenizer.json as it is. For some classes "
            "(LlamaTokenizer …) 5.x takes only the vocabulary and the merges from the file. It "
            "builds the tokenizer with its own normalizer, its own pre-tokenizer and its own rule "
            "for unknown characters. The model then gets different input ids. Affected: "
            "checkpoints whose tokenizer_config.json names such a class and whose tokenizer.json "
            "differs from what the class builds.",
            remedy="Name a class in tokenizer_config.json that uses tokenizer.json as it is.",
            example='{"tokenizer_class": "PreTrainedTokenizerFast"}  # tokenizer_config.json',
            releases="Depends on the class and the file. Measured: 5.23's LlamaTokenizer drops "
            "an unknown character, where 4.x gives the unknown token. Byte-level BPE with "
            "LlamaTokenizerFast loses its spaces in 5.3.0, and up to 5.10 for model_type llama. "
            "5.2's BertTokenizer does not lower-case if only tokenizer.json says so. "
            "RobertaTokenizer over WordPiece splits into letters from 5.2 on.",
            references=(
                "https://github.com/huggingface/transformers/issues/45488",
                "https://github.com/huggingface/transformers/issues/45701",
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
            looks_for="a loaded tokenizer with a different padding_side than in the reference",
            cause="tokenizer_config.json does not contain padding_side, so the default of the "
            "tokenizer class decides. Releases load different classes: 4.x's LlamaTokenizerFast "
            "pads left, TokenizersBackend right. A decoder that generates from a batch padded on "
            "the right continues after pad tokens, without a warning. Affected: batched "
            "generation with such a tokenizer.",
            remedy="Write padding_side into tokenizer_config.json, and set it in code that "
            "depends on it.",
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
            name="`apply_chat_template` returns a different type",
            kind="api",
            scope="release",
            looks_for="apply_chat_template of one message, without further arguments, that "
            "returns a different type than in the reference",
            cause="Up to 4.57 apply_chat_template returns a list of token ids. 5.0 made "
            "return_dict=True the default: it returns a BatchEncoding, whose len() is the number "
            "of its fields, not of tokens. Affected: code that uses the result as a list or a "
            "tensor.",
            remedy="Pass return_dict in every call.",
            example="ids = tokenizer.apply_chat_template(messages, return_dict=False)",
            releases="List: up to 4.57. BatchEncoding: 5.0.0 and later.",
            references=("transformers/tokenization_utils_base.py, apply_chat_template",),
        ),
        _chat_template_type,
    ),
    Rule(
        RuleText(
            code="SB809",
            name="methods of the tokenizer differ from the reference's",
            kind="api",
            scope="release",
            looks_for="methods that the reference's tokenizer has and this one does not, a "
            "different result of decode for a list of lists, or different fields in what a call "
            "of the tokenizer returns",
            cause="5.0 removed encode_plus, batch_encode_plus, "
            "build_inputs_with_special_tokens, prepare_for_model, as_target_tokenizer and "
            "additional_special_tokens. It made decode accept a batch. It also stopped returning "
            "token_type_ids for models that do not ask for them. Affected: code that calls these "
            "methods or reads this field.",
            remedy="Call the tokenizer itself: tokenizer(texts). If the model needs certain "
            "fields, name them in model_input_names.",
            example='batch = tokenizer(texts, padding=True, return_tensors="pt")\n'
            '{"model_input_names": ["input_ids", "attention_mask"]}  # tokenizer_config.json',
            releases="Up to 4.57 the methods exist; in 5.0.0 and later they do not",
            references=("transformers/tokenization_utils_base.py", "MIGRATION_GUIDE_V5.md"),
        ),
        _changed_methods,
    ),
    Rule(
        RuleText(
            code="SB810",
            name="the tokenizer's class does not exist in this release",
            kind="crash",
            looks_for="ValueError: Tokenizer class TokenizersBackend does not exist",
            cause='5.x saved the tokenizer and wrote `"tokenizer_class": "TokenizersBackend"` '
            "(SB802). 4.x does not have this class and refuses to load the tokenizer. Affected: "
            "users of 4.x who load a tokenizer that 5.x saved.",
            remedy="Set tokenizer_class in tokenizer_config.json to PreTrainedTokenizerFast.",
            example='{"tokenizer_class": "PreTrainedTokenizerFast"}  # tokenizer_config.json',
            releases="Saved by 5.x and loaded by 4.x",
            references=(
                "https://github.com/huggingface/transformers/issues/47553",
                "tests/custom/tokenizer-backend.repair.diff",
            ),
        ),
        raised("ValueError", r"Tokenizer class TokenizersBackend does not exist"),
    ),
)
