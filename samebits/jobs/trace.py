"""What locates where the operations of a pair of cells start to differ: traces of both, joined."""

from __future__ import annotations

import asyncio
from typing import Literal, NamedTuple

from samebits.jobs.common import ReadyPair
from samebits.jobs.lab import Lab
from samebits.jobs.records import Tracing
from samebits.records.capture import Failure
from samebits.records.kinds import TRACE
from samebits.records.trace import Cause, Trace
from samebits.trace import blame
from samebits.trace.question import TracePhase, TraceRequest
from samebits.trace.replay import closer
from samebits_wire.folders import without_folders

Rung = Literal["own", "float64"]


class LocatedCause(NamedTuple):
    """The cause that the traces for one question show."""

    cause: Cause
    question: TracePhase
    place: int
    """Index of the first differing output among the outputs of the prompt."""


async def cause(lab: Lab, pair: ReadyPair, request: TraceRequest) -> Cause | str:
    """Return where the candidate starts to differ, or why no trace shows it."""
    try:
        first = await _first_located(lab, pair, request, "own")
        if isinstance(first, str):
            return first
        if not request.beyond_rounding:
            return first.cause
        return with_beyond(first, await _first_located(lab, pair, request, "float64"))
    except Exception as error:  # noqa: BLE001  a failed explanation must not change a verdict
        message = without_folders(f"{type(error).__name__}: {error}")
        return f"the traces could not be joined: {message}"


async def _first_located(
    lab: Lab, pair: ReadyPair, request: TraceRequest, rung: Rung
) -> LocatedCause | str:
    """Return the cause of the first question that shows one; those in float64 go to their end."""
    reasons: dict[str, None] = {}
    for question in request.questions:
        asked = question if rung == "own" else question.to_its_end()
        located = await _locate(lab, pair, asked, rung, request.same_weights)
        if rung == "float64" and _forgets_a_scale(located):
            scaled = await _locate(lab, pair, asked, rung, request.same_weights, scaled=True)
            located = located if isinstance(scaled, str) else scaled
        if not isinstance(located, str):
            return located
        reasons[located] = None
    return "; ".join(reasons)


def _forgets_a_scale(located: LocatedCause | str) -> bool:
    """Return True if traces in float64 show no difference, or the same operation on the same numbers.

    Then one side scales by a power of two, as with ``logit_scale``. Contents without their power of two come first, as
    releases scale queries, keys or scores, which is the same function.
    """
    return located == NOTHING or (
        isinstance(located, LocatedCause) and located.cause.kind == "memory"
    )


async def _locate(
    lab: Lab,
    pair: ReadyPair,
    question: TracePhase,
    rung: Rung,
    same_weights: frozenset[str],
    *,
    scaled: bool = False,
) -> LocatedCause | str:
    tracing = Tracing(
        prompt=question.prompt,
        what=question.what,
        forced=question.forced,
        steps=question.steps,
        new_tokens=pair.candidate.model.greedy,
        look=(),
        rung=rung,
        scaled=scaled,
    )
    reference, candidate = await asyncio.gather(*(lab.ask(TRACE, tracing, side) for side in pair))
    if isinstance(reference, Failure) or isinstance(candidate, Failure):
        return "a trace was not written"
    if reason := _unusable_reason(reference) or _unusable_reason(candidate):
        return reason
    blamed = await asyncio.to_thread(blame.blame, reference, candidate, same_weights)
    if blamed is None:
        return NOTHING
    cause = blame.cause(blamed)
    if cause is None:
        return f"no independent point of divergence was found before {blamed.joined.sink}"
    looks = await asyncio.gather(
        *(
            lab.ask(TRACE, tracing.model_copy(update={"look": tuple(wanted)}), side)
            for side, wanted in zip(pair, blamed.looks, strict=True)
        )
    )
    views = [None if isinstance(look, Failure) else look for look in looks]
    cause = closer(cause, blamed, views[0], views[1], lab.cache.store)
    changed = [
        str(trace.cell) for trace in (reference, candidate) if trace.effect == "changed the bits"
    ]
    if changed:
        note = f"tracing itself changed the logits of {' and '.join(changed)}"
        cause = cause.model_copy(update={"evidence": (*cause.evidence, note)})
    return LocatedCause(cause, question, blamed.joined.place)


NOTHING = "the traces of both are the same"


def _unusable_reason(trace: Trace) -> str:
    """Return why a trace cannot be joined; '' if it can."""
    if trace.failure is None:
        return ""
    reason = f"{trace.failure.type}: {trace.failure.first_line}"
    return f"{trace.cell} could not be traced: {reason}"


def with_beyond(first: LocatedCause, beyond: LocatedCause | str) -> Cause:
    """Return the first cause with the result of the traces in promoted float64."""
    cause = first.cause
    if isinstance(beyond, str):
        note = "no trace shows a difference" if beyond == NOTHING else beyond
        return cause.model_copy(update={"float64": f"in promoted float64, {note}"})
    second = beyond.cause
    same_question = first.question.to_its_end() == beyond.question
    if same_question and beyond.place < first.place:
        # a value stored rounded on one side and computed on the other is exact on one side only
        note = (
            f"promoted float64 cannot tell whether it is rounding: there the two sides already "
            f"differ at {second.sink}, where their own bits are the same"
        )
        return cause.model_copy(update={"float64": note})
    if _place(cause) != _place(second):
        note = (
            "the first difference is rounding; the part that promoted float64 does not remove "
            "starts elsewhere"
        )
        return cause.model_copy(update={"float64": note, "beyond": second})
    if (cause.kind, cause.prompt, cause.what) != (
        second.kind,
        second.prompt,
        second.what,
    ):
        note = (
            f"the part that promoted float64 does not remove starts at the same place, on the "
            f"path to {second.sink} in prompt {second.prompt}"
        )
        return cause.model_copy(update={"float64": note, "beyond": second})
    note = "in promoted float64 the sides differ at the same place: it is not rounding"
    return cause.model_copy(update={"float64": note})


def _place(cause: Cause) -> tuple[str, str, str]:
    return cause.candidate.tensor, cause.candidate.function, cause.candidate.source
