"""The sources of one release of transformers, read as far as a model can reach them."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from samebits.base.digests import digest_of, digest_of_file
from samebits.questions.changes import parts, source
from samebits.questions.changes.parts import Statement
from samebits.questions.changes.records import SourceFile
from samebits.questions.changes.source import Function, Source
from samebits.records.record import read_record
from samebits_wire import regions, seal
from samebits_wire.atomic import replace

_NONE = source.Source({}, (), {})


class Release:
    """The folder of transformers in an environment; each file is read once.

    Or one with other packages; ``package`` is then ''. What is read is kept in the folder ``shelf``, if there is one.
    """

    def __init__(
        self, folder: Path, shelf: Path | None = None, package: str = "transformers"
    ) -> None:
        self._folder, self._shelf, self._package = folder, shelf, package
        self._read_with = digest_of([_readers(), _installed(folder)]) if shelf else ""
        self._files: dict[str, SourceFile] = {}
        self._functions: dict[str, dict[str, Function]] = {}
        self._new: set[str] = set()

    def keep(self) -> None:
        """Write what was read, for a later run; of two that write a file at a time, the later one counts."""
        if self._shelf is None:
            return
        with contextlib.suppress(OSError):  # without room or right the next run reads it again
            for file in self._new:
                text = seal.sealed(self._files[file].model_dump_json())
                replace(_place(self._shelf, file), text, lasting=False)
        self._new.clear()

    @property
    def unread(self) -> set[str]:
        """Files that this interpreter cannot read as Python."""
        return {file for file, of_file in self._files.items() if of_file.is_unread}

    def source(self, file: str) -> Source:
        """Return what a file defines; nothing if there is no such file, or it cannot be read."""
        return self._file(file).source

    def _file(self, file: str) -> SourceFile:
        if file not in self._files:
            record = read_record(_place(self._shelf, file), SourceFile) if self._shelf else None
            if record is None or record.read_with != self._read_with:
                record = self._read(file)
                self._new.add(file)
            self._files[file] = record
        return self._files[file]

    def _read(self, file: str) -> SourceFile:
        read_with = self._read_with
        try:
            read = source.read((self._folder / file).read_bytes(), file)
        except OSError:
            return SourceFile(read_with=read_with, source=_NONE)
        except (SyntaxError, ValueError):
            return SourceFile(read_with=read_with, source=_NONE, is_unread=True)
        resolved = (self._resolved(file, name) for name in read.imports)
        imported = tuple(dict.fromkeys(filter(None, resolved)))
        return SourceFile(read_with=read_with, source=read, imported=imported)

    def statements(self, file: str, name: str) -> tuple[Statement, ...]:
        """Return the statements of a function; none if the file cannot be read."""
        of_file = self._file(file)
        if name not in of_file.statements:
            self._new.add(file)
            function = self._functions_of(file).get(name)
            read = tuple(parts.statements(function)) if function is not None else ()
            statements = of_file.statements | {name: read}
            self._files[file] = of_file.model_copy(update={"statements": statements})
            return read
        return of_file.statements[name]

    def _functions_of(self, file: str) -> dict[str, Function]:
        if file not in self._functions:
            try:
                read = parts.read((self._folder / file).read_bytes(), file)
            except (OSError, SyntaxError, ValueError):
                read = {}
            self._functions[file] = read
        return self._functions[file]

    def closure(
        self, files: Iterable[str], counts: Callable[[str], bool] = lambda _file: True
    ) -> set[str]:
        """Return these files and all files of transformers that they import, of those that count."""
        reached: set[str] = set()
        rest = list(files)
        while rest:
            file = rest.pop()
            if file not in reached:
                reached.add(file)
                rest += filter(counts, self._file(file).imported)
        return reached

    def _resolved(self, file: str, name: str) -> str:
        """Return the file of a module that another file imports; '' if it is not of transformers.

        Packages that load their names one by one are not followed: transformers itself, and its models.
        """
        path = "/".join(_absolute(file, name, self._package))
        candidates = [f"{path}.py"]
        if path and not (self._package and path.startswith("models")):
            candidates.append(f"{path}/__init__.py")
        return next((file for file in candidates if (self._folder / file).is_file()), "")


@cache
def _readers() -> str:
    """Return the digest of what reads a file: this Python, and the code that does it."""
    code = [digest_of_file(Path(str(module.__file__))) for module in (source, parts, regions)]
    return digest_of([code, sys.version_info[:2]])


def _installed(folder: Path) -> str:
    """Return the digest of a package's list of files, which has their hashes; else of its place."""
    for record in folder.parent.glob("transformers-*.dist-info/RECORD"):
        return digest_of_file(record)
    return str(folder)


def _place(shelf: Path, file: str) -> Path:
    return shelf / f"{file.replace('/', '.')}.json"


def _absolute(file: str, name: str, package: str) -> Iterator[str]:
    """Yield the parts of a module below a package, or of any if that is ''."""
    level = len(name) - len(name.lstrip("."))
    words = [word for word in name.split(".") if word]
    if level:
        folders = file.split("/")[:-1]
        if level - 1 <= len(folders):
            yield from folders[: len(folders) - level + 1]
            yield from words
    elif not package or words[0] == package:
        yield from words[bool(package) :]
