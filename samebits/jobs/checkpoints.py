"""Which files do the cells of a model load, and are they the same for every stack."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from samebits.base import seal
from samebits.base.digests import digest_of, digest_of_file, digest_of_folder, hashes_of_folder
from samebits.base.filestate import Ledger
from samebits.base.patches import patched_files, write_patched
from samebits.records.inputs import Inputs
from samebits.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samebits.matrix.spec import ModelSpec
    from samebits.stacks.build import Stack

_COMMIT = re.compile(r"[0-9a-f]{40}")


class Checkpoint(Record):
    """Where the stacks load a model from."""

    model: str
    source: str
    """A folder, or a hub id."""
    said: str
    """The source as the report says it, without this machine's folders."""
    revision: str | None = None
    digest: str | None = None
    """Of all its files; None for a hub id, whose files are not ours to read."""
    parameters: int | None = None
    builder: str | None = None
    """Id of the stack that makes it, or made it."""
    inputs: Inputs | None = None
    """What its cells are fed; None until a stack has chosen."""

    @property
    def pinned(self) -> bool:
        """True if the same source cannot stand for other bytes tomorrow."""
        return self.digest is not None or bool(_COMMIT.fullmatch(self.revision or ""))


def builder_of(model: ModelSpec, stacks: Sequence[Stack]) -> Stack | None:
    """Return the stack that makes the model's checkpoint: the one named, or the oldest that knows.

    ``stacks`` are those that could be built, oldest first; None if none of them knows it.
    """
    assert model.build is not None
    if model.build.stack is not None:
        return next((stack for stack in stacks if stack.id == model.build.stack), None)
    knowing = (stack for stack in stacks if model.build.architecture in stack.architectures)
    return next(knowing, None)


class Checkpoints:
    """The checkpoints of a matrix, those that are made kept under one folder."""

    def __init__(
        self, root: Path, matrix_folder: Path, maker: str, *, ledger: Ledger | None = None
    ) -> None:
        self._ledger = ledger or Ledger()
        self._root = root / "checkpoints"
        self._matrix_folder = matrix_folder
        self._cache = root / "file-hashes.json"
        self._maker = maker

    def folder(self, model: ModelSpec, builder: Stack) -> Path:
        """Return where a made checkpoint lies: named after all that its bytes follow from."""
        assert model.build is not None
        recipe = model.build.model_dump(mode="json")
        key = digest_of([recipe, builder.transformers, builder.lock_digest, self._maker])
        return self._root / f"{model.name}-{key[:12]}"

    def made(self, model: ModelSpec, builder: Stack) -> Checkpoint | None:
        """Return the checkpoint that ``builder`` made, or None if it is not there yet."""
        folder = self.folder(model, builder)
        facts = read_facts(folder)
        if facts is None:
            return None
        hashes = hashes_of_folder(folder, self._cache)
        if facts.get("files", hashes).items() - hashes.items():
            return None  # damaged: a disk that was full, or a power cut
        assert model.build is not None
        self._ledger.folder(folder)
        said = f"build {model.build.architecture}, seed {model.build.seed}, by {builder.id}"
        return Checkpoint(
            model=model.name,
            source=str(folder),
            said=said,
            digest=digest_of(hashes),
            parameters=facts.get("n_parameters"),
            builder=builder.id,
        )

    def given(self, model: ModelSpec) -> Checkpoint:
        """Return the checkpoint of a model that names a folder or a hub id."""
        if model.hub is not None:
            said = f"hub {model.hub}" + (f"@{model.revision}" if model.revision else "")
            return Checkpoint(
                model=model.name, source=model.hub, said=said, revision=model.revision
            )
        assert model.path is not None
        named = self._matrix_folder / model.path
        folder = named.resolve()
        # as it is named, too: a link that leads elsewhere tomorrow is another checkpoint
        self._ledger.folder(named)
        self._ledger.folder(folder)
        if model.patch:
            folder = self._patched(model, folder)
            self._ledger.folder(folder)
        digest = digest_of_folder(folder, self._cache)
        # an absolute path is this machine's, and reports are published
        shown = folder_of.name if (folder_of := Path(model.path)).is_absolute() else model.path
        said = " + ".join([f"path {shown}", *(Path(patch).name for patch in model.patch)])
        return Checkpoint(model=model.name, source=str(folder), said=said, digest=digest)

    def _patched(self, model: ModelSpec, folder: Path) -> Path:
        """Return a copy of a folder with the model's patches, named after all that it is made of.

        Raises PatchError if one does not apply.
        """
        patches = [self._matrix_folder / patch for patch in model.patch]
        for patch in patches:
            self._ledger.file(patch)
        given = hashes_of_folder(folder, self._cache)
        of = [digest_of(given), *map(digest_of_file, patches)]
        out = self._root / f"{model.name}-{digest_of(of)[:12]}"
        changed = {name: _hash(text) for name, text in patched_files(folder, patches).items()}
        whole = {name: hash for name, hash in (given | changed).items() if hash}
        if hashes_of_folder(out, self._cache) != whole:
            shutil.rmtree(out, ignore_errors=True)
            write_patched(folder, patches, out)
        os.utime(out)  # samebits/storage/prune.py removes a copy that no run has used for long
        return out


def _hash(text: str | None) -> str:
    """Return the SHA-256 of a file that holds ``text``; '' if it is gone."""
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()


def read_facts(folder: Path) -> dict[str, Any] | None:
    """Return what a made checkpoint says of itself; None if it is not whole."""
    try:
        facts = json.loads(seal.read(folder / "checkpoint.json"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("files", {}), dict):
        return None
    return facts
