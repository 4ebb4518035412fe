"""Definitions of transformers that a job enters, by CPython's profiler in C.

samebits compares the sources of two releases and says which changed functions no job ran. A function is
named by its file and its first line, decorators included, as every Python has these. The profiler
costs a tenth of a microsecond per call, and no tensor operation pays for it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

try:
    import _lsprof
except ImportError:  # an interpreter without it, such as PyPy: nothing is recorded
    _lsprof = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from types import CodeType

Table = dict[str, list[int]]
"""File, from the folder of transformers on -> first lines of functions, in order."""
_PACKAGE = "/site-packages/transformers/"


class Calls:
    """The functions of transformers that this process and its children entered."""

    def __init__(self) -> None:
        self._profiler: Any = None
        self._codes: dict[int, CodeType] = {}
        self._of_children: set[tuple[str, int]] = set()

    def begin(self) -> None:
        """Record from now on."""
        if self._profiler is None and _lsprof is not None:
            self._profiler = _lsprof.Profiler(subcalls=False, builtins=False)
            self._profiler.enable()

    def end(self) -> None:
        """Record no more; a process that ends need not call it."""
        if self._profiler is not None:
            self._profiler.disable()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave Python's profiling hook to another instrument, which adds what it saw."""
        if self._profiler is None:
            yield
            return
        self._profiler.disable()
        try:
            yield
        finally:
            self._profiler.enable()

    def add(self, codes: Iterable[CodeType]) -> None:
        """Add functions that another instrument saw."""
        if self._profiler is not None:
            self._codes.update((id(code), code) for code in codes)

    def add_table(self, table: Mapping[str, Iterable[int]]) -> None:
        """Add what a child recorded."""
        self._of_children.update((file, line) for file, lines in table.items() for line in lines)

    def table(self) -> Table:
        """Return what was recorded so far; empty if nothing is."""
        if self._profiler is None:
            return {}
        entries = (entry.code for entry in self._profiler.getstats())
        codes = [code for code in entries if not isinstance(code, str)]
        places = {_place(code) for code in (*codes, *self._codes.values())} | self._of_children
        table: Table = {}
        for file, line in sorted(places):
            if file:
                table.setdefault(file, []).append(line)
        return table


def _place(code: CodeType) -> tuple[str, int]:
    """Return the file below transformers, '' for another one, and the first line."""
    _, _, file = code.co_filename.replace("\\", "/").partition(_PACKAGE)
    return file, code.co_firstlineno


CALLS = Calls()
"""Those of this process."""


def are_wanted(job: Mapping[str, Any]) -> bool:
    """Return True if the functions that a job enters are to be recorded.

    Run b adds none, and what explains a difference checks nothing new: only cells and questions, whose
    kinds have a dot, check something.
    """
    model, kind = job.get("model"), job["kind"]
    checks = kind == "cell" or "." in kind
    return (
        isinstance(model, dict)
        and bool(model.get("functions"))
        and checks
        and job.get("run") != "b"
    )
