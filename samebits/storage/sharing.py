"""The files of one work folder in shared stores: what is fetched into it, and what is pushed from it.

Every result has its place in the work folder, and the same name in a store. A result is pushed after
its tensors, so a store that has a result has had its tensors. A result that contains a secret of the
user's environment is not pushed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from samebits.base.redaction import Redaction
from samebits.records.tensor import TensorRef, stored_tensors
from samebits.storage.shared import MAX_OBJECT, Files, SharedStore
from samebits_wire import seal
from samebits_wire.atomic import read_whole, replace


class Sharing:
    """The shared stores of one run: those that are read, in order, and the one that is written.

    A run on one machine has none: nothing is found, and nothing is written.
    """

    def __init__(
        self,
        root: Path,
        sources: Sequence[SharedStore] = (),
        target: SharedStore | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._root = root
        self._sources = tuple(sources)
        self._target = target
        self._redaction = Redaction(environ or {})

    @property
    def is_written(self) -> bool:
        """True if there is a store that takes results."""
        return self._target is not None

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong, one line each, for the report."""
        stores = dict.fromkeys((*self._sources, *filter(None, (self._target,))))
        return tuple(line for store in stores for line in store.problems)

    def name_of(self, path: Path) -> str:
        """Return the name of what lies at a path of the work folder."""
        return path.relative_to(self._root).as_posix()

    def fetch(
        self,
        name: str,
        folder: Path,
        is_whole: Callable[[], bool],
        expected: Collection[str] = (),
    ) -> bool:
        """Put the files of a result into ``folder``; return False if no store has it.

        A result without the ``expected`` names, or of which ``is_whole`` then says no, is rejected.
        """
        for store in self._sources:
            files = store.fetch(name)
            if files is None:
                continue
            try:
                problem = _problem_of(files, expected) or self._problem_after(
                    files, folder, is_whole
                )
            except OSError:  # the work folder has no room for it
                return False
            if not problem:
                return True
            store.reject(name, problem)
        return False

    def read(self, name: str) -> Files | None:
        """Return the files of a result from the first store that has it."""
        return next((f for store in self._sources if (f := store.fetch(name)) is not None), None)

    def fetch_tensor(self, ref: TensorRef) -> bool:
        """Put the bytes of a tensor into the work folder; its reader verifies them."""
        name = _tensor_name(ref.hash)
        for store in self._sources:
            files = store.fetch(name)
            if files is not None and set(files) == {"bin"}:
                try:
                    replace(self._root / f"{name}.bin", files["bin"], lasting=False)
                except OSError:  # the work folder has no room for it
                    return False
                return True
        return False

    def push(self, name: str, paths: Sequence[Path]) -> None:
        """Write the files of a result to the store, after the tensors that they list."""
        target = self._target
        if target is None or target.has(name):
            return
        try:
            if sum(path.stat().st_size for path in paths) > MAX_OBJECT:
                return
            files = {path.name: read_whole(path) for path in paths}
        except OSError:
            return
        documents = [files[key] for key in files if key.endswith(".json")]
        if any(map(self._has_secret, documents)):
            return
        hashes = {hash for content in documents for hash in _stored_hashes(content)}
        # where the result is damaged, its tensors may be, too
        if self.push_tensors(hashes, replace=target.is_damaged(name)):
            target.push(name, files)

    def push_tensors(self, hashes: set[str], *, replace: bool = False) -> bool:
        """Write tensors to the store; return False unless all of them are there."""
        if self._target is None:
            return False
        readers = {_tensor_name(hash): self._tensor_reader(hash) for hash in sorted(hashes)}
        return self._target.push_all(readers, replace=replace)

    def write(self, name: str, files: Mapping[str, bytes]) -> bool:
        """Write what is no result of a digest, such as a lock; it replaces an earlier one."""
        return self._target is not None and self._target.push(name, files, replace=True)

    def offer(self, name: str, files: Mapping[str, bytes]) -> None:
        """Write such a file unless the store has one."""
        if self._target is not None and not self._target.has(name):
            self._target.push(name, files)

    def below(self, prefix: str) -> list[str]:
        """Return the names below a prefix in all stores."""
        return sorted({name for store in self._sources for name in store.below(prefix)})

    def _has_secret(self, content: bytes) -> bool:
        text = content.decode("utf-8", "replace")
        return self._redaction.text(text) != text

    def _tensor_reader(self, hash: str) -> Callable[[], Files | None]:
        path = self._root / f"{_tensor_name(hash)}.bin"

        def read() -> Files | None:
            try:
                return {"bin": read_whole(path)}
            except OSError:
                return None

        return read

    def _problem_after(self, files: Files, folder: Path, is_whole: Callable[[], bool]) -> str:
        for key, content in files.items():
            replace(folder / key, content, lasting=False)
        return "" if is_whole() else "this samebits cannot use its content"


def _problem_of(files: Files, expected: Collection[str]) -> str:
    """Return why the files of a result cannot be written to a folder; '' if they can."""
    if expected and set(files) != set(expected):
        return f"it has the files {', '.join(sorted(files))}"
    for key, content in files.items():
        if Path(key).name != key or key in {"", ".", ".."}:
            return f"its file {key!r} would lie elsewhere"
        if key.endswith(".json") and content.rstrip().endswith(b'"}') and b'"seal":"' in content:
            try:
                seal.opened(content)
            except seal.SealError as error:
                return f"{key}: {error}"
    return ""


def _tensor_name(hash: str) -> str:
    return f"tensors/{hash[:2]}/{hash}"


def _stored_hashes(content: bytes) -> set[str]:
    """Return the hashes of the stored tensors that a JSON document lists, at any depth."""
    try:
        return {ref.hash for ref in stored_tensors(json.loads(content))}
    except (ValueError, RecursionError):
        return set()
