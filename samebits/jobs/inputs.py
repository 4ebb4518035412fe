"""What is each model fed: chosen and made by one stack before its cells run, or by an earlier run.

The reference stack chooses if it can read the model, else the oldest stack that can. What it leaves is
kept under the digest of all that it follows from; the digest of what is fed names every answer of the
model's cells.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

from samebits.base.digests import digest_of
from samebits.base.filestate import Ledger
from samebits.jobs.common import THREADS, prompts_of
from samebits.records.inputs import Inputs, InputsFile
from samebits.records.record import read_record
from samebits.storage.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from samebits.jobs.checkpoints import Checkpoint
    from samebits.matrix.spec import ModelSpec
    from samebits.stacks.build import Stack
    from samebits.stacks.process import StackProcess

NO_STACK = "no stack could read what the model's forward takes"


class Feeder:
    """Lets one stack choose what a model is fed, and reads what it left."""

    def __init__(
        self, root: Path, probes: str, *, fresh: bool = False, ledger: Ledger | None = None
    ) -> None:
        self._ledger = ledger or Ledger()
        self._root = root
        self._store = Store(root)
        self._probes = probes
        self._fresh = fresh

    async def choose(
        self,
        model: ModelSpec,
        checkpoint: Checkpoint,
        choosers: Iterable[tuple[Stack, StackProcess]],
    ) -> Checkpoint:
        """Return the checkpoint with what its cells are fed; the first chooser that can decides."""
        reasons = []
        for stack, process in choosers:
            path = self._path(model, checkpoint, stack)
            found = await self._chosen(model, checkpoint, stack, process, path)
            if found is not None and found.is_chosen:
                inputs = Inputs(record=str(path), root=str(self._root), digest=found.digest)
                return checkpoint.model_copy(update={"inputs": inputs})
            reasons.append(f"{stack.id}: {found.reason if found else 'it left nothing'}")
        inputs = Inputs(reason=": ".join([NO_STACK, *reasons[:1]]))
        return checkpoint.model_copy(update={"inputs": inputs})

    async def _chosen(
        self,
        model: ModelSpec,
        checkpoint: Checkpoint,
        stack: Stack,
        process: StackProcess,
        path: Path,
    ) -> InputsFile | None:
        self._ledger.file(path)
        if not self._fresh and checkpoint.pinned and (kept := self._kept(path)) is not None:
            return kept
        # another run may be at the same: what each leaves has a name of its own at first
        own = path.with_name(f"{path.stem}.{uuid.uuid4().hex[:12]}.json")
        await process.run(self._job(model, checkpoint, stack, own))
        found = read_record(own, InputsFile)
        for source, name in ((own, path), (own.with_suffix(".log"), path.with_suffix(".log"))):
            with contextlib.suppress(OSError):
                source.replace(name)
        self._ledger.file(path)
        if found is None or (found.failure is not None and found.failure.may_be_the_machine):
            self._ledger.unsettle(f"{stack.id} could not choose what {model.name} is fed")
        return found

    def _kept(self, path: Path) -> InputsFile | None:
        """Return what an earlier run left if it is whole, bytes and all, and the model's answer."""
        found = read_record(path, InputsFile)
        if found is None or (found.failure is not None and found.failure.may_be_the_machine):
            return None
        return found if self._store.keeps(found.tensors()) else None

    def _path(self, model: ModelSpec, checkpoint: Checkpoint, stack: Stack) -> Path:
        key = digest_of(
            {
                "model": model.name,
                "stack": [stack.id, stack.lock_digest],
                "checkpoint": [checkpoint.source, checkpoint.revision, checkpoint.digest],
                "trust_remote_code": model.trust_remote_code,
                "prompts": prompts_of(model),
                "probes": self._probes,
            }
        )
        return self._root / "inputs" / model.name / stack.id / f"{key[:16]}.json"

    def _job(
        self, model: ModelSpec, checkpoint: Checkpoint, stack: Stack, path: Path
    ) -> dict[str, Any]:
        return {
            "kind": "inputs",
            "name": model.name,
            "stack": stack.id,
            "threads": THREADS,
            "timeout": model.timeout,
            "log": str(path.with_suffix(".log")),
            "result": str(path),
            "store": {"root": str(self._root)},
            "model": {
                "source": checkpoint.source,
                "revision": checkpoint.revision,
                "trust_remote_code": model.trust_remote_code,
                "prompts": prompts_of(model),
            },
        }
