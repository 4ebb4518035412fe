"""Runner of grafts in a training step: the reference stores pieces of its loss, the candidate tries them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from samebits.base.redaction import without_folders
from samebits.grafts.step import graft
from samebits.jobs.cache import CachedJob, ResultForm, is_repeatable
from samebits.jobs.common import follows_from, job_of
from samebits.jobs.records import LimitedStore, StepGraftJob, StepGraftTask
from samebits.records.step_graft import StepDonor, StepGraftFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from samebits.jobs.cache import JobCache
    from samebits.jobs.trace import TracedCell, TracedModel
    from samebits.records.record import R
    from samebits.records.step_graft import StepGraft
    from samebits.records.step_trace import Rung
    from samebits.records.tensor import TensorRef
    from samebits.training.question import StepQuestion

VALUES_LIMIT = 64 << 20
"""Bytes up to which the gradient at the logits is stored."""


class StepGrafter:
    """Runs donors and patients of training steps; candidates with the same question share a donor."""

    def __init__(self, cache: JobCache) -> None:
        self._cache = cache
        self._donors: dict[Path, asyncio.Task[StepDonor | None]] = {}

    async def graft(
        self,
        subject: TracedModel,
        reference: TracedCell,
        candidate: TracedCell,
        question: StepQuestion,
    ) -> StepGraft | str:
        """Return which pieces of the reference's loss restore its step, or why none was tried."""
        rung: Rung = "own" if question.no_rounding else "float64"
        task = StepGraftTask(
            role="donor",
            batch=question.batch,
            rung=rung,
            large=subject.model.large,
            skipped=tuple(sorted(question.skipped)),
            without=tuple(sorted(question.without)),
            donor="",
            result="",
        )
        try:
            path = self._path(subject, reference, task)
            donor = await self._donor(subject, reference, task, path)
            if donor is None or donor.failure is not None:
                reason = "" if donor is None or donor.failure is None else donor.failure.in_short
                return f"{reference.cell} stored no pieces: {reason or 'no result was written'}"
            patient_task = task.model_copy(update={"role": "graft", "donor": str(path)})
            patient = await self._result(
                subject,
                candidate,
                patient_task,
                # the folder of the donor's file is no part of what is asked
                self._path(
                    subject, candidate, patient_task.model_copy(update={"donor": path.stem})
                ),
                _PATIENT_FORM,
            )
            if patient is None:
                return f"{candidate.cell} tried no pieces: no result was written"
            return graft(donor, patient, question.batch, rung)
        except Exception as error:  # noqa: BLE001  a failed explanation must not change a finding
            return f"no piece was tried: {without_folders(f'{type(error).__name__}: {error}')}"

    async def _donor(
        self, subject: TracedModel, traced: TracedCell, task: StepGraftTask, path: Path
    ) -> StepDonor | None:
        if path not in self._donors:
            result = self._result(subject, traced, task, path, _DONOR_FORM)
            self._donors[path] = asyncio.create_task(result)
        return await asyncio.shield(self._donors[path])

    async def _result(
        self,
        subject: TracedModel,
        traced: TracedCell,
        task: StepGraftTask,
        path: Path,
        form: ResultForm[R],
    ) -> R | None:
        job = CachedJob(
            path,
            form,
            subject.checkpoint,
            lambda written: self._job(subject, traced, task, written),
            unrepeatable=f"{traced.cell} wrote no result of a swap, or failed for a reason that may be the machine",
            cell=traced.cell,
        )
        return await self._cache.result(job, traced.process)

    def _path(self, subject: TracedModel, traced: TracedCell, task: StepGraftTask) -> Path:
        cell = traced.cell
        facts = {
            **follows_from(cell, subject.model, subject.checkpoint, traced.stack),
            "asked": task.model_dump(mode="json"),
        }
        return self._cache.path_of_cell("step-grafts", cell, facts)

    def _job(
        self, subject: TracedModel, traced: TracedCell, task: StepGraftTask, written: Path
    ) -> StepGraftJob:
        return StepGraftJob(
            **job_of(traced.cell, subject.model, subject.checkpoint, written),
            store=LimitedStore(root=str(self._cache.root), limit=VALUES_LIMIT),
            graft=task.model_copy(update={"result": str(written)}),
        )


def _tensors(donor: StepDonor) -> Iterator[TensorRef]:
    if donor.slope is not None:
        yield donor.slope


_DONOR_FORM = ResultForm(StepDonor, is_repeatable, _tensors)
_PATIENT_FORM = ResultForm(StepGraftFile, is_repeatable, lambda _: iter(()))
