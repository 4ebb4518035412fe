"""Runner of input jobs, in which one stack chooses the inputs of a model before its cells run.

The reference stack chooses them if it can read the model, otherwise the oldest stack that can. The
result is cached under the digest of everything it depends on. The digest of the inputs is part of
the name of every result of the model's cells.
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

NO_STACK = "no stack could read the arguments of the model's forward"


class Feeder:
    """Lets one stack choose a model's inputs, and caches the result."""

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
        """Return the checkpoint with the inputs of the first chooser that can choose them."""
        reasons = []
        for stack, process in choosers:
            path = self._path(model, checkpoint, stack)
            choice = await self._choice(model, checkpoint, stack, process, path)
            if choice is not None and choice.is_chosen:
                inputs = Inputs(record=str(path), root=str(self._root), digest=choice.digest)
                return checkpoint.model_copy(update={"inputs": inputs})
            reasons.append(f"{stack.id}: {choice.reason if choice else 'it wrote no result'}")
        inputs = Inputs(reason=": ".join([NO_STACK, *reasons[:1]]))
        return checkpoint.model_copy(update={"inputs": inputs})

    async def _choice(
        self,
        model: ModelSpec,
        checkpoint: Checkpoint,
        stack: Stack,
        process: StackProcess,
        path: Path,
    ) -> InputsFile | None:
        self._ledger.file(path)
        if not self._fresh and checkpoint.pinned and (cached := self._cached(path)) is not None:
            return cached
        # another run may run the same job: each writes under a unique name first
        temporary = path.with_name(f"{path.stem}.{uuid.uuid4().hex[:12]}.json")
        await process.run(self._job(model, checkpoint, stack, temporary))
        choice = read_record(temporary, InputsFile)
        for written, target in (
            (temporary, path),
            (temporary.with_suffix(".log"), path.with_suffix(".log")),
        ):
            with contextlib.suppress(OSError):
                written.replace(target)
        self._ledger.file(path)
        if choice is None or (choice.failure is not None and choice.failure.may_be_the_machine):
            self._ledger.unsettle(f"{stack.id} could not choose inputs for {model.name}")
        return choice

    def _cached(self, path: Path) -> InputsFile | None:
        """Return the cached result; None if it is damaged or the machine may have made it fail."""
        choice = read_record(path, InputsFile)
        if choice is None or (choice.failure is not None and choice.failure.may_be_the_machine):
            return None
        return choice if self._store.keeps(choice.tensors()) else None

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
