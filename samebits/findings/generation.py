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
            override = f"class {fact.name} has a prepare_inputs_for_generation of its own"
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
                    f"logits of prompt {item.name}: {list(reference.shape)} there, "
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
            name="the tokenizer no longer adds a token",
            kind="silent",
            looks_for="a text to which the reference's tokenizer adds more special tokens than this "
            "one",
            cause="5.x takes special tokens from tokenizer.json's post-processor alone; 4.x's "
            "LlamaTokenizerFast added BOS because add_bos_token said so.",
            remedy="Write the post-processor into tokenizer.json, or pass ids.",
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
            name="a tokenizer saved by 5.x is of a class that 4.x does not know",
            kind="api",
            scope="release",
            looks_for="a save_pretrained that writes tokenizer_class TokenizersBackend where the "
            "reference does not have this class",
            cause="5.x writes tokenizer_class TokenizersBackend, which 4.x does not have. Loading "
            "what it saved fails there (SB810).",
            remedy="Set tokenizer_class in tokenizer_config.json to PreTrainedTokenizerFast.",
            releases="saved by 5.x, loaded by 4.x",
            references=("https://github.com/huggingface/transformers/issues/47553",),
        ),
        _saved_as_unknown_class,
    ),
    Rule(
        RuleText(
            code="SB803",
            name="a library layer returns a tensor and no longer a tuple",
            kind="silent",
            looks_for="layer(...)[0] in the model's code, where the forward fails or its results "
            "differ from the reference",
            cause="Decoder layers returned tuples through 4.53 and return the hidden states alone "
            "from 4.57 on: [0] is then the first row of the batch, and broadcasting hides it.",
            remedy="Look at what came back.",
            example="output = layer(hidden_states)\n"
            "hidden_states = output[0] if isinstance(output, tuple) else output",
            releases="4.57.6 and later (llama; other families with them)",
            references=("transformers/models/llama/modeling_llama.py",),
        ),
        _first_of_layer,
    ),
    Rule(
        RuleText(
            code="SB804",
            name="num_logits_to_keep is called logits_to_keep",
            kind="api",
            looks_for="a call with either keyword in the model's code, where the logits have another "
            "number of positions than in the reference",
            cause="The argument was renamed between 4.48 and 4.53; the name that a release does not "
            "know disappears in **kwargs and all positions come back.",
            remedy="Cut the logits yourself: logits[:, -1:].",
            example="logits = model(input_ids).logits[:, -1:]",
            releases="num_logits_to_keep: 4.48; logits_to_keep: 4.53 and later",
            references=("transformers/models/llama/modeling_llama.py",),
        ),
        _logits_to_keep,
    ),
    Rule(
        RuleText(
            code="SB805",
            name="an own prepare_inputs_for_generation is handed all positions",
            kind="crash",
            looks_for="a size mismatch inside generate(), where forward works, in a model whose class "
            "defines prepare_inputs_for_generation",
            cause="generate() hands in position_ids for the whole text, by 5.9, and leaves it to "
            "prepare_inputs_for_generation to cut them to the tokens that are fed. One written for "
            "4.3x makes positions only where it gets none.",
            remedy="Delete the override: the library's own serves any model that takes a Cache. Or cut "
            "what is handed in to the length of input_ids.",
            example="position_ids = kwargs.get('position_ids')\n"
            "if position_ids is not None:\n"
            "    position_ids = position_ids[:, -input_ids.shape[1] :]",
            releases="fails in 5.9 and 5.23, works through 5.2, as measured here",
            references=("tests/custom/generate-legacy.diff",),
        ),
        _prepare_inputs_override,
    ),
)
