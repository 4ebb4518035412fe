"""Runs the traces of a pair and says where it parts; traces are kept like captures."""

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
from samebits.trace import blame as blaming
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
"""Bytes up to which what an operation takes and gives is kept for its distance."""


class Party(NamedTuple):
    """One cell of a pair, with what runs it."""

    cell: CellId
    stack: Stack
    process: StackProcess


class Subject(NamedTuple):
    """What both cells are of."""

    model: ModelSpec
    checkpoint: Checkpoint


class Pair(NamedTuple):
    """Two cells of one model."""

    subject: Subject
    reference: Party
    candidate: Party
    same_weights: frozenset[str]


class Found(NamedTuple):
    """The cause that one question gave."""

    cause: Cause
    question: Question
    place: int
    """Of the output that differs first, among those that the prompt gives."""


class Tracer:
    """Traces cells, once for all pairs that they are in."""

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
        subject: Subject,
        reference: Party,
        candidate: Party,
        asked: Asked,
    ) -> Cause | str:
        """Return where the candidate parts, or why no trace says it."""
        pair = Pair(subject, reference, candidate, asked.same_weights)
        try:
            first = await self._first(pair, asked.questions, "own")
            if isinstance(first, str):
                return first
            if not asked.beyond_rounding:
                return first.cause
            longer = [question.to_its_end() for question in asked.questions]
            return with_beyond(first, await self._first(pair, longer, "float64"))
        except Exception as error:  # noqa: BLE001  an explanation that fails changes no verdict
            said = without_folders(f"{type(error).__name__}: {error}")
            return f"the traces could not be joined: {said}"

    async def _first(self, pair: Pair, questions: Sequence[Question], rung: Rung) -> Found | str:
        reasons: dict[str, None] = {}
        for question in questions:
            found = await self._ask(pair, question, rung)
            if not isinstance(found, str):
                return found
            reasons[found] = None
        return "; ".join(reasons)

    async def _ask(self, pair: Pair, question: Question, rung: Rung) -> Found | str:
        parties = pair.reference, pair.candidate
        one, other = await asyncio.gather(
            *(self._trace(pair.subject, party, question, rung) for party in parties)
        )
        if (reason := _useless(one) or _useless(other)) or one is None or other is None:
            return reason
        blamed = await asyncio.to_thread(blaming.blame, one, other, pair.same_weights)
        if blamed is None:
            return NOTHING
        cause = blaming.cause(blamed)
        if cause is None:
            return f"nothing on the way to {blamed.joined.sink} parts by itself"
        looks = await asyncio.gather(
            *(
                self._trace(pair.subject, party, question, rung, tuple(wanted))
                for party, wanted in zip(parties, blamed.looks, strict=True)
            )
        )
        cause = closer(cause, blamed, looks[0], looks[1], self._store)
        changed = [str(t.cell) for t in (one, other) if t.effect == "changed the bits"]
        if changed:
            note = f"tracing itself changed the logits of {' and '.join(changed)}"
            cause = cause.model_copy(update={"evidence": (*cause.evidence, note)})
        return Found(cause, question, blamed.joined.place)

    async def _trace(
        self,
        subject: Subject,
        party: Party,
        question: Question,
        rung: Rung,
        look: tuple[int, ...] = (),
    ) -> Trace | None:
        """Return a trace, run once however many pairs ask for it; None if it could not be had."""
        path = self._path(subject, party, question, rung, look)
        if path not in self._running:
            made = self._make(subject, party, question, rung, look, path)
            self._running[path] = asyncio.create_task(made)
        return await asyncio.shield(self._running[path])

    async def _make(
        self,
        subject: Subject,
        party: Party,
        question: Question,
        rung: Rung,
        look: tuple[int, ...],
        path: Path,
    ) -> Trace | None:
        self._ledger.file(path)
        kept = None
        if subject.checkpoint.pinned and not self._fresh:
            kept = read_record(path, Trace)
        if kept is not None and not (kept.failure and kept.failure.may_be_the_machine):
            looks = kept.looks.values()
            if self._store.keeps(ref for look in looks for ref in (*look.inputs, *look.outputs)):
                return kept
        # another run may be at the same: what each leaves has a name of its own at first
        own = path.with_name(f"{path.stem}.{uuid.uuid4().hex[:12]}.json")
        job = self._job(subject, party, question, rung, look, own)
        await party.process.run({**job, "log": str(path.with_suffix(".log"))})
        made = read_record(own, Trace)
        if made is not None:
            own.replace(path)
        self._ledger.file(path)
        if made is None or (made.failure and made.failure.may_be_the_machine):
            reason = f"{party.cell} left no trace, or failed as a machine may"
            self._ledger.unsettle(reason, str(party.cell))
        return made

    def _path(
        self, subject: Subject, party: Party, question: Question, rung: Rung, look: tuple[int, ...]
    ) -> Path:
        cell = party.cell
        key = digest_of(
            {
                **follows_from(cell, subject.model, subject.checkpoint, party.stack),
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
        subject: Subject,
        party: Party,
        question: Question,
        rung: Rung,
        look: tuple[int, ...],
        path: Path,
    ) -> dict[str, Any]:
        return {
            **common_job("trace", party.cell, subject.model, subject.checkpoint),
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


def _useless(trace: Trace | None) -> str:
    """Return why a trace cannot be joined; '' if it can."""
    if trace is None:
        return "a trace was not written"
    if trace.failure is None:
        return ""
    first = trace.failure.message.partition("\n")[0]
    return f"{trace.cell} could not be traced: {trace.failure.type}: {first}"


def with_beyond(first: Found, beyond: Found | str) -> Cause:
    """Return the first cause with what promoted float64 says of it."""
    cause = first.cause
    if isinstance(beyond, str):
        said = "nothing of it is left that a trace shows" if beyond == NOTHING else beyond
        return cause.model_copy(update={"float64": f"in promoted float64, {said}"})
    later = beyond.cause
    same = first.question.to_its_end() == beyond.question
    if same and beyond.place < first.place:
        # what one side stores rounded and the other computes is exact on one side alone
        said = (
            f"promoted float64 cannot tell whether it is rounding: there the two part at "
            f"{later.sink} already, where their own bits are the same"
        )
        return cause.model_copy(update={"float64": said})
    if _place(cause) != _place(later):
        said = "the first place is rounding; what promoted float64 leaves begins elsewhere"
        return cause.model_copy(update={"float64": said, "beyond": later})
    if (cause.kind, cause.prompt, cause.what) != (later.kind, later.prompt, later.what):
        said = (
            f"what promoted float64 leaves begins at the same place, on the way to {later.sink} "
            f"in prompt {later.prompt}"
        )
        return cause.model_copy(update={"float64": said, "beyond": later})
    said = "promoted float64 parts at the same place: it is no rounding"
    return cause.model_copy(update={"float64": said})


def _place(cause: Cause) -> tuple[str, str, str]:
    return cause.candidate.tensor, cause.candidate.function, cause.candidate.source
