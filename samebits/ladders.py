"""How do cells climb the precision ladder: one process each, or what an earlier run left.

What a cell leaves is kept under the digest of all that it follows from, like a capture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from samebits.capture import Failure
from samebits.fingerprint import digest_of
from samebits.ladder import LadderFile
from samebits.ledger import Ledger
from samebits.probing import tail

if TYPE_CHECKING:
    from pathlib import Path

    from samebits.checkpoints import Checkpoint
    from samebits.laddering.asking import Ask
    from samebits.matrix import ModelSpec
    from samebits.probing import StackProcess
    from samebits.stacks import Stack
    from samebits.words import CellId

VALUES_LIMIT = 256 << 20
"""Bytes up to which a tensor of a rung is kept: the logits of a real model are large."""
THREADS = 1


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
        if not self._fresh and checkpoint.pinned and (kept := _read(path)) is not None:
            return kept
        path.unlink(missing_ok=True)
        log = path.with_suffix(".log")
        ended = await process.run(self._job(cell, model, checkpoint, path, ask))
        self._ledger.file(path)
        found = _read(path, even_if_transient=True)
        if found is None or (found.failure and found.failure.may_be_the_machine):
            reason = f"{cell} left nothing on the ladder, or failed as a machine may"
            self._ledger.unsettle(reason, str(cell))
        if found is not None:
            return found
        message = ended.reason or "it left nothing"
        failure = Failure(phase="process", type="no result", message=message, traceback=tail(log))
        return LadderFile(cell=cell, failure=failure)

    def _path(
        self, cell: CellId, model: ModelSpec, checkpoint: Checkpoint, stack: Stack, ask: Ask
    ) -> Path:
        key = digest_of(
            {
                "cell": str(cell),
                "stack": stack.lock_digest,
                "checkpoint": [checkpoint.source, checkpoint.revision, checkpoint.digest],
                "trust_remote_code": model.trust_remote_code,
                "prompts": {name: prompt.model_dump() for name, prompt in model.prompts.items()},
                "ask": ask.model_dump(mode="json"),
                "probes": self._probes,
                "machine": self._machine,
                "threads": THREADS,
            }
        )
        folder = self._root / "ladders" / model.name / str(cell.variant) / cell.stack
        return folder / f"{key[:16]}.json"

    def _job(
        self, cell: CellId, model: ModelSpec, checkpoint: Checkpoint, path: Path, ask: Ask
    ) -> dict[str, Any]:
        return {
            "kind": "ladder",
            "cell": cell.model_dump(mode="json"),
            "run": "a",
            "threads": THREADS,
            "timeout": model.timeout,
            "log": str(path.with_suffix(".log")),
            "model": {
                "source": checkpoint.source,
                "revision": checkpoint.revision,
                "trust_remote_code": model.trust_remote_code,
                "prompts": {
                    name: prompt.model_dump(mode="json", exclude_none=True)
                    for name, prompt in model.prompts.items()
                },
            },
            "store": {"root": str(self._root), "limit": VALUES_LIMIT},
            "ladder": {"result": str(path), **ask.model_dump(mode="json")},
        }


def _read(path: Path, *, even_if_transient: bool = False) -> LadderFile | None:
    """Return what a cell left; None if it is missing, torn, or may have been the machine's doing."""
    try:
        found = LadderFile.model_validate_json(path.read_text("utf-8"))
    except (OSError, ValidationError):
        return None
    transient = found.failure is not None and found.failure.may_be_the_machine
    return None if transient and not even_if_transient else found
