"""Runner of graft jobs, which put pieces of the reference into the candidate.

The donor job stores pieces of the reference; the patient job tries sets of them in the candidate.
Results are cached like captures.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

from samebits.base.digests import digest_of
from samebits.base.filestate import Ledger
from samebits.grafts import judge
from samebits.jobs.common import common_job, follows_from
from samebits.records.graft import DonorFile, GraftFile
from samebits.records.record import read_record
from samebits.records.tensor import TensorRef
from samebits.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from samebits.grafts.questions import GraftQuestion, GraftQuestions
    from samebits.jobs.trace import TracedCell, TracedModel
    from samebits.records.graft import Graft

ResultFile = TypeVar("ResultFile", DonorFile, GraftFile)

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

    def __init__(
        self,
        root: Path,
        probes: str,
        machine: str,
        *,
        fresh: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        self._ledger = ledger or Ledger()
        self._root = root
        self._store = Store(root)
        self._probes = probes
        self._machine = machine
        self._fresh = fresh
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
        path = self._path(subject, reference, self._donor_fields(question))
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
            job = self._result(subject, traced, self._donor_fields(question), path, DonorFile)
            self._running[path] = asyncio.create_task(job)
        return await asyncio.shield(self._running[path])

    async def _patient(
        self,
        subject: TracedModel,
        traced: TracedCell,
        question: GraftQuestion,
        hint: tuple[str, ...],
        donor: Path,
    ) -> GraftFile | None:
        fields = question.model_dump(mode="json", exclude={"donor_expected"})
        fields |= {"role": "patient", "donor": str(donor), "hint": list(hint)}
        fields |= {"budget": BUDGET_ELSEWHERE if hint else BUDGET, "seconds": SECONDS}
        path = self._path(subject, traced, fields | {"donor": donor.stem})
        return await self._result(subject, traced, fields, path, GraftFile)

    def _donor_fields(self, question: GraftQuestion) -> dict[str, Any]:
        return {
            "role": "donor",
            "prompt": question.prompt,
            "what": question.what,
            "forced": {row: list(ids) for row, ids in question.forced.items()},
            "expected": list(question.donor_expected),
            "weights": [reference_name for reference_name, _ in question.weights],
        }

    async def _result(
        self,
        subject: TracedModel,
        traced: TracedCell,
        fields: dict[str, Any],
        path: Path,
        record_type: type[ResultFile],
    ) -> ResultFile | None:
        self._ledger.file(path)
        cached = (
            None if self._fresh or not subject.checkpoint.pinned else read_record(path, record_type)
        )
        is_sound = cached is not None and not (cached.failure and cached.failure.may_be_the_machine)
        if (
            cached is not None
            and is_sound
            and self._store.keeps(_stored_tensors(cached.model_dump()))
        ):
            return cached
        # another run may run the same job: each writes under a unique name first
        temporary = path.with_name(f"{path.stem}.{uuid.uuid4().hex[:12]}.json")
        await traced.process.run(self._job(subject, traced, fields, temporary))
        result = read_record(temporary, record_type)
        for written, target in (
            (temporary, path),
            (temporary.with_suffix(".log"), path.with_suffix(".log")),
        ):
            with contextlib.suppress(OSError):
                written.replace(target)
        self._ledger.file(path)
        if result is None or (result.failure and result.failure.may_be_the_machine):
            reason = f"{traced.cell} wrote no result of a swap, or failed for a reason that may be the machine"
            self._ledger.unsettle(reason, str(traced.cell))
        return result

    def _path(self, subject: TracedModel, traced: TracedCell, fields: dict[str, Any]) -> Path:
        cell = traced.cell
        key = digest_of(
            {
                **follows_from(cell, subject.model, subject.checkpoint, traced.stack),
                "asked": fields,
                "probes": self._probes,
                "machine": self._machine,
            }
        )
        folder = self._root / "grafts" / cell.model / str(cell.variant) / cell.stack
        return folder / f"{key[:16]}.json"

    def _job(
        self, subject: TracedModel, traced: TracedCell, fields: dict[str, Any], path: Path
    ) -> dict[str, Any]:
        return {
            **common_job("graft", traced.cell, subject.model, subject.checkpoint),
            "log": str(path.with_suffix(".log")),
            "store": {"root": str(self._root), "limit": VALUES_LIMIT},
            "graft": {**fields, "result": str(path)},
        }


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


def _unusable_reason(result: DonorFile | GraftFile) -> str:
    """Return why a result cannot be used; '' if it can."""
    if result.failure is not None:
        first_line = result.failure.message.partition("\n")[0]
        return f"{result.cell}: {result.failure.type}: {first_line}"
    return f"{result.cell}: {result.mismatch}" if result.mismatch else ""
