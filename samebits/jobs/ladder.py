"""How do cells climb the precision ladder: one process each, or what an earlier run left.

What a cell leaves is kept under the digest of all that it follows from, like a capture.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from samebits.base.digests import digest_of
from samebits.base.filestate import Ledger
from samebits.jobs.common import common_job, follows_from
from samebits.records.capture import Failure
from samebits.records.ladder import LadderFile
from samebits.records.record import read_record
from samebits.stacks.process import tail
from samebits.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from samebits.jobs.checkpoints import Checkpoint
    from samebits.ladder.asking import Ask
    from samebits.matrix.spec import ModelSpec
    from samebits.records.ids import CellId
    from samebits.records.tensor import TensorRef
    from samebits.stacks.build import Stack
    from samebits.stacks.process import StackProcess

VALUES_LIMIT = 256 << 20
"""Bytes up to which a tensor of a rung is kept: the logits of a real model are large."""


class Climber:
    """Runs cells on the ladder and reads what they left."""

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

    async def climb(
        self,
        cell: CellId,
        model: ModelSpec,
        checkpoint: Checkpoint,
        stack: Stack,
        process: StackProcess,
        ask: Ask,
    ) -> LadderFile:
        """Return what ``cell`` computes on every rung."""
        path = self._path(cell, model, checkpoint, stack, ask)
        self._ledger.file(path)
        if not self._fresh and checkpoint.pinned and (kept := self._kept(path)) is not None:
            return kept
        # another run may be at the same: what each leaves has a name of its own at first
        own = path.with_name(f"{path.stem}.{uuid.uuid4().hex[:12]}.json")
        log = own.with_suffix(".log")
        ended = await process.run(self._job(cell, model, checkpoint, own, ask))
        found = read_record(own, LadderFile)
        if found is not None and found.cell == cell:
            own.replace(path)
        else:
            message, said = ended.reason or "it left nothing", tail(log)
            failure = Failure(phase="process", type="no result", message=message, traceback=said)
            found = LadderFile(cell=cell, failure=failure)
        with contextlib.suppress(OSError):
            log.replace(path.with_suffix(".log"))
        self._ledger.file(path)
        if found.failure and found.failure.may_be_the_machine:
            reason = f"{cell} left nothing on the ladder, or failed as a machine may"
            self._ledger.unsettle(reason, str(cell))
        return found

    def _kept(self, path: Path) -> LadderFile | None:
        """Return what an earlier run left if it is whole, values and all, and the model's answer."""
        found = read_record(path, LadderFile)
        if found is None or (found.failure is not None and found.failure.may_be_the_machine):
            return None
        return found if self._store.keeps(_values(found)) else None

    def _path(
        self, cell: CellId, model: ModelSpec, checkpoint: Checkpoint, stack: Stack, ask: Ask
    ) -> Path:
        key = digest_of(
            {
                **follows_from(cell, model, checkpoint, stack),
                "ask": ask.model_dump(mode="json"),
                "probes": self._probes,
                "machine": self._machine,
            }
        )
        folder = self._root / "ladders" / model.name / str(cell.variant) / cell.stack
        return folder / f"{key[:16]}.json"

    def _job(
        self, cell: CellId, model: ModelSpec, checkpoint: Checkpoint, path: Path, ask: Ask
    ) -> dict[str, Any]:
        return {
            **common_job("ladder", cell, model, checkpoint),
            "run": "a",
            "log": str(path.with_suffix(".log")),
            "store": {"root": str(self._root), "limit": VALUES_LIMIT},
            "ladder": {"result": str(path), **ask.model_dump(mode="json")},
        }


def _values(file: LadderFile) -> Iterator[TensorRef]:
    """Return every tensor of every rung, and of what aligned tensors give."""
    if file.aligned is not None:
        yield from file.aligned.refs.values()
    for rung in file.rungs.values():
        yield from rung.decode.values()
        for forward in rung.forward.values():
            yield from (layer.ref for layer in forward.hidden_states)
            for choice in forward.choices:
                yield from (choice.scores, choice.chosen, choice.margin)
            if forward.logits is not None:
                yield forward.logits
