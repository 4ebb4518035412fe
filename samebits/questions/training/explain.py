"""What explains a training step that diverges: traces of both sides, and pieces of the reference's loss."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from samebits.questions.training import origin
from samebits.questions.training.graft import graft
from samebits.questions.training.records import DONOR, PATIENT, TRACE
from samebits.questions.training.tasks import GraftTask, TraceTask
from samebits.records.capture import Failure
from samebits_wire.folders import without_folders

if TYPE_CHECKING:
    from samebits.jobs.common import ReadyPair
    from samebits.jobs.lab import Lab
    from samebits.questions.training.step_graft import StepGraft
    from samebits.questions.training.step_question import StepQuestion
    from samebits.questions.training.step_trace import Rung, StepOrigin


async def step_origin(lab: Lab, pair: ReadyPair, question: StepQuestion) -> StepOrigin | str:
    """Return the first operation of a step that differs, or why no trace shows it.

    Rounding is left out by float64. The own bits are asked only where nothing is rounding.
    """
    try:
        first = await _origin_at(lab, pair, question, "float64")
        if not isinstance(first, str) or not question.no_rounding:
            return first
        return await _origin_at(lab, pair, question, "own")
    except Exception as error:  # noqa: BLE001  a failed explanation must not change a finding
        message = without_folders(f"{type(error).__name__}: {error}")
        return f"the traces could not be joined: {message}"


async def _origin_at(
    lab: Lab, pair: ReadyPair, question: StepQuestion, rung: Rung
) -> StepOrigin | str:
    task = TraceTask(
        batch=question.batch,
        backward=question.backward,
        rung=rung,
        large=pair.candidate.model.large,
    )
    reference, candidate = await asyncio.gather(*(lab.ask(TRACE, task, side) for side in pair))
    if isinstance(reference, Failure) or isinstance(candidate, Failure):
        return "a trace was not written"
    return await asyncio.to_thread(origin.origin, reference, candidate, question)


async def step_graft(lab: Lab, pair: ReadyPair, question: StepQuestion) -> StepGraft | str:
    """Return which pieces of the reference's loss restore its step, or why none was tried."""
    rung: Rung = "own" if question.no_rounding else "float64"
    task = GraftTask(
        role="donor",
        batch=question.batch,
        rung=rung,
        large=pair.candidate.model.large,
        skipped=tuple(sorted(question.skipped)),
        without=tuple(sorted(question.without)),
    )
    try:
        path = lab.path(DONOR, task, pair.reference)
        donor = await lab.ask(DONOR, task, pair.reference)
        if isinstance(donor, Failure):
            return f"{pair.reference.cell} stored no pieces: no result was written"
        if donor.failure is not None:
            return f"{pair.reference.cell} stored no pieces: {donor.failure.in_short}"
        tries = task.model_copy(update={"role": "graft", "donor": str(path)})
        patient = await lab.ask(PATIENT, tries, pair.candidate)
        if isinstance(patient, Failure):
            return f"{pair.candidate.cell} tried no pieces: no result was written"
        return graft(donor, patient, question.batch, rung)
    except Exception as error:  # noqa: BLE001  a failed explanation must not change a finding
        return f"no piece was tried: {without_folders(f'{type(error).__name__}: {error}')}"
