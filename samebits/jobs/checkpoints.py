"""Checkpoints of the models: made from a recipe, in a local folder, or on the hub.

All stacks load the same files of a model.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from samebits.base.digests import digest_of, digest_of_file
from samebits.base.filestate import Dependencies, below
from samebits.base.hashes import (
    MAX_UNKNOWN,
    digest_of_folder,
    hash_of_file,
    hash_of_text,
    hashes_of_folder,
    is_read,
)
from samebits.base.patches import patched_files, write_patched
from samebits.compare.describe import some
from samebits.matrix.spec import ModelSpec
from samebits.records.inputs import Inputs
from samebits.records.record import Record
from samebits.stacks.build import Stack
from samebits.storage.sharing import Sharing
from samebits_wire import seal

_COMMIT = re.compile(r"[0-9a-f]{40}")


class Checkpoint(Record):
    """The source from which all stacks load a model."""

    model: str
    source: str
    """A folder, or a hub id."""
    shown_source: str
    """The source as the report shows it, without folders of this machine."""
    shown_folder: str = ""
    """The folder that matrix.yaml names, as seen from the current one; '' if it is not below that,
    or if patches make a copy of it."""
    revision: str | None = None
    digest: str | None = None
    """Digest of all its files; None for a hub id, whose files samebits does not read."""
    parameters: int | None = None
    n_bytes: int | None = None
    """Bytes of its files; None for a hub id. A part of it that a capsule tries keeps the whole's."""
    builder: str | None = None
    """Id of the stack that made it from the recipe."""
    unread: tuple[str, ...] = ()
    """Files that are neither weights nor code, and too large to be read."""
    inputs: Inputs | None = None
    """Inputs of its cells; None until a stack has chosen them."""

    @property
    def note(self) -> str:
        """What the report says of files that are not read; '' if all are."""
        if not self.unread:
            return ""
        size = f"{MAX_UNKNOWN >> 30} GiB"
        names = some(self.unread)
        return (
            f"{self.model}: larger than {size} and neither weights nor code, so not read: {names}"
        )

    @property
    def pinned(self) -> bool:
        """True if the source always refers to the same bytes."""
        return self.digest is not None or bool(_COMMIT.fullmatch(self.revision or ""))


def _below_current(folder: Path) -> str:
    """Return a folder as seen from the current one; '' if it is not below it."""
    path = Path(os.path.abspath(folder))  # noqa: PTH100  absolute() keeps "..", resolve() follows links
    current = Path.cwd()
    return path.relative_to(current).as_posix() if path.is_relative_to(current) else ""


def size_of(folder: Path) -> int | None:
    """Return the bytes of the files of a checkpoint that are read; None if they cannot be listed."""
    try:
        files = [path for path in folder.iterdir() if path.is_file() and is_read(path)]
        return sum(path.stat().st_size for path in files)
    except OSError:
        return None


def unread_files(folder: Path) -> tuple[str, ...]:
    """Return the names of the files of a checkpoint that are too large to be read."""
    paths = (Path(path) for path in below(str(folder)))
    return tuple(p.relative_to(folder).as_posix() for p in paths if p.is_file() and not is_read(p))


def builders_of(model: ModelSpec, stacks: Sequence[Stack]) -> list[Stack]:
    """Return the stacks that may make the model's checkpoint, the one to try first in front.

    This is the stack that the recipe names, or else the first of ``stacks`` (those that could be
    built, oldest first) that knows the architecture. What samebits itself makes of a type (``auto``)
    may fit a later one only, so that all that know it are tried.
    """
    assert model.build is not None
    if model.build.stack is not None:
        return [stack for stack in stacks if stack.id == model.build.stack]
    if model.has_own_code:  # which a stack's own list does not have
        return list(stacks[:1])
    capable = [stack for stack in stacks if model.build.architecture in stack.architectures]
    return capable if model.build.auto else capable[:1]


class Checkpoints:
    """The checkpoints of a matrix; those made from recipes or patches are stored in one folder."""

    def __init__(
        self,
        root: Path,
        matrix_folder: Path,
        maker: str,
        *,
        dependencies: Dependencies | None = None,
    ) -> None:
        self._dependencies = dependencies or Dependencies()
        self._root = root / "checkpoints"
        self._matrix_folder = matrix_folder
        self._cache = root / "file-hashes.json"
        self._maker = maker

    def folder(self, model: ModelSpec, builder: Stack) -> Path:
        """Return the folder of a recipe's checkpoint, named after what determines its bytes."""
        assert model.build is not None
        recipe = model.build.model_dump(mode="json")
        parts: list[Any] = [recipe, builder.transformers, builder.lock_digest, self._maker]
        if model.has_own_code:
            parts += [model.imports, model.model_class]
        key = digest_of(parts)
        return self._root / f"{model.name}-{key[:12]}"

    def made(self, model: ModelSpec, builder: Stack) -> Checkpoint | None:
        """Return the checkpoint that ``builder`` made; None if there is none or it is damaged."""
        folder = self.folder(model, builder)
        facts = read_facts(folder)
        if facts is None:
            return None
        hashes = self._hashes_of_kept(folder)
        if not hashes or facts.get("files", hashes).items() - hashes.items():
            return None  # damaged, by a full disk or a power cut
        assert model.build is not None
        self._dependencies.folder(folder)
        changed = f" with {', '.join(values)}" if (values := facts.get("values")) else ""
        description = (
            f"{model.build.architecture}{changed}, seed {model.build.seed}, made in {builder.id}"
        )
        return Checkpoint(
            model=model.name,
            source=str(folder),
            shown_source=description,
            digest=digest_of(hashes),
            parameters=facts.get("n_parameters"),
            n_bytes=size_of(folder),
            builder=builder.id,
        )

    def fetch(self, folder: Path, sharing: Sharing) -> None:
        """Put a recipe's checkpoint from a shared store in its place, if a store has it whole."""
        aside = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:12]}.tmp")

        def is_whole() -> bool:
            facts = read_facts(aside)
            listed = facts.get("files") if facts is not None else None
            return bool(listed) and listed == {
                path.name: hash_of_file(path)
                for path in aside.iterdir()
                if path.name != "checkpoint.json"
            }

        try:
            if sharing.fetch(sharing.name_of(folder), aside, is_whole):
                aside.rename(folder)
        except OSError:  # another run has just made it
            return
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def share(self, folder: Path, sharing: Sharing) -> None:
        """Push a recipe's checkpoint to the shared store unless it has it."""
        paths = sorted(folder.iterdir())
        if all(path.is_file() for path in paths):
            sharing.push(sharing.name_of(folder), paths)

    def given(self, model: ModelSpec) -> Checkpoint:
        """Return the checkpoint of a model that names a folder or a hub id."""
        if model.hub is not None:
            description = f"hub {model.hub}" + (f"@{model.revision}" if model.revision else "")
            return Checkpoint(
                model=model.name,
                source=model.hub,
                shown_source=description,
                revision=model.revision,
            )
        assert model.path is not None
        linked = self._matrix_folder / model.path
        folder = linked.resolve()
        # the path as written, too: a link that is changed later means another checkpoint
        self._dependencies.folder(linked)
        self._dependencies.folder(folder)
        if model.patch:
            folder = self._patched(model, folder)
            self._dependencies.folder(folder)
        digest = digest_of_folder(folder, self._cache)
        # reports are published, so they do not show this machine's absolute paths
        shown_source = path.name if (path := Path(model.path)).is_absolute() else model.path
        description = " + ".join(
            [f"path {shown_source}", *(Path(patch).name for patch in model.patch)]
        )
        return Checkpoint(
            model=model.name,
            source=str(folder),
            shown_source=description,
            shown_folder="" if model.patch else _below_current(linked),
            digest=digest,
            n_bytes=size_of(folder),
            unread=unread_files(folder),
        )

    def _hashes_of_kept(self, folder: Path) -> dict[str, str]:
        """Return the hashes of a folder that samebits made; {} if it cannot be read, and is made again."""
        try:
            return hashes_of_folder(folder, self._cache)
        except OSError:  # such as a link to itself
            return {}

    def _patched(self, model: ModelSpec, folder: Path) -> Path:
        """Return a patched copy of a folder, named after the folder's content and the patches.

        Raises PatchError if a patch does not apply.
        """
        patches = [self._matrix_folder / patch for patch in model.patch]
        for patch in patches:
            self._dependencies.file(patch)
        hashes = hashes_of_folder(folder, self._cache)
        contents = [digest_of(hashes), *map(digest_of_file, patches)]
        out = self._root / f"{model.name}-{digest_of(contents)[:12]}"
        changed = {name: _hash(text) for name, text in patched_files(folder, patches).items()}
        expected = {name: file_hash for name, file_hash in (hashes | changed).items() if file_hash}
        if self._hashes_of_kept(out) != expected:
            shutil.rmtree(out, ignore_errors=True)
            write_patched(folder, patches, out)
        os.utime(out)  # samebits/storage/prune.py removes copies that have not been used for long
        return out


def _hash(text: str | None) -> str:
    """Return the hash of a file with the content ``text``; '' for None, a removed file."""
    return "" if text is None else hash_of_text(text)


def read_facts(folder: Path) -> dict[str, Any] | None:
    """Return the facts stored with a checkpoint made from a recipe; None if they are damaged."""
    try:
        facts = json.loads(seal.read(folder / "checkpoint.json"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(facts, dict) or not isinstance(facts.get("files", {}), dict):
        return None
    return facts
