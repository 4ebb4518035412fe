"""Marks in the functions of transformers, and of a commit of a user's package: which parts of them ran.

A module is compiled with one store of a byte at the beginning of each region of a function, as
``samebits_wire.regions`` has them. That is about 0.1 us a region; no line, name or value changes, and what
torch compiles has no marks. The compiled module is kept beside Python's own, in ``__pycache__``.

What ran because a module was imported is not marked: which modules are imported by a job, and which before it,
depends on earlier jobs.
"""

from __future__ import annotations

import _imp
import ast
import importlib
import importlib.util
import marshal
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from samebits_probe.process import own
from samebits_wire.places import BESIDE, STAMP
from samebits_wire.regions import FUNCTIONS, Region, regions

_PACKAGE = "transformers"
_FOLDER = f"/site-packages/{_PACKAGE}/"
_NAME, _COMPILES = "__samebits_marks__", "__samebits_compiles__"
_TAG = "samebits"
"""Names the compiled form in ``__pycache__``: where regions or marks change, so must it."""


class Marks:
    """The marks of all modules of this process."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytearray, Sequence[int]]] = {}
        self._importing = 0

    def install(self) -> None:
        """Mark the modules of transformers that are imported from now on, in an environment of samebits.

        No file is written into another one.
        """
        if Path(sys.prefix, STAMP).is_file() and Finder not in sys.meta_path:
            sys.meta_path.insert(0, Finder)

    def add(self, file: str, lines: Sequence[int]) -> bytearray:
        """Return the marks of a file, one for each region."""
        marks = bytearray(len(lines))
        self._files[file] = marks, lines
        return marks

    def clear(self) -> None:
        """Forget what ran."""
        for marks, _ in self._files.values():
            marks[:] = bytes(len(marks))

    def ran(self) -> Iterator[tuple[str, int]]:
        """Yield file and line of each region that ran."""
        for file, (marks, lines) in self._files.items():
            yield from ((file, line) for line, mark in zip(lines, marks, strict=True) if mark)

    def execute(self, code: CodeType, module: ModuleType) -> None:
        """Run the body of a module, and forget what that ran."""
        before = None
        if not self._importing:
            before = {file: bytes(marks) for file, (marks, _) in self._files.items()}
        self._importing += 1
        try:
            exec(code, vars(module))  # noqa: S102  as importlib does
        finally:
            self._importing -= 1
            if before is not None:
                for file, (marks, _) in self._files.items():
                    marks[:] = before.get(file, bytes(len(marks)))


MARKS = Marks()
"""Those of this process."""


class Finder:
    """Finds the modules that get marks as Python does, and loads them with marks."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module that gets marks; None for any other one."""
        if name.partition(".")[0] != _PACKAGE and not (own.commit_folder() and own.is_own(name)):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader and _file(spec.loader.path):
            spec.loader = Loader(name, spec.loader.path)
        return spec


class Loader(SourceFileLoader):
    """Loads one module with marks."""

    def exec_module(self, module: ModuleType) -> None:
        """Compile the module with marks, or take what is kept, and run it."""
        lines, code = self._kept()
        vars(module)[_NAME] = MARKS.add(_file(self.path), lines)
        # torch's compiler takes it for a constant, and so compiles functions as if they had no marks
        vars(module)[_COMPILES] = importlib.import_module("torch").compiler.is_compiling
        MARKS.execute(code, module)

    def _kept(self) -> tuple[Sequence[int], CodeType]:
        cached = importlib.util.cache_from_source(self.path, optimization=_TAG)
        stats = self.path_stats(self.path)
        head = importlib.util.MAGIC_NUMBER + marshal.dumps((int(stats["mtime"]), stats["size"]))
        try:
            content = self.get_data(cached)
            if content.startswith(head):
                lines, code = marshal.loads(content[len(head) :])
                # an environment may be moved, as Python's own compiled files may be
                _imp._fix_co_filename(code, self.path)  # type: ignore[attr-defined]
                return lines, code
        except (OSError, EOFError, ValueError, TypeError):
            pass
        made = marked(self.get_data(self.path), self.path)
        self.set_data(cached, head + marshal.dumps(made))  # does nothing where it may not write
        return made


def marked(source: bytes, path: str) -> tuple[tuple[int, ...], CodeType]:
    """Return the lines of the regions of a module, and its code with a mark for each."""
    tree = ast.parse(source, path)
    every = [
        region
        for node in ast.walk(tree)
        if isinstance(node, FUNCTIONS)
        for region in regions(node)
        if region.is_marked
    ]
    # from the end on, so that the places of earlier marks in a body stay
    for number, region in sorted(enumerate(every), key=lambda pair: -pair[1].start):
        region.body.insert(region.start, _mark(number, region))
    return tuple(region.line for region in every), compile(tree, path, "exec", dont_inherit=True)


def _mark(number: int, region: Region) -> ast.stmt:
    (statement,) = ast.parse(f"if not {_COMPILES}():\n {_NAME}[{number}] = 1").body
    followed = region.body[min(region.start, len(region.body) - 1)]
    for node in ast.walk(statement):
        ast.copy_location(node, followed)
    return statement


def _file(path: str) -> str:
    """Return a file from the folder of transformers on, a user's as if it lay beside that; '' for another one."""
    path, commit = path.replace("\\", "/"), own.commit_folder().replace("\\", "/")
    if commit and path.startswith(f"{commit}/"):
        return f"{BESIDE}{path.removeprefix(f'{commit}/')}"
    return path.partition(_FOLDER)[2]
