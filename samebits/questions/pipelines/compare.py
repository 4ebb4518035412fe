"""Answers of pipelines on two sides: the same, as the model's outputs, rounding, or another answer.

A pipeline is accused by the answers that it makes of given outputs, the same in every release, and only
where the same ones in float64 do not show that they round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from samebits.compare.facts import ABSENT
from samebits.compare.standing import judged
from samebits.questions.pipelines.records import (
    AnswerField,
    FedInput,
    PipelineAnswer,
    PipelineCase,
    PipelineDifference,
    PipelineOutcome,
    PipelinesReport,
    PipelinesSignal,
    PipelineTask,
)

_NEAR_FLOAT32 = 2.0**-21
"""Relative size of a difference that a step in float32 behind the model could leave."""
_ONE_NUMBER = "number"
_IMAGES = ("image", "uint8", "int", "bool")
_CLEARLY = 2.0**-10
"""Relative size of a difference of scores that no rounding of a model in float32 is to reach."""


def report(stack: str, reference: PipelinesSignal, candidate: PipelinesSignal) -> PipelinesReport:
    """Compare what both sides answer; ``stack`` is the reference's."""
    pairs = [
        (name, task, candidate.tasks[name])
        for name, task in reference.tasks.items()
        if name in candidate.tasks
    ]
    cases = [pair for _, first, second in pairs for pair in _cases(first, second).values()]
    return PipelinesReport(
        reference=stack,
        n_compared=sum(_answers(first) and _answers(second) for first, second in cases),
        differences=tuple(d for pair in pairs for d in _task(*pair)),
    )


def _cases(
    first: PipelineTask, second: PipelineTask
) -> dict[str, tuple[PipelineCase, PipelineCase]]:
    return {
        name: (case, second.cases[name])
        for name, case in first.cases.items()
        if name in second.cases
    }


def _answers(case: PipelineCase) -> bool:
    return case.own is not None and not case.own.raised


def _task(
    name: str, reference: PipelineTask, candidate: PipelineTask
) -> Iterator[PipelineDifference]:
    sides = (reference, candidate)
    if any(side.left_out for side in sides) or reference.absent:
        return
    if candidate.absent:
        if any(map(_answers, reference.cases.values())):
            yield _difference(name, "", "removed", "", ("answers", candidate.absent))
    elif reference.raised or candidate.raised:
        yield from _raised(name, "", reference, candidate)
    else:
        for case, pair in _cases(reference, candidate).items():
            if pair[0].own is not None and pair[1].own is not None:
                yield from _case(name, case, *pair, same_dtype=reference.dtype == candidate.dtype)


def _raised(
    task: str,
    case: str,
    first: PipelineTask | PipelineAnswer,
    second: PipelineTask | PipelineAnswer,
) -> Iterator[PipelineDifference]:
    """Yield what only one side raises."""
    if bool(first.raised) != bool(second.raised):
        words = (side.raised or "answers" for side in (first, second))
        yield _difference(task, case, "raised", "", (next(words), next(words))).model_copy(
            update={"at": first.at or second.at, "raises_here": bool(second.raised)}
        )


def _difference(
    task: str, case: str, outcome: PipelineOutcome, field: str, sides: tuple[str, str]
) -> PipelineDifference:
    return PipelineDifference(
        task=task, case=case, outcome=outcome, field=field, reference=sides[0], candidate=sides[1]
    )


def _case(
    task: str, name: str, reference: PipelineCase, candidate: PipelineCase, *, same_dtype: bool
) -> Iterator[PipelineDifference]:
    """Yield at most one difference: the one that comes first on the way from the input to the answer."""
    assert reference.own is not None
    assert candidate.own is not None
    if reference.own.raised or candidate.own.raised:
        yield from _raised(task, name, reference.own, candidate.own)
        return
    own = [*_others(reference.own, candidate.own)]
    behind = _behind(reference, candidate)
    fed = _other_input(reference.fed or {}, candidate.fed or {})
    is_clear = same_dtype and any(other.is_exact or other.is_clear for other in own)
    if fed is not None and (is_clear or behind is not None):
        yield _difference(task, name, "other input", *fed)
    elif behind is not None:
        yield _difference(task, name, behind[0], behind[1].place, behind[1].sides)
    elif own:
        # what differs in bits, and not with given outputs, comes from the model or from its inputs
        yield _difference(task, name, "follows", own[0].place, own[0].sides)


class _Other(NamedTuple):
    """A field of an answer that differs."""

    place: str
    pair: tuple[AnswerField | None, AnswerField | None]

    @property
    def is_exact(self) -> bool:
        """True if more than numbers differ."""
        first, second = self.pair
        return (
            first is None
            or second is None
            or first.exact != second.exact
            or len(first.numbers) != len(second.numbers)
        )

    @property
    def is_cut(self) -> bool:
        """True if it may be a number that was made a whole one, or an image."""
        return all(
            side is not None
            and (side.exact.startswith(_IMAGES) or side.exact.lstrip("-").isdigit())
            for side in self.pair
        )

    @property
    def size(self) -> float:
        """The largest distance of two numbers."""
        first, second = self.pair
        if first is None or second is None:
            return 0.0
        return max(
            (abs(a - b) for a, b in zip(first.values, second.values, strict=False)), default=0.0
        )

    @property
    def scale(self) -> float:
        """The largest number of either side."""
        return max((abs(v) for side in self.pair if side for v in side.values), default=0.0)

    @property
    def is_clear(self) -> bool:
        """True if numbers differ by more than a model rounds."""
        return self.size > self.scale * _CLEARLY

    @property
    def sides(self) -> tuple[str, str]:
        """What both sides have, as short texts."""
        first, second = map(_shown, self.pair)
        return first, second


def _shown(field: AnswerField | None) -> str:
    if field is None:
        return ABSENT
    numbers = ", ".join(f"{value:.9g}" for value in field.values)
    if not numbers:
        return field.exact
    return numbers if field.exact == _ONE_NUMBER else f"{field.exact} {numbers}"


def _others(reference: PipelineAnswer, candidate: PipelineAnswer) -> Iterator[_Other]:
    """Yield the fields that differ, texts and labels first, as scores of other labels say nothing."""
    places = dict.fromkeys([*reference.fields, *candidate.fields])
    others = (_Other(p, (reference.fields.get(p), candidate.fields.get(p))) for p in places)
    yield from sorted(
        (other for other in others if other.pair[0] != other.pair[1]),
        key=lambda other: not other.is_exact,
    )


def _behind(
    reference: PipelineCase, candidate: PipelineCase
) -> tuple[PipelineOutcome, _Other] | None:
    """Return how answers to the same outputs of the model differ; None if they do not."""
    given = _pair(reference.given, candidate.given)
    if given is None:
        return None
    others = [*_others(*given)]
    if not others:
        return None
    exact = _pair(reference.exact, candidate.exact)
    if exact is None:
        return "undecided", others[0]
    in_float64 = {other.place: other for other in _others(*exact)}
    is_float64 = all(map(_is_float64, exact))
    outcomes = (
        (_outcome(other, in_float64.get(other.place), is_float64=is_float64), other)
        for other in others
    )
    return min(outcomes, key=lambda pair: _ORDER.index(pair[0]))


def _is_float64(answer: PipelineAnswer) -> bool:
    """Return True unless all numbers of an answer were made in a smaller float."""
    fields = [field for field in answer.fields.values() if field.numbers]
    return not fields or any(
        field.exact.startswith("float64") or any(v != float(np.float32(v)) for v in field.values)
        for field in fields
    )


_ORDER: tuple[PipelineOutcome, ...] = ("other answer", "undecided", "rounding")


def _pair(
    first: PipelineAnswer | None, second: PipelineAnswer | None
) -> tuple[PipelineAnswer, PipelineAnswer] | None:
    """Return two answers; None if a side has none."""
    if first is None or second is None:
        return None
    no_answer = any(side.raised or side.left_out for side in (first, second))
    return None if no_answer else (first, second)


def _outcome(other: _Other, exact: _Other | None, *, is_float64: bool) -> PipelineOutcome:
    """Return the outcome of a field that differs; ``exact``: as it differs in float64."""
    if exact is None:
        return "rounding"
    if other.is_exact:
        # a pixel or a corner is a number that was cut
        is_sure = exact.is_exact and (is_float64 or not other.is_cut)
        return "other answer" if is_sure else "undecided"
    if exact.is_exact:
        return "undecided"
    judgement = judged(other.size, exact.size)
    is_small = exact.size <= exact.scale * _NEAR_FLOAT32
    if judgement == "diverged":
        return "undecided" if is_small else "other answer"
    return judgement


def pads_behind(case: PipelineCase) -> bool:
    """Return True if a batch is padded on the right, and its prompts go on otherwise than one by one.

    On which side is the pipeline's choice, and generate() goes on behind the padding. What a model makes of
    padding on the left is no fault of a pipeline.
    """
    alone = case.one_by_one
    if alone is None or alone.padding != "right":
        return False
    if alone.distance is None or alone.in_float64 is None:
        return False
    return judged(alone.distance, alone.in_float64) == "diverged"


def _other_input(
    reference: Mapping[str, FedInput], candidate: Mapping[str, FedInput]
) -> tuple[str, tuple[str, str]] | None:
    """Return the first input of both sides with other ids or another shape.

    Values of images and sounds round, and processors are a question of their own.
    """
    for name in filter(candidate.__contains__, reference):
        first, second = reference[name], candidate[name]
        is_number = first.dtype.startswith(("float", "bfloat"))
        if first.shape != second.shape or (not is_number and first.hash != second.hash):
            return name, (_form(first), _form(second))
    return None


def _form(fed: FedInput) -> str:
    return f"{fed.dtype} {' x '.join(map(str, fed.shape))}, {fed.hash[:8]}"
