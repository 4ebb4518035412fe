"""SB8xx: rules for special tokens, generate() and the return values of forward."""

from __future__ import annotations

import re
from collections.abc import Iterator

from samebits.findings.case import Case
from samebits.findings.rule import COMPUTED, RAISED, Rule, Sighting
from samebits.findings.tokenizers import adds_unasked, side_lines, tokenizer_pair
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
    if texts and not adds_unasked(reference):
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


def _no_mask(case: Case) -> Iterator[Sighting]:
    """Find an own method that uses the mask of generate() as a tensor where it is None."""
    failure, frame = case.failure, case.frame(own=True)
    if failure is None or frame is None or not failure.phase.startswith("greedy"):
        return
    if case.raised("AssertionError", "") and _ASKED_FOR.match(frame.code):
        yield Sighting(case.raised_at(), case.exception_lines())
    if frame.function not in _OF_GENERATE or "mask" not in frame.code:
        return
    if case.raised("AttributeError|TypeError", r"'NoneType' object|must be Tensor, not NoneType"):
        yield Sighting(case.raised_at(), case.exception_lines())


_ASKED_FOR = re.compile(r"assert \w*mask is not None")
_OF_GENERATE = ("prepare_inputs_for_generation", "_update_model_kwargs_for_generation")


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
                    f"{list(candidate.shape)} in the candidate"
                )
                yield Sighting(f"{idiom.file}:{idiom.line}", (f"called: {idiom.code}", shapes))


def _forward_change(case: Case) -> str | None:
    """Return how the forward fails or differs from the reference's; None if it does neither."""
    if case.failure is not None and case.failure.phase.startswith(("forward", "greedy")):
        return case.exception_lines()[0]
    first = case.first()
    return f"{first} differ from the reference" if first in ("hidden_states", "logits") else None


RULES = (
    Rule("SB801", _missing_special_tokens, explains=frozenset({"inputs"})),
    Rule("SB802", _saved_as_unknown_class),
    Rule("SB803", _first_of_layer, explains=COMPUTED),
    Rule("SB804", _logits_to_keep, explains=frozenset({"logits", "outputs"})),
    Rule("SB718", _no_mask, explains=RAISED),
    Rule("SB805", _prepare_inputs_override, explains=RAISED),
)
