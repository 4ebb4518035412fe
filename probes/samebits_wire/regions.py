"""The parts of a function that run or do not run as a whole: its body, its branches, what follows a way out.

The probes mark each of them, to see which ran. The host reads from the same source which of them two releases
have otherwise. A part is named by its first line, and that of a function by the line of its first decorator,
as a code object has it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


class Region(NamedTuple):
    """Statements ``body[start:stop]``, which run together."""

    line: int
    body: list[ast.stmt]
    start: int
    stop: int
    is_marked: bool
    """Whether it begins here; one that is not marked runs with the region of the same line."""


def regions(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Region]:
    """Yield the regions of a function, without those of functions inside it."""
    first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
    has_docstring = ast.get_docstring(function, clean=False) is not None
    yield from _of_body(function.body, first, int(has_docstring), is_marked=True)


def _of_body(
    body: list[ast.stmt], line: int, start: int = 0, *, is_marked: bool
) -> Iterator[Region]:
    for index in range(start, len(body)):
        statement = body[index]
        yield from _inside(statement, line)
        # a definition's line is that of its own first region
        follows = index + 1 < len(body) and not isinstance(body[index + 1], _SCOPES)
        if follows and _may_leave(statement):
            yield Region(line, body, start, index + 1, is_marked)
            line, start, is_marked = body[index + 1].lineno, index + 1, True
    yield Region(line, body, start, len(body), is_marked)


def _inside(statement: ast.stmt, line: int) -> Iterator[Region]:
    """Yield the regions inside a statement that runs in the region of a line."""
    if isinstance(statement, _SCOPES):
        return
    always, branches = _bodies(statement)
    for body in always:
        yield from _of_body(body, line, is_marked=False)
    for body in branches:
        if isinstance(body[0], _SCOPES):
            yield from _of_body(body, line, is_marked=False)
        else:
            yield from _of_body(body, body[0].lineno, is_marked=True)


def _bodies(statement: ast.stmt) -> tuple[list[list[ast.stmt]], list[list[ast.stmt]]]:
    """Return the bodies of a statement that run whenever it does, and those that may not."""
    if isinstance(statement, (ast.With, ast.AsyncWith)):
        return [statement.body], []
    if isinstance(statement, ast.Match):
        return [], [case.body for case in statement.cases]
    if isinstance(statement, ast.Try):
        return [statement.body, statement.finalbody], [
            b for b in (*[handler.body for handler in statement.handlers], statement.orelse) if b
        ]
    if isinstance(statement, ast.If) and len(statement.orelse) == 1:
        return (
            ([statement.orelse], [statement.body])
            if isinstance(statement.orelse[0], ast.If)
            else ([], [statement.body, statement.orelse])
        )
    bodies = (getattr(statement, name, None) for name in ("body", "orelse"))
    return [], [body for body in bodies if body]


def _may_leave(statement: ast.stmt) -> bool:
    """Return True for a statement with a way out in one of its bodies."""
    if isinstance(statement, _SCOPES):
        return False
    rest = [body for bodies in _bodies(statement) for body in bodies]
    return any(isinstance(inner, _LEAVES) or _may_leave(inner) for body in rest for inner in body)
