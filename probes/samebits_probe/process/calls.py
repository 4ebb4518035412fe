"""Functions of transformers that a process and its children entered, as Python itself counts them.

samebits compares the sources of two releases and says which changed functions no check ran. A function is
named by its file and its first line, decorators included, as every Python has these.

CPython up to 3.11 counts in each code object how often it was entered, until it optimises it; from 3.12 on
sys.monitoring reports each function once. So nothing is paid for a call. What the import of transformers
entered counts too. Another interpreter records nothing.
"""

from __future__ import annotations

import ctypes
import sys
from functools import partial
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Table = dict[str, list[int]]
"""File, from the folder of transformers on -> first lines of functions, in order."""
_PACKAGE = "transformers"
_FOLDER = f"/site-packages/{_PACKAGE}/"
_TOOL = 4
"""Number of a tool of sys.monitoring that Python gives to no purpose."""


class Calls:
    """The functions of transformers that this process and its children entered."""

    def __init__(self) -> None:
        self._recorder: _Counted | _Monitored | None = None
        self._is_wanted = False
        self._of_children: set[tuple[str, int]] = set()

    def prepare(self) -> None:
        """Read the modules that are imported now, which this process's children need not read again."""
        if self._recorder is None:
            self._recorder = _Monitored() if hasattr(sys, "monitoring") else _Counted()
        self._recorder.prepare()

    def begin(self) -> None:
        """Say in :meth:`table` what was entered, until this process ends."""
        self.prepare()
        self._is_wanted = True

    def add_table(self, table: Mapping[str, Iterable[int]]) -> None:
        """Add what a child recorded."""
        self._of_children.update((file, line) for file, lines in table.items() for line in lines)

    def table(self) -> Table:
        """Return what was recorded so far; empty if nothing is."""
        if self._recorder is None or not self._is_wanted:
            return {}
        table: Table = {}
        places = {_place(code) for code in self._recorder.entered()}
        for file, line in sorted(places | self._of_children):
            if file:
                table.setdefault(file, []).append(line)
        return table


class _Counted:
    """Reads the counters of code objects, in CPython up to 3.11."""

    def __init__(self) -> None:
        self._counter = _counter()
        self._codes = _Codes()

    def prepare(self) -> None:
        """Read the modules that are imported now."""
        self._codes.all()

    def entered(self) -> Iterator[CodeType]:
        """Yield the functions whose counter is no longer that of new code."""
        if self._counter is None:
            return
        offset, new = self._counter
        for code in self._codes.all():
            if ctypes.c_short.from_address(id(code) + offset).value != new:
                yield code


class _Monitored:
    """Is told of each function once, from CPython 3.12 on."""

    def __init__(self) -> None:
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
        self._codes: list[CodeType] = []
        self._disable = monitoring.DISABLE
        if monitoring.get_tool(_TOOL) is None:
            monitoring.use_tool_id(_TOOL, "samebits")
            start = monitoring.events.PY_START
            monitoring.register_callback(_TOOL, start, self._note)
            monitoring.set_events(_TOOL, start)

    def prepare(self) -> None:
        """Do nothing: it is told by Python."""

    def _note(self, code: CodeType, _offset: int) -> Any:
        self._codes.append(code)
        return self._disable

    def entered(self) -> Iterator[CodeType]:
        """Yield the functions that began, from all packages."""
        yield from self._codes


def _counter() -> tuple[int, int] | None:
    """Return where a code object counts its entries, and the count of new code; None if it does not.

    It is the number that grows by one whenever a new function is called.
    """
    if sys.implementation.name != "cpython":
        return None
    names: dict[str, Any] = {}
    exec(compile("def function():\n    pass\n", "<counted>", "exec"), names)  # noqa: S102  text of ours
    function = names["function"]
    code, size = function.__code__, CodeType.__basicsize__
    looks = []
    for _ in range(4):
        looks.append(ctypes.string_at(id(code), size))
        function()
    for offset in range(object.__basicsize__, size - 1, 2):
        first, *more = (_short(look, offset) for look in looks)
        if more == [first + 1, first + 2, first + 3]:
            return offset, first
    return None


def _short(content: bytes, offset: int) -> int:
    return int.from_bytes(content[offset : offset + 2], sys.byteorder, signed=True)


class _Codes:
    """The code of all functions of transformers; the code of a module is read once."""

    def __init__(self) -> None:
        self._modules: set[str] = set()
        self._seen: dict[int, Any] = {}
        """Id -> object, which keeps it alive and the id its own."""
        self._codes: list[CodeType] = []

    def all(self) -> list[CodeType]:
        """Return the code of every module that is imported now."""
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] != _PACKAGE or name in self._modules:
                continue
            self._modules.add(name)
            if isinstance(module, ModuleType):
                self._read(vars(module).values())
        return self._codes

    def _read(self, values: Iterable[Any]) -> None:
        rest = list(values)
        while rest:
            value = rest.pop()
            if id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            if isinstance(value, CodeType):
                self._codes.append(value)
                rest += (part for part in value.co_consts if isinstance(part, CodeType))
            else:
                rest += _parts(value)


def _parts(value: Any) -> Iterator[Any]:
    """Yield what may hold functions in a value: those of a class, and what a wrapper wraps."""
    if isinstance(value, type):
        if str(value.__module__).partition(".")[0] == _PACKAGE:
            yield from vars(value).values()
    elif isinstance(value, FunctionType):
        if _place(value.__code__)[0]:
            yield value.__code__
        yield from (cell.cell_contents for cell in value.__closure__ or () if _has_content(cell))
        yield from vars(value).values()
    elif isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset, value.fdel)
    elif isinstance(value, partial):
        yield value.func
    else:
        held = getattr(value, "__dict__", None)  # of a cache, or of an attribute computed once
        if isinstance(held, dict):
            yield from (held.get(name) for name in ("__wrapped__", "func"))


def _has_content(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _place(code: CodeType) -> tuple[str, int]:
    """Return the file below transformers, '' for another one and for the body of a module, and the first line."""
    if code.co_name == "<module>":
        return "", 0
    _, _, file = code.co_filename.replace("\\", "/").partition(_FOLDER)
    return file, code.co_firstlineno


CALLS = Calls()
"""Those of this process."""


def are_wanted(job: Mapping[str, Any]) -> bool:
    """Return True if the functions that a job enters are to be recorded.

    Run b adds none, and what explains a difference checks nothing new: only cells and questions, whose
    kinds have a dot, check something.
    """
    kind = job["kind"]
    return (kind == "cell" or "." in kind) and job.get("run") != "b"
