"""Runner of trace jobs, which locates where the operations of a pair of cells start to differ."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from samebits.base.redaction import without_folders
from samebits.jobs.cache import CachedJob, ResultForm, is_repeatable
from samebits.jobs.common import follows_from, job_of
from samebits.jobs.records import LimitedStore, TraceJob, Tracing
from samebits.records.trace import Trace
from samebits.trace import blame
from samebits.trace.replay import closer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from samebits.jobs.cache import JobCache
    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.spec import ModelSpec
    from samebits.records.ids import CellId
    from samebits.records.tensor import TensorRef
    from samebits.records.trace import Cause
    from samebits.stacks.build import Stack
    from samebits.stacks.process import StackProcess
    from samebits.trace.question import TracePhase, TraceRequest

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
    question: TracePhase
    place: int
    """Index of the first differing output among the outputs of the prompt."""


class Tracer:
    """Traces cells; a cell that is in several pairs is traced once."""

    def __init__(self, cache: JobCache) -> None:
        self._cache = cache
        self._running: dict[Path, asyncio.Task[Trace | None]] = {}

    async def cause(
        self,
        subject: TracedModel,
        reference: TracedCell,
        candidate: TracedCell,
        request: TraceRequest,
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
        self, pair: CellPair, questions: Sequence[TracePhase], rung: Rung
    ) -> LocatedCause | str:
        reasons: dict[str, None] = {}
        for question in questions:
            located = await self._locate(pair, question, rung)
            if not isinstance(located, str):
                return located
            reasons[located] = None
        return "; ".join(reasons)

    async def _locate(self, pair: CellPair, question: TracePhase, rung: Rung) -> LocatedCause | str:
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
        cause = closer(cause, blamed, looks[0], looks[1], self._cache.store)
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
        question: TracePhase,
        rung: Rung,
        look: tuple[int, ...] = (),
    ) -> Trace | None:
        """Return a trace, which runs once for all pairs that need it; None if it failed."""
        path = self._path(subject, traced, question, rung, look)
        if path not in self._running:
            tracing = partial(_tracing, subject.model, question, rung, look)
            log = path.with_suffix(".log")
            job = CachedJob(
                path,
                _FORM,
                subject.checkpoint,
                lambda written: self._job(subject, traced, tracing(written), log),
                unrepeatable=f"{traced.cell} left no trace, or failed for a reason that may be the machine",
                cell=traced.cell,
            )
            result = self._cache.result(job, traced.process)
            self._running[path] = asyncio.create_task(result)
        return await asyncio.shield(self._running[path])

    def _path(
        self,
        subject: TracedModel,
        traced: TracedCell,
        question: TracePhase,
        rung: Rung,
        look: tuple[int, ...],
    ) -> Path:
        cell = traced.cell
        facts = {
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
        }
        return self._cache.path_of_cell("traces", cell, facts)

    def _job(
        self, subject: TracedModel, traced: TracedCell, tracing: Tracing, log: Path
    ) -> TraceJob:
        return TraceJob(
            **job_of(traced.cell, subject.model, subject.checkpoint, log),
            store=LimitedStore(root=str(self._cache.root), limit=VALUES_LIMIT),
            trace=tracing,
        )


def _tracing(
    model: ModelSpec, question: TracePhase, rung: Rung, look: tuple[int, ...], path: Path
) -> Tracing:
    return Tracing(
        prompt=question.prompt,
        what=question.what,
        forced=question.forced,
        steps=question.steps,
        new_tokens=model.greedy,
        look=look,
        rung=rung,
        result=str(path),
    )


def _tensors(trace: Trace) -> Iterator[TensorRef]:
    """Yield every input and output that a trace looked at."""
    for look in trace.looks.values():
        yield from (*look.inputs, *look.outputs)


_FORM = ResultForm(Trace, is_repeatable, _tensors)
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
