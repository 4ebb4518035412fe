"""What is the plainest thing that two scripts can compute to show how a cell stands out?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from samebits.compare.forwards import real_rows
from samebits.records.capsule import Contrast, Fed, Feed, Question
from samebits.records.ids import Verdict

if TYPE_CHECKING:
    from samebits.compare.signals import TensorSource
    from samebits.records.capture import Capture, ForwardFacts
    from samebits.records.comparison import CellResult
    from samebits.records.ids import Signal
    from samebits.records.tensor import TensorRef

_DIFFERS = {Verdict.DIFFERS, Verdict.ROUNDING, Verdict.DIVERGED}
_FED_BY_NUMBERS = ("int64", "int32")
_STEPS = 12
"""Tokens that are generated where the failing cell does not say how many."""


class Asked(NamedTuple):
    """A question and how its two answers stand to each other."""

    contrast: Contrast
    question: Question


class Unasked(Exception):  # noqa: N818  "no script can show it" is a result
    """No script can show how the cell stands out; the message says why."""


class Unproved(Unasked):
    """Its scripts ran and saw something else, which another time they may not."""


def asked(
    result: CellResult, reference: Capture, candidate: tuple[Capture, ...], values: TensorSource
) -> Asked:
    """Return what shows a cell that differs, fails or is unstable, beside its reference.

    Raises:
        Unasked: no script can.

    """
    device = result.cell.variant.device
    if device != "cpu":
        msg = f"its bits are those of a device ({device}), and scripts are checked on the cpu"
        raise Unasked(msg)
    if result.judged is Verdict.FAILED:
        return Asked("fails", _of_failure(result, reference, values))
    if result.judged is Verdict.UNSTABLE:
        return Asked("unstable", _of_unstable(candidate, values))
    assert result.judged in _DIFFERS
    return Asked("differs", _of_difference(result, reference, candidate[0], values))


def _of_difference(
    result: CellResult, reference: Capture, candidate: Capture, values: TensorSource
) -> Question:
    forwards = reference.signals.forward or {}
    prompts = [n for n in _differing(result, "logits") if n in forwards]
    if prompts:
        return forward(_plainest(prompts, forwards), reference, values)
    decoded = [(name, _row(name, forwards)) for name in _differing(result, "decode")]
    if decoded:
        name, (prompt, row) = min(decoded, key=lambda of: _size(forwards[of[1][0]]))
        facts = (reference.signals.greedy or {})[name]
        return _generate(prompt, row, len(facts.ids), reference, values)
    return _stored(reference, candidate)


def _differing(result: CellResult, name: Signal) -> list[str]:
    """Return the items that differ, only those of the verdict's kind if the ladder knows any.

    Of a cell that diverged one prompt may differ by rounding alone.
    """
    found = [
        item.name
        for signal in result.signals
        for item in signal.items
        if signal.signal == name and item.outcome == "differs" and not item.excused
    ]
    steps = result.ladder.steps if result.ladder is not None else ()
    weighty = {(step.what, step.prompt) for step in steps if step.kind == result.judged}
    if not any(what in {"logits", "decode"} for what, _ in weighty):
        return found
    return [item for item in found if (name, item) in weighty]


def _of_failure(result: CellResult, reference: Capture, values: TensorSource) -> Question:
    if result.failure is None:
        msg = f"no exception made it fail: {result.headline}"
        raise Unasked(msg)
    phase, _, prompt = result.failure.phase.partition(" ")
    forwards = reference.signals.forward or {}
    if phase in {"config", "load"}:
        return _of_load(reference, forwards, values)
    if not forwards:
        msg = "the reference ran no forward that the scripts could repeat"
        raise Unasked(msg)
    if phase == "forward" and prompt in forwards:
        return forward(prompt, reference, values)
    if phase == "greedy" and prompt in forwards:
        steps = [len(facts.ids) for facts in (reference.signals.greedy or {}).values()]
        return _generate(prompt, 0, max(steps, default=_STEPS), reference, values)
    if phase in {"forward", "greedy"}:
        msg = f"the reference ran no forward over prompt {prompt}"
        raise Unasked(msg)
    msg = f"it failed in phase {result.failure.phase}, which a script of its own cannot show"
    raise Unasked(msg)


def _of_load(
    reference: Capture, forwards: dict[str, ForwardFacts], values: TensorSource
) -> Question:
    """Return a forward, which shows best that the reference loads; else a tensor that it loaded."""
    try:
        if forwards:
            return forward(_plainest(list(forwards), forwards), reference, values)
        msg = "the reference ran no forward that the scripts could repeat"
        raise Unasked(msg)
    except Unasked:
        weights = reference.signals.weights
        for name, weight in (weights.tensors if weights is not None else {}).items():
            return Question(kind=weight.kind, tensor=name)
        raise


def _of_unstable(runs: tuple[Capture, ...], values: TensorSource) -> Question:
    """Return a forward whose logits, or a tensor whose bytes, the two runs do not agree on."""
    one, other = runs[0], runs[-1]
    mine, theirs = one.signals.forward or {}, other.signals.forward or {}
    prompts = [p for p in mine if p in theirs and _hash(mine[p].logits) != _hash(theirs[p].logits)]
    if prompts:
        return forward(_plainest(prompts, mine), one, values)
    return _stored(one, other)


def _stored(reference: Capture, candidate: Capture) -> Question:
    """Return a tensor that both sides hold under one name after the load, in other bytes."""
    mine, theirs = reference.signals, candidate.signals
    for name, weight in (mine.weights.tensors if mine.weights else {}).items():
        other = theirs.weights.tensors.get(name) if theirs.weights else None
        if other is not None and other.ref.hash != weight.ref.hash:
            return Question(kind=weight.kind, tensor=name)
    for name, buffer in (mine.buffers or {}).items():
        found = (theirs.buffers or {}).get(name)
        if found is not None and found.ref.hash != buffer.ref.hash:
            return Question(kind="buffer", tensor=name)
    msg = "neither logits nor a tensor that both sides have by one name show it"
    raise Unasked(msg)


def forward(prompt: str, capture: Capture, values: TensorSource) -> Question:
    """Return one forward over a prompt, fed what ``capture`` was fed."""
    facts = (capture.signals.forward or {})[prompt]
    if facts.logits is None:
        msg = f"the forward over prompt {prompt} gives no tensor"
        raise Unasked(msg)
    cut = facts.logits_padded and real_rows(facts, facts.logits) is not None
    return Question(
        kind="forward",
        prompt=prompt,
        feed=feed(prompt, facts, values),
        real=facts.real_rows if cut else None,
    )


def _generate(
    prompt: str, row: int, steps: int, capture: Capture, values: TensorSource
) -> Question:
    facts = (capture.signals.forward or {})[prompt]
    fed = feed(prompt, facts, values)
    fed.pop("decoder_input_ids", None)  # generate() begins the decoder's text by itself
    return Question(kind="generate", prompt=prompt, feed=fed, row=row, steps=steps)


def earlier(question: Question, capture: Capture, values: TensorSource) -> tuple[Feed, ...]:
    """Return what the cell was fed before: all prompts, for tokens, those before it, for a forward."""
    forwards = capture.signals.forward or {}
    names = list(forwards)
    if question.kind == "forward":
        names = names[: names.index(question.prompt)]
    return tuple(feed(name, forwards[name], values) for name in names)


def feed(prompt: str, facts: ForwardFacts, values: TensorSource) -> Feed:
    """Return what was fed, as literal numbers where they are integers.

    Raises:
        Unasked: the numbers were not kept.

    """
    return {key: _fed(prompt, key, ref, values) for key, ref in facts.inputs.items()}


def _fed(prompt: str, key: str, ref: TensorRef, values: TensorSource) -> Fed:
    if ref.dtype not in _FED_BY_NUMBERS:
        return Fed(seed=f"{prompt}:{key}", shape=ref.shape)
    if len(ref.shape) != 2:
        shape = ", ".join(map(str, ref.shape))
        msg = f"prompt {prompt} was fed {key} of shape [{shape}], and a script has rows of numbers"
        raise Unasked(msg)
    if not values.has(ref):
        msg = f"what prompt {prompt} was fed as {key} was not kept"
        raise Unasked(msg)
    return Fed(rows=tuple(tuple(map(int, row)) for row in values.tensor(ref)))


def _plainest(prompts: list[str], forwards: dict[str, ForwardFacts]) -> str:
    """Return the prompt with the fewest positions, one without padding if there is any."""
    return min(prompts, key=lambda prompt: _size(forwards[prompt]))


def _size(facts: ForwardFacts) -> tuple[bool, int]:
    return facts.real_rows is not None, sum(ref.numel for ref in facts.inputs.values())


def _row(name: str, forwards: dict[str, ForwardFacts]) -> tuple[str, int]:
    """Return the prompt and the row that ``padded[1]`` speaks of."""
    found = re.fullmatch(r"(.*)\[(\d+)\]", name)
    if name in forwards or found is None:
        return name, 0
    return found[1], int(found[2])


def _hash(ref: TensorRef | None) -> str | None:
    return ref.hash if ref else None
