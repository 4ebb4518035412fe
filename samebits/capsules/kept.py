"""Cache of capsules, keyed by everything that a capsule is made from.

Making a capsule takes two installations and a minute, and most runs change none of its inputs. Its
files are stored under the digest of the cell's result, its checkpoint, both stacks, this machine
and the source of samebits, with the identity of both cells' captures.
"""

from __future__ import annotations

import contextlib
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from samebits.base.digests import digest_of
from samebits.base.filestate import Dependencies, Identity, changed, identity
from samebits.capsules.judging import Party
from samebits.jobs.checkpoints import Checkpoint
from samebits.matrix.spec import ModelSpec
from samebits.records.comparison import CellResult
from samebits.records.ids import CellId
from samebits.records.record import Record
from samebits.stacks.environment import FOR_THE_HUB
from samebits.storage.receipt import source_digest
from samebits_wire import seal
from samebits_wire.atomic import replace

Made = dict[str, bytes] | str
"""The files of a capsule by their paths inside it, or the reason why there is none."""

_MACHINE_REASONS = re.compile(r"MemoryError|OSError|OutOfMemory|allocate")
"""Reasons that are not cached: a lack of memory or disk space may be temporary."""


class KeptCapsule(Record):
    """A cached capsule, or the reason why there is none."""

    format: Literal["samebits-kept-capsule"] = "samebits-kept-capsule"
    format_version: Literal[1] = 1
    captures: dict[str, Identity | None] = Field(default_factory=dict)
    """File identities of both cells' captures."""
    reason: str = ""
    """Why there is no capsule."""
    files: dict[str, str] = Field(default_factory=dict)
    """Path inside the capsule -> content in base64."""


class CapsuleCache:
    """The cached capsules of earlier runs."""

    def __init__(self, root: Path, dependencies: Dependencies, *, fresh: bool = False) -> None:
        self._root = root
        self._dependencies = dependencies
        self._fresh = fresh

    def path(
        self,
        result: CellResult,
        model: ModelSpec,
        checkpoint: Checkpoint,
        sides: tuple[Party, Party],
        machine: tuple[str, ...],
        environ: Mapping[str, str],
    ) -> Path | None:
        """Return where the capsule of a result is cached; None if its checkpoint is not pinned.

        ``environ`` is the environment of its scripts.
        """
        if not checkpoint.pinned:
            return None
        variables = {name: value for name, value in environ.items() if name not in FOR_THE_HUB}
        follows_from: list[Any] = [
            source_digest(),
            machine,
            variables,
            result.model_dump(mode="json", exclude={"capsule", "reproduce"}),
            model.model_dump(mode="json"),
            checkpoint.model_dump(mode="json"),
            [[str(side.cell), side.stack.lock_digest, side.python] for side in sides],
        ]
        name = f"{digest_of(follows_from)[:16]}.json"
        return self._folder(result.cell) / name

    def find(self, path: Path | None, captures: Iterable[Path]) -> Made | None:
        """Return the capsule of an earlier run, if it is intact and ``captures`` are unchanged."""
        if path is None or self._fresh:
            return None
        self._dependencies.file(path)
        try:
            record = KeptCapsule.model_validate(json.loads(seal.read(path)))
            files = {name: b64decode(text, validate=True) for name, text in record.files.items()}
        except (OSError, ValueError, RecursionError, ValidationError):
            return None
        paths = {str(capture.absolute()) for capture in captures}
        if record.captures.keys() != paths or changed(record.captures, {}) is not None:
            return None
        return files or record.reason or None

    def keep(self, path: Path | None, captures: Iterable[Path], made: Made) -> None:
        """Cache a result for the next run, unless it failed for a reason of the machine."""
        if path is None or (isinstance(made, str) and _MACHINE_REASONS.search(made)):
            return
        files = {} if isinstance(made, str) else made
        record = KeptCapsule(
            captures={str(capture.absolute()): self._identity(capture) for capture in captures},
            reason=made if isinstance(made, str) else "",
            files={name: b64encode(content).decode() for name, content in files.items()},
        )
        with contextlib.suppress(OSError):  # a full disk must not cost the report
            replace(path, seal.sealed(record.model_dump_json()), lasting=False)
        self._dependencies.file(path)

    def _identity(self, capture: Path) -> Identity | None:
        """Return the capture's identity when the run read it; if it did not, the current one."""
        return self._dependencies.files.get(str(capture.absolute())) or identity(capture)

    def _folder(self, cell: CellId) -> Path:
        return self._root / "kept-capsules" / cell.model / str(cell.variant) / cell.stack
