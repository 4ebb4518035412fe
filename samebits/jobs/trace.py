"""Runner of trace jobs, which locates where the operations of a pair of cells start to differ.

Traces are cached like captures.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from samebits.base.digests import digest_of
from samebits.base.filestate import Ledger
from samebits.base.redaction import without_folders
from samebits.jobs.common import common_job, follows_from
from samebits.records.record import read_record
from samebits.records.trace import Trace
from samebits.trace import blame
from samebits.trace.replay import closer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.spec import ModelSpec
    from samebits.records.ids import CellId
    from samebits.records.trace import Cause
    from samebits.stacks.build import Stack
    from samebits.stacks.process import StackProcess
    from samebits.storage.store import Store
    from samebits.trace.question import Asked, Question

Rung = Literal["own", "float64"]

VALUES_LIMIT = 16 << 20
"""Bytes up to which inputs and outputs of an operation are stored to measure their distance."""


class TracedCell(NamedTuple):
    """One cell of a pair, with its stack and process."""

    cell: CellId
    stack: Stack
    process: StackProcess


class TracedModel(NamedTuple):
    """The model and checkpoint of both cells."""

    model: ModelSpec
    checkpoint: Checkpoint


class CellPair(NamedTuple):
    """Two cells of one model to compare."""

    subject: TracedModel
    reference: TracedCell
    candidate: TracedCell
    same_weights: frozenset[str]


class LocatedCause(NamedTuple):
    """The cause that the traces for one question show."""

    cause: Cause
    question: Question
    place: int
    """Index of the first differing output among the outputs of the prompt."""


class Tracer:
    """Traces cells; a cell that is in several pairs is traced once."""

    def __init__(
        self,
        root: Path,
        store: Store,
        probes: str,
        machine: str,
        *,
        fresh: bool = False,
        ledger: Ledger | None = None,
    ) -> None:
        self._ledger = ledger or Ledger()
        self._root = root
        self._store = store
        self._probes = probes
        self._machine = machine
        self._fresh = fresh
        self._running: dict[Path, asyncio.Task[Trace | None]] = {}

    async def cause(
        self,
        subject: TracedModel,
        reference: TracedCell,
        candidate: TracedCell,
        request: Asked,
    ) -> Cause | str:
        """Return where the candidate starts to differ, or why no trace shows it."""
        pair = CellPair(subject, reference, candidate, request.same_weights)
        try:
            first = await self._first_located(pair, request.questions, "own")
            if isinstance(first, str):
                return first
            if not request.beyond_rounding:
                return first.cause
            longer = [question.to_its_end() for question in request.questions]
            return with_beyond(first, await self._first_located(pair, longer, "float64"))
        except Exception as error:  # noqa: BLE001  a failed explanation must not change a verdict
            message = without_folders(f"{type(error).__name__}: {error}")
            return f"the traces could not be joined: {message}"

    async def _first_located(
        self, pair: CellPair, questions: Sequence[Question], rung: Rung
    ) -> LocatedCause | str:
        reasons: dict[str, None] = {}
        for question in questions:
            located = await self._locate(pair, question, rung)
            if not isinstance(located, str):
                return located
            reasons[located] = None
        return "; ".join(reasons)

    async def _locate(self, pair: CellPair, question: Question, rung: Rung) -> LocatedCause | str:
        traced_pair = pair.reference, pair.candidate
        reference, candidate = await asyncio.gather(
            *(self._trace(pair.subject, traced, question, rung) for traced in traced_pair)
        )
        if (
            (reason := _unusable_reason(reference) or _unusable_reason(candidate))
            or reference is None
            or candidate is None
        ):
            return reason
        blamed = await asyncio.to_thread(blame.blame, reference, candidate, pair.same_weights)
        if blamed is None:
            return NOTHING
        cause = blame.cause(blamed)
        if cause is None:
            return f"no independent point of divergence was found before {blamed.joined.sink}"
        looks = await asyncio.gather(
            *(
                self._trace(pair.subject, traced, question, rung, tuple(wanted))
                for traced, wanted in zip(traced_pair, blamed.looks, strict=True)
            )
        )
        cause = closer(cause, blamed, looks[0], looks[1], self._store)
        changed = [
            str(trace.cell)
            for trace in (reference, candidate)
            if trace.effect == "changed the bits"
        ]
        if changed:
            note = f"tracing itself changed the logits of {' and '.join(changed)}"
            cause = cause.model_copy(update={"evidence": (*cause.evidence, note)})
        return LocatedCause(cause, question, blamed.joined.place)

    async def _trace(
        self,
        subject: TracedModel,
        traced: TracedCell,
        question: Question,
        rung: Rung,
        look: tuple[int, ...] = (),
    ) -> Trace | None:
        """Return a trace, which runs once for all pairs that need it; None if it failed."""
        path = self._path(subject, traced, question, rung, look)
        if path not in self._running:
            job = self._run_or_read(subject, traced, question, rung, look, path)
            self._running[path] = asyncio.create_task(job)
        return await asyncio.shield(self._running[path])

    async def _run_or_read(
        self,
        subject: TracedModel,
        traced: TracedCell,
        question: Question,
        rung: Rung,
        look: tuple[int, ...],
        path: Path,
    ) -> Trace | None:
        self._ledger.file(path)
        cached = None
        if subject.checkpoint.pinned and not self._fresh:
            cached = read_record(path, Trace)
        if cached is not None and not (cached.failure and cached.failure.may_be_the_machine):
            looks = cached.looks.values()
            if self._store.keeps(ref for look in looks for ref in (*look.inputs, *look.outputs)):
                return cached
        # another run may run the same job: each writes under a unique name first
        temporary = path.with_name(f"{path.stem}.{uuid.uuid4().hex[:12]}.json")
        job = self._job(subject, traced, question, rung, look, temporary)
        await traced.process.run({**job, "log": str(path.with_suffix(".log"))})
        trace = read_record(temporary, Trace)
        if trace is not None:
            temporary.replace(path)
        self._ledger.file(path)
        if trace is None or (trace.failure and trace.failure.may_be_the_machine):
            reason = f"{traced.cell} left no trace, or failed for a reason that may be the machine"
            self._ledger.unsettle(reason, str(traced.cell))
        return trace

    def _path(
        self,
        subject: TracedModel,
        traced: TracedCell,
        question: Question,
        rung: Rung,
        look: tuple[int, ...],
    ) -> Path:
        cell = traced.cell
        key = digest_of(
            {
                **follows_from(cell, subject.model, subject.checkpoint, traced.stack),
                "question": [
                    question.prompt,
                    question.what,
                    sorted(question.forced.items()),
                    question.steps,
                ],
                "new_tokens": subject.model.greedy,
                "look": list(look),
                "rung": rung,
                "probes": self._probes,
                "machine": self._machine,
            }
        )
        folder = self._root / "traces" / cell.model / str(cell.variant) / cell.stack
        return folder / f"{key[:16]}.json"

    def _job(
        self,
        subject: TracedModel,
        traced: TracedCell,
        question: Question,
        rung: Rung,
        look: tuple[int, ...],
        path: Path,
    ) -> dict[str, Any]:
        return {
            **common_job("trace", traced.cell, subject.model, subject.checkpoint),
            "store": {"root": str(self._root), "limit": VALUES_LIMIT},
            "trace": {
                "prompt": question.prompt,
                "what": question.what,
                "forced": {row: list(ids) for row, ids in question.forced.items()},
                "steps": question.steps,
                "new_tokens": subject.model.greedy,
                "look": list(look),
                "rung": rung,
                "result": str(path),
            },
        }


NOTHING = "the traces of both are the same"


def _unusable_reason(trace: Trace | None) -> str:
    """Return why a trace cannot be joined; '' if it can."""
    if trace is None:
        return "a trace was not written"
    if trace.failure is None:
        return ""
    first = trace.failure.message.partition("\n")[0]
    return f"{trace.cell} could not be traced: {trace.failure.type}: {first}"


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
