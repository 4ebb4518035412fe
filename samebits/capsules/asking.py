"""Selection of the simplest computation that shows a cell's defect in two scripts."""

from __future__ import annotations

import base64
from typing import NamedTuple

from samebits.compare.forwards import real_rows
from samebits.compare.phases import word_and_prompt
from samebits.compare.signals import TensorSource
from samebits.records.capsule import Contrast, Fed, Feed, Question
from samebits.records.capture import Capture, ForwardFacts
from samebits.records.comparison import CellResult
from samebits.records.ids import Signal, Verdict
from samebits.records.subject import Subject
from samebits.records.tensor import TensorRef

_DIFFERS = {Verdict.UNDECIDED, Verdict.ROUNDING, Verdict.DIVERGED}
_INTEGERS = ("int64", "int32")
_MAX_BYTES = 256 << 10
"""Bytes of one input of the user's that a script carries: a report is committed and read."""
_MAX_LITERALS = 4096
"""Whole numbers of one input of the user's that a script has as numbers."""
_DEFAULT_STEPS = 12
"""Tokens to generate if the failing cell did not record how many."""


class Query(NamedTuple):
    """What two scripts compute, and how their results compare."""

    contrast: Contrast
    question: Question


class CannotReproduce(Exception):  # noqa: N818  "no script can show it" is a result
    """No script can show the defect of the cell; the message gives the reason."""


class ReproductionFailed(CannotReproduce):
    """The scripts ran and saw something else. Another run may succeed."""


def query_for(
    result: CellResult, reference: Capture, candidate: tuple[Capture, ...], values: TensorSource
) -> Query:
    """Return the query that shows how a cell differs, fails or is unstable.

    Raises:
        CannotReproduce: no script can show it.

    """
    device = result.cell.variant.device
    if device != "cpu":
        msg = f"the difference is on {device}, and scripts are checked on the CPU only"
        raise CannotReproduce(msg)
    query = _query(result, reference, candidate, values)
    if reference.threads == 1:
        return query
    question = query.question.model_copy(update={"threads": reference.threads})
    return query._replace(question=question)


def _query(
    result: CellResult, reference: Capture, candidate: tuple[Capture, ...], values: TensorSource
) -> Query:
    if result.judged is Verdict.FAILED:
        return Query("fails", _failure_question(result, reference, values))
    if result.judged is Verdict.UNSTABLE:
        return Query("unstable", _instability_question(candidate, values))
    assert result.judged in _DIFFERS
    return Query("differs", _difference_question(result, reference, candidate[0], values))


def _difference_question(
    result: CellResult, reference: Capture, candidate: Capture, values: TensorSource
) -> Question:
    forwards = reference.signals.forward or {}
    prompts = [s.prompt for s in _differing(result, "logits") if s.prompt in forwards]
    if prompts:
        return _forward_question(_simplest(prompts, forwards), reference, values)
    decoded = _differing(result, "decode")
    fed = [subject for subject in decoded if subject.prompt in forwards]
    if decoded and not fed:
        raise CannotReproduce(f"the reference has no forward of prompt {decoded[0].prompt}")
    if fed:
        subject = min(fed, key=lambda subject: _size(forwards[subject.prompt]))
        facts = (reference.signals.greedy or {})[subject.prompt_row]
        return _generate_question(
            subject.prompt, subject.row or 0, len(facts.ids), reference, values
        )
    return _tensor_question(reference, candidate)


def _differing(result: CellResult, name: Signal) -> list[Subject]:
    """Return the items that differ; only those of the verdict's kind if the ladder found any.

    In a cell that diverged, some prompts may differ only by rounding.
    """
    items = [
        item.subject
        for signal in result.signals
        for item in signal.items
        if signal.signal == name and item.outcome == "differs" and not item.excused
    ]
    steps = result.ladder.steps if result.ladder is not None else ()
    judged_items = {(step.signal, step.subject) for step in steps if step.kind == result.judged}
    if not any(signal in {"logits", "decode"} for signal, _ in judged_items):
        return items
    return [item for item in items if (name, item) in judged_items]


def _failure_question(result: CellResult, reference: Capture, values: TensorSource) -> Question:
    if result.failure is None:
        raise CannotReproduce(f"it failed without an exception: {result.headline}")
    phase, prompt = word_and_prompt(result.failure.phase)
    forwards = reference.signals.forward or {}
    if phase in {"config", "load"}:
        return _load_question(reference, forwards, values)
    if not forwards:
        raise CannotReproduce("the reference has no forward that a script could repeat")
    if phase == "forward" and prompt in forwards:
        return _forward_question(prompt, reference, values)
    if phase == "greedy" and prompt in forwards:
        steps = [len(facts.ids) for facts in (reference.signals.greedy or {}).values()]
        return _generate_question(prompt, 0, max(steps, default=_DEFAULT_STEPS), reference, values)
    if phase in {"forward", "greedy"}:
        raise CannotReproduce(f"the reference has no forward of prompt {prompt}")
    raise CannotReproduce(f"it failed in phase {result.failure.phase}, which a script cannot show")


def _load_question(
    reference: Capture, forwards: dict[str, ForwardFacts], values: TensorSource
) -> Question:
    """Return a forward, which shows best that the reference loads; else a loaded tensor."""
    try:
        if forwards:
            return _forward_question(_simplest(list(forwards), forwards), reference, values)
        raise CannotReproduce("the reference has no forward that a script could repeat")
    except CannotReproduce:
        for name, weight in reference.signals.tensors.items():
            return Question(kind=weight.kind, tensor=name)
        raise


def _instability_question(runs: tuple[Capture, ...], values: TensorSource) -> Question:
    """Return a forward or a tensor whose bytes differ between the two runs."""
    first, second = runs[0], runs[-1]
    first_forwards, second_forwards = first.signals.forward or {}, second.signals.forward or {}
    prompts = [
        p
        for p in first_forwards
        if p in second_forwards
        and _hash(first_forwards[p].logits) != _hash(second_forwards[p].logits)
    ]
    if prompts:
        return _forward_question(_simplest(prompts, first_forwards), first, values)
    return _tensor_question(first, second)


def _tensor_question(reference: Capture, candidate: Capture) -> Question:
    """Return a tensor that both sides hold under the same name with different bytes."""
    reference_signals, candidate_signals = reference.signals, candidate.signals
    reference_weights = reference_signals.tensors
    candidate_weights = candidate_signals.tensors
    for name, weight in reference_weights.items():
        counterpart = candidate_weights.get(name)
        if counterpart is not None and counterpart.ref.hash != weight.ref.hash:
            return Question(kind=weight.kind, tensor=name)
    for name, buffer in (reference_signals.buffers or {}).items():
        counterpart_buffer = (candidate_signals.buffers or {}).get(name)
        if counterpart_buffer is not None and counterpart_buffer.ref.hash != buffer.ref.hash:
            return Question(kind="buffer", tensor=name)
    raise CannotReproduce("no logits and no tensor of the same name on both sides show it")


def _forward_question(prompt: str, capture: Capture, values: TensorSource) -> Question:
    """Return one forward over a prompt, with the inputs of ``capture``."""
    facts = (capture.signals.forward or {})[prompt]
    if facts.logits is None:
        raise CannotReproduce(f"the forward of prompt {prompt} returns no tensor")
    cut = facts.logits_padded and real_rows(facts, facts.logits) is not None
    return Question(
        kind="forward",
        prompt=prompt,
        feed=feed(prompt, facts, values),
        real=facts.real_rows if cut else None,
    )


def _generate_question(
    prompt: str, row: int, steps: int, capture: Capture, values: TensorSource
) -> Question:
    facts = (capture.signals.forward or {})[prompt]
    inputs = feed(prompt, facts, values)
    inputs.pop("decoder_input_ids", None)  # generate() starts the decoder's text itself
    return Question(kind="generate", prompt=prompt, feed=inputs, row=row, steps=steps)


def earlier_feeds(question: Question, capture: Capture, values: TensorSource) -> tuple[Feed, ...]:
    """Return the earlier inputs of the cell.

    For a forward these are the prompts before it, for generate() all prompts.
    """
    forwards = capture.signals.forward or {}
    names = list(forwards)
    if question.kind == "forward":
        names = names[: names.index(question.prompt)]
    return tuple(feed(name, forwards[name], values) for name in names)


def feed(prompt: str, facts: ForwardFacts, values: TensorSource) -> Feed:
    """Return the inputs of a forward; integers as literal numbers, floats by their seed.

    Those of an input set of matrix.yaml are bytes and constants.

    Raises:
        CannotReproduce: the values are not in the store, or too large for a script.

    """
    if facts.constants is not None:
        tensors = {k: _given_tensor(prompt, k, ref, values) for k, ref in facts.inputs.items()}
        return tensors | {k: Fed(constant=repr(value)) for k, value in facts.constants.items()}
    return {key: _fed_tensor(prompt, key, ref, values) for key, ref in facts.inputs.items()}


def _fed_tensor(prompt: str, key: str, ref: TensorRef, values: TensorSource) -> Fed:
    if ref.dtype not in _INTEGERS:
        return Fed(seed=f"{prompt}:{key}", shape=ref.shape)
    if len(ref.shape) != 2:
        shape = ", ".join(map(str, ref.shape))
        raise CannotReproduce(
            f"input {key} of prompt {prompt} has shape [{shape}], and a script has rows of numbers"
        )
    if not values.has(ref):
        raise CannotReproduce(f"the values of input {key} of prompt {prompt} were not stored")
    return Fed(rows=tuple(tuple(map(int, row)) for row in values.tensor(ref)))


def _given_tensor(prompt: str, key: str, ref: TensorRef, values: TensorSource) -> Fed:
    if ref.dtype == "int64" and len(ref.shape) == 2 and 0 < ref.numel <= _MAX_LITERALS:
        return _fed_tensor(prompt, key, ref, values)
    if not values.has(ref):
        raise CannotReproduce(f"the values of input {key} of {prompt} were not stored")
    data = values.tensor(ref).tobytes()
    if not data:
        raise CannotReproduce(f"input {key} of {prompt} has no elements")
    if len(data) > _MAX_BYTES:
        raise CannotReproduce(
            f"input {key} of {prompt} has {len(data) / 1024:,.0f} KiB, and a script has up to "
            f"{_MAX_BYTES >> 10} KiB: give the model a smaller one"
        )
    return Fed(data=base64.b64encode(data).decode(), dtype=ref.dtype, shape=ref.shape)


def _simplest(prompts: list[str], forwards: dict[str, ForwardFacts]) -> str:
    """Return the prompt with the fewest positions, without padding if there is one."""
    return min(prompts, key=lambda prompt: _size(forwards[prompt]))


def _size(facts: ForwardFacts) -> tuple[bool, int]:
    return facts.real_rows is not None, sum(ref.numel for ref in facts.inputs.values())


def _hash(ref: TensorRef | None) -> str | None:
    return ref.hash if ref else None
