"""The sources of one release of transformers, read as far as a model can reach them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from samebits.questions.changes import parts, source
from samebits.questions.changes.parts import Statement
from samebits.questions.changes.records import SourcesFile
from samebits.questions.changes.source import Function, Source

_NONE = source.Source({}, (), {})


class Release:
    """The folder of transformers in an environment; each file is read once.

    Or one with other packages; ``package`` is then ''.
    """

    def __init__(
        self, folder: Path, kept: SourcesFile | None = None, package: str = "transformers"
    ) -> None:
        self._folder, self._package = folder, package
        kept = kept or SourcesFile()
        self._sources: dict[str, Source] = dict(kept.sources)
        self.unread: set[str] = set(kept.unread)
        """Files that this interpreter cannot read as Python."""
        self._imported: dict[str, tuple[str, ...]] = dict(kept.imported)
        self._functions: dict[str, dict[str, Function]] = {}
        self._statements: dict[str, dict[str, tuple[Statement, ...]]] = {
            file: dict(of_file) for file, of_file in kept.statements.items()
        }
        self._has_read = False

    def to_keep(self) -> SourcesFile | None:
        """Return what was read, for a later run; None if it was all kept before."""
        if not self._has_read:
            return None
        return SourcesFile(
            sources=self._sources,
            unread=tuple(sorted(self.unread)),
            imported=self._imported,
            statements=self._statements,
        )

    def source(self, file: str) -> Source:
        """Return what a file defines; nothing if there is no such file, or it cannot be read."""
        if file not in self._sources:
            self._has_read = True
            try:
                self._sources[file] = source.read((self._folder / file).read_bytes(), file)
            except OSError:
                self._sources[file] = _NONE
            except (SyntaxError, ValueError):
                self._sources[file] = _NONE
                self.unread.add(file)
        return self._sources[file]

    def statements(self, file: str, name: str) -> tuple[Statement, ...]:
        """Return the statements of a function; none if the file cannot be read."""
        of_file = self._statements.setdefault(file, {})
        if name not in of_file:
            self._has_read = True
            function = self._functions_of(file).get(name)
            of_file[name] = tuple(parts.statements(function)) if function is not None else ()
        return of_file[name]

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
                rest += filter(counts, self._imports(file))
        return reached

    def _imports(self, file: str) -> tuple[str, ...]:
        if file not in self._imported:
            self._has_read = True
            imported = (self._resolved(file, name) for name in self.source(file).imports)
            self._imported[file] = tuple(dict.fromkeys(filter(None, imported)))
        return self._imported[file]

    def _resolved(self, file: str, name: str) -> str:
        """Return the file of a module that another file imports; '' if it is not of transformers.

        Packages that load their names one by one are not followed: transformers itself, and its models.
        """
        path = "/".join(_absolute(file, name, self._package))
        candidates = [f"{path}.py"]
        if path and not (self._package and path.startswith("models")):
            candidates.append(f"{path}/__init__.py")
        return next((file for file in candidates if (self._folder / file).is_file()), "")


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
