"""Runner of graft jobs, which put pieces of the reference into the candidate.

The donor job stores pieces of the reference; the patient job tries sets of them in the candidate.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from samebits.grafts import judge
from samebits.jobs.cache import CachedJob, ResultForm, is_repeatable
from samebits.jobs.common import follows_from, job_of
from samebits.jobs.records import (
    DonorQuestion,
    DonorTask,
    GraftJob,
    LimitedStore,
    PatientSearch,
    PatientTask,
)
from samebits.records.graft import DonorFile, GraftFile
from samebits.records.tensor import TensorRef

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from samebits.grafts.questions import GraftQuestion, GraftQuestions
    from samebits.jobs.cache import JobCache
    from samebits.jobs.trace import TracedCell, TracedModel
    from samebits.records.graft import Graft
    from samebits.records.record import R

VALUES_LIMIT = 64 << 20
"""Bytes up to which a tensor of the donor is stored."""
BUDGET = 48
"""Maximum number of sets to run for the first prompt of a cell."""
BUDGET_ELSEWHERE = 24
"""The same for a later prompt, if the set that restored the first one does not restore it."""
SECONDS = 120.0
"""Seconds after which no further set is started."""
MAX_QUESTIONS = 6
"""Maximum number of prompts and decodes of one cell to run."""
NOTHING_RESTORES = "other prompts were not tried, because nothing restores the bits here"
NO_RESULT = "a process wrote no result"


class Grafter:
    """Runs donors and patients; cells with the same question share a donor."""

    def __init__(self, cache: JobCache) -> None:
        self._cache = cache
        self._running: dict[Path, asyncio.Task[DonorFile | None]] = {}

    async def graft(
        self,
        subject: TracedModel,
        reference: TracedCell,
        candidate: TracedCell,
        request: GraftQuestions,
    ) -> Graft | str:
        """Return which pieces of the reference restore the candidate, or why none was tried."""
        grafts: list[Graft] = []
        reasons: dict[str, None] = {}
        for question in request.questions[:MAX_QUESTIONS]:
            if grafts and not grafts[0].smallest:
                reasons[NOTHING_RESTORES] = None
                break
            hint = grafts[0].smallest if grafts else ()
            graft = await self._graft_for(subject, reference, candidate, question, hint)
            if isinstance(graft, str):
                reasons[graft] = None
            else:
                grafts.append(graft)
        if not grafts:
            return "; ".join(reasons)
        if len(request.questions) > MAX_QUESTIONS:
            reasons[f"{len(request.questions) - MAX_QUESTIONS:,} more prompts were not tried"] = (
                None
            )
        return grafts[0].model_copy(update={"more": tuple(grafts[1:]), "unasked": tuple(reasons)})

    async def _graft_for(
        self,
        subject: TracedModel,
        reference: TracedCell,
        candidate: TracedCell,
        question: GraftQuestion,
        hint: tuple[str, ...],
    ) -> Graft | str:
        path = self._path(subject, reference, _donor_question(question).model_dump(mode="json"))
        donor = await self._donor(subject, reference, question, path)
        if donor is None or (reason := _unusable_reason(donor)):
            return NO_RESULT if donor is None else reason
        patient = await self._patient(subject, candidate, question, hint, path)
        if patient is None or (reason := _unusable_reason(patient)):
            return NO_RESULT if patient is None else reason
        return judge.graft(donor, patient)

    async def _donor(
        self, subject: TracedModel, traced: TracedCell, question: GraftQuestion, path: Path
    ) -> DonorFile | None:
        if path not in self._running:
            task = partial(_donor_task, _donor_question(question))
            result = self._result(subject, traced, task, path, _DONOR_FORM)
            self._running[path] = asyncio.create_task(result)
        return await asyncio.shield(self._running[path])

    async def _patient(
        self,
        subject: TracedModel,
        traced: TracedCell,
        question: GraftQuestion,
        hint: tuple[str, ...],
        donor: Path,
    ) -> GraftFile | None:
        search = PatientSearch(
            **question.model_dump(exclude={"donor_expected"}),
            donor=str(donor),
            hint=hint,
            budget=BUDGET_ELSEWHERE if hint else BUDGET,
            seconds=SECONDS,
        )
        path = self._path(subject, traced, search.model_dump(mode="json") | {"donor": donor.stem})
        task = partial(_patient_task, search)
        return await self._result(subject, traced, task, path, _PATIENT_FORM)

    async def _result(
        self,
        subject: TracedModel,
        traced: TracedCell,
        task: Callable[[Path], DonorTask | PatientTask],
        path: Path,
        form: ResultForm[R],
    ) -> R | None:
        job = CachedJob(
            path,
            form,
            subject.checkpoint,
            lambda written: self._job(subject, traced, task(written), written),
            unrepeatable=f"{traced.cell} wrote no result of a swap, or failed for a reason that may be the machine",
            cell=traced.cell,
        )
        return await self._cache.result(job, traced.process)

    def _path(self, subject: TracedModel, traced: TracedCell, fields: dict[str, Any]) -> Path:
        cell = traced.cell
        facts = {
            **follows_from(cell, subject.model, subject.checkpoint, traced.stack),
            "asked": fields,
        }
        return self._cache.path_of_cell("grafts", cell, facts)

    def _job(
        self, subject: TracedModel, traced: TracedCell, task: DonorTask | PatientTask, path: Path
    ) -> GraftJob:
        return GraftJob(
            **job_of(traced.cell, subject.model, subject.checkpoint, path),
            store=LimitedStore(root=str(self._cache.root), limit=VALUES_LIMIT),
            graft=task,
        )


def _donor_question(question: GraftQuestion) -> DonorQuestion:
    return DonorQuestion(
        prompt=question.prompt,
        what=question.what,
        forced=question.forced,
        expected=question.donor_expected,
        weights=tuple(reference_name for reference_name, _ in question.weights),
    )


def _donor_task(question: DonorQuestion, path: Path) -> DonorTask:
    return DonorTask(**question.model_dump(), result=str(path))


def _patient_task(search: PatientSearch, path: Path) -> PatientTask:
    return PatientTask(**search.model_dump(), result=str(path))


def _tensors(result: DonorFile | GraftFile) -> Iterator[TensorRef]:
    return _stored_tensors(result.model_dump())


def _stored_tensors(data: Any) -> Iterator[TensorRef]:  # noqa: ANN401  any JSON
    """Yield every stored tensor in a result, at any depth."""
    if isinstance(data, dict):
        if data.get("stored") is True and {"hash", "dtype", "shape"} <= data.keys():
            yield TensorRef.model_validate(
                {n: data[n] for n in TensorRef.model_fields if n in data}
            )
        data = data.values()
    elif not isinstance(data, (list, tuple)):
        return
    for value in data:
        yield from _stored_tensors(value)


_DONOR_FORM = ResultForm(DonorFile, is_repeatable, _tensors)
_PATIENT_FORM = ResultForm(GraftFile, is_repeatable, _tensors)


def _unusable_reason(result: DonorFile | GraftFile) -> str:
    """Return why a result cannot be used; '' if it can."""
    if result.failure is not None:
        first_line = result.failure.message.partition("\n")[0]
        return f"{result.cell}: {result.failure.type}: {first_line}"
    return f"{result.cell}: {result.mismatch}" if result.mismatch else ""
