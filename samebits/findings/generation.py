"""SB8xx: rules for special tokens, generate() and the return values of forward."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Sighting
from samebits.findings.tokenizers import side_lines, tokenizer_pair
from samebits.records.finding import RuleText

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.findings.case import Case
    from samebits.records.tokenizer import Encoded


def _missing_special_tokens(case: Case) -> Iterator[Sighting]:
    """Find special tokens that the reference's tokenizer adds to a text and this one does not."""
    tokenizers = tokenizer_pair(case)
    if tokenizers is None:
        return
    reference, candidate = tokenizers
    texts = [
        name
        for name, expected in reference.texts.items()
        if (encoded := candidate.texts.get(name)) is not None
        and expected.text == encoded.text
        and _n_added(expected) > _n_added(encoded) >= 0
    ]
    if texts:
        lines = (f"{signal.class_name} adds {signal.adds}" for signal in tokenizers)
        yield Sighting(f"text {', '.join(texts)}", side_lines(case, *lines))


def _n_added(text: Encoded) -> int:
    return len(text.ids) - len(text.bare)


def _saved_as_unknown_class(case: Case) -> Iterator[Sighting]:
    """Find a tokenizer that is saved with a class name that the reference does not know."""
    tokenizers = tokenizer_pair(case)
    if (
        tokenizers is None
        or tokenizers[1].saved_class != "TokenizersBackend"
        or tokenizers[0].knows_backend
    ):
        return
    assert case.reference is not None
    reference = case.reference.cell.stack
    yield Sighting(
        "save_pretrained of the tokenizer",
        (
            f"{case.capture.cell.stack} writes tokenizer_class TokenizersBackend",
            f"{reference} has no class of that name and wrote {tokenizers[0].saved_class}",
        ),
        saver=case.capture.cell.stack,
    )


def _first_of_layer(case: Case) -> Iterator[Sighting]:
    change = _forward_change(case)
    for idiom in case.idioms("first of a layer's output") if change else ():
        yield Sighting(f"{idiom.file}:{idiom.line}", (f"taken: {idiom.code}", change or ""))


def _prepare_inputs_override(case: Case) -> Iterator[Sighting]:
    """Find an own prepare_inputs_for_generation where generate() fails and forward works."""
    failure = case.failure
    if failure is None or not failure.phase.startswith("greedy"):
        return
    if (
        case.raised("RuntimeError", r"size of tensor a \(\d+\) must match the size of tensor b")
        is None
    ):
        return
    for fact in case.classes:
        if "prepare_inputs_for_generation" in fact.methods:
            override = f"class {fact.name} defines prepare_inputs_for_generation"
            yield Sighting(f"{fact.file}:{fact.line}", (override, *case.exception_lines()))


def _logits_to_keep(case: Case) -> Iterator[Sighting]:
    """Find the keyword where one side returns logits of fewer positions."""
    for signal in case.signals:
        for item in signal.items if signal.signal == "logits" else ():
            reference, candidate = item.reference, item.candidate
            if reference is None or candidate is None or reference.shape == candidate.shape:
                continue
            for idiom in case.idioms("logits_to_keep keyword"):
                shapes = (
                    f"logits of prompt {item.name}: {list(reference.shape)} in the reference, "
                    f"{list(candidate.shape)} here"
                )
                yield Sighting(f"{idiom.file}:{idiom.line}", (f"called: {idiom.code}", shapes))


def _forward_change(case: Case) -> str | None:
    """Return how the forward fails or differs from the reference's; None if it does neither."""
    if case.failure is not None and case.failure.phase.startswith(("forward", "greedy")):
        return case.exception_lines()[0]
    first = case.first()
    return f"{first} differ from the reference" if first in ("hidden_states", "logits") else None


RULES = (
    Rule(
        RuleText(
            code="SB801",
            name="the tokenizer no longer adds a special token",
            kind="silent",
            looks_for="a text to which the reference's tokenizer adds more special tokens than "
            "this release's",
            cause="4.x's LlamaTokenizerFast adds BOS if add_bos_token is true. 5.x adds only "
            "the special tokens that the post-processor in tokenizer.json adds. The model then "
            "gets different input ids, without a warning. Affected: checkpoints whose "
            "tokenizer.json has no such post-processor.",
            remedy="Write a post-processor into tokenizer.json, or pass token ids yourself.",
            example='"post_processor": {"type": "TemplateProcessing",\n'
            '  "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},\n'
            '             {"Sequence": {"id": "A", "type_id": 0}}], ...}',
            releases="5.0.0 and later",
            references=(
                "transformers/tokenization_utils_tokenizers.py",
                "tests/custom/tokenizer-llama.repair.diff",
            ),
        ),
        _missing_special_tokens,
    ),
    Rule(
        RuleText(
            code="SB802",
            name="a tokenizer that 5.x saves cannot be loaded by 4.x",
            kind="api",
            scope="release",
            looks_for='a save_pretrained that writes `"tokenizer_class": "TokenizersBackend"`, if '
            "the reference does not have this class",
            cause='5.x writes `"tokenizer_class": "TokenizersBackend"` into '
            "tokenizer_config.json. 4.x does not have this class, and loading such a tokenizer "
            "fails there (SB810). Affected: users of 4.x who load a tokenizer that 5.x saved.",
            remedy="Set tokenizer_class in tokenizer_config.json to PreTrainedTokenizerFast.",
            releases="Saved by 5.x and loaded by 4.x",
            references=("https://github.com/huggingface/transformers/issues/47553",),
        ),
        _saved_as_unknown_class,
    ),
    Rule(
        RuleText(
            code="SB803",
            name="a layer of the library returns a tensor, no longer a tuple",
            kind="silent",
            looks_for="`layer(…)[0]` in the model's code, if the forward fails or differs from "
            "the reference",
            cause="Up to 4.53 decoder layers return a tuple whose first entry is the hidden "
            "states. From 4.57 on they return the hidden states themselves, so `[0]` is the first "
            "row of the batch. Broadcasting can hide this: all rows then get the result of the "
            "first. Affected: custom models that call layers of the library and take `[0]`.",
            remedy="Take `[0]` only if the layer returned a tuple.",
            example="output = layer(hidden_states)\n"
            "hidden_states = output[0] if isinstance(output, tuple) else output",
            releases="4.57.6 and later (llama and other families)",
            references=("transformers/models/llama/modeling_llama.py",),
        ),
        _first_of_layer,
    ),
    Rule(
        RuleText(
            code="SB804",
            name="`num_logits_to_keep` was renamed to `logits_to_keep`",
            kind="api",
            looks_for="a call with either keyword in the model's code, if the logits have a "
            "different number of positions than in the reference",
            cause="The argument was renamed between 4.48 and 4.53. A name that a release does "
            "not know disappears in `**kwargs` without an exception, and the logits of all "
            "positions are returned. Affected: custom code that calls a model of the library with "
            "one of the two names.",
            remedy="Cut the logits yourself: `logits[:, -1:]`.",
            example="logits = model(input_ids).logits[:, -1:]",
            releases="num_logits_to_keep: 4.48. logits_to_keep: 4.53 and later.",
            references=("transformers/models/llama/modeling_llama.py",),
        ),
        _logits_to_keep,
    ),
    Rule(
        RuleText(
            code="SB805",
            name="a custom `prepare_inputs_for_generation` gets the positions of the whole text",
            kind="crash",
            looks_for="a RuntimeError about sizes inside generate(), if forward works and the "
            "model's class defines prepare_inputs_for_generation",
            cause="By 5.9 generate() passes position_ids for the whole text, and "
            "prepare_inputs_for_generation has to cut them to the tokens that are fed. A custom "
            "method written for 4.3x only makes positions if it gets none, so positions and "
            "tokens have different lengths. Affected: custom models with such a method.",
            remedy="Delete the method: the library's own works for every model that takes a "
            "Cache. Or cut the position_ids to the length of input_ids.",
            example="position_ids = kwargs.get('position_ids')\n"
            "if position_ids is not None:\n"
            "    position_ids = position_ids[:, -input_ids.shape[1] :]",
            releases="Fails in 5.9 and 5.23. Works up to 5.2 (measured here).",
            references=("tests/custom/generate-legacy.diff",),
        ),
        _prepare_inputs_override,
    ),
)
