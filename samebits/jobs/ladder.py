"""Runner of ladder jobs, which compute one cell in several precisions.

Results are cached under the digest of everything they depend on, like captures.
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
"""Bytes up to which a tensor of a rung is stored; the logits of a real model are large."""


class Climber:
    """Runs cells on the ladder and caches the results."""

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
        if not self._fresh and checkpoint.pinned and (cached := self._cached(path)) is not None:
            return cached
        # another run may run the same job: each writes under a unique name first
        temporary = path.with_name(f"{path.stem}.{uuid.uuid4().hex[:12]}.json")
        log = temporary.with_suffix(".log")
        ended = await process.run(self._job(cell, model, checkpoint, temporary, ask))
        result = read_record(temporary, LadderFile)
        if result is not None and result.cell == cell:
            temporary.replace(path)
        else:
            message, last_lines = ended.reason or "it wrote no result", tail(log)
            failure = Failure(
                phase="process", type="no result", message=message, traceback=last_lines
            )
            result = LadderFile(cell=cell, failure=failure)
        with contextlib.suppress(OSError):
            log.replace(path.with_suffix(".log"))
        self._ledger.file(path)
        if result.failure and result.failure.may_be_the_machine:
            reason = f"{cell} wrote no result of the ladder, or failed for a reason that may be the machine"
            self._ledger.unsettle(reason, str(cell))
        return result

    def _cached(self, path: Path) -> LadderFile | None:
        """Return the cached result; None if it is damaged or the machine may have made it fail."""
        result = read_record(path, LadderFile)
        if result is None or (result.failure is not None and result.failure.may_be_the_machine):
            return None
        return result if self._store.keeps(_tensors(result)) else None

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


def _tensors(file: LadderFile) -> Iterator[TensorRef]:
    """Yield every tensor of every rung, and every tensor of the run with aligned memory."""
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
