"""Digests of source code, for comparing a function between releases.

Parts that compute nothing are left out: comments, blank lines, docstrings, annotations and
decorators that only write documentation.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import re
from functools import cache
from types import CodeType
from typing import Any

from samebits_probe.process import learned

MAX_LINES = 400
"""Maximum lines of a class or function for a digest: PreTrainedModel has thousands."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DOCUMENTING_DECORATOR = re.compile(r"docstring|auto_doc")


def digest(source: str) -> str:
    """Return the hex SHA-256 of a definition's syntax tree.

    Raises:
        SyntaxError: the source is not one whole statement.

    """
    # an indented definition is parsed inside a block, because dedent would change its strings
    is_indented = source[:1].isspace()
    (node,) = ast.parse(f"if 1:\n{source}" if is_indented else source).body
    if is_indented:
        assert isinstance(node, ast.If)
        node = node.body[0]
    for part in ast.walk(node):
        _remove_documentation(part)
    return hashlib.sha256(ast.unparse(node).encode()).hexdigest()


def _remove_documentation(node: ast.AST) -> None:
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        node.decorator_list = [
            d for d in node.decorator_list if not _DOCUMENTING_DECORATOR.search(ast.unparse(d))
        ]
        first_statement = node.body[0]
        if (
            isinstance(first_statement, ast.Expr)
            and isinstance(first_statement.value, ast.Constant)
            and isinstance(first_statement.value.value, str)
        ):
            node.body = node.body[1:] or [ast.Pass()]
    if isinstance(node, _FUNCTIONS):
        node.returns = None
    elif isinstance(node, ast.arg):
        node.annotation = None
    elif isinstance(node, ast.AnnAssign):
        node.annotation = ast.Name("object")


_SHARED = "/site-packages/transformers/"
"""Part of the path of a file that no job changes."""


@cache
def of_code(code: CodeType) -> str:
    """Return the digest of the function of a code object; '' if it has no source."""
    place = (code.co_filename, code.co_firstlineno, code.co_name)
    if place in learned.DIGESTS:
        return learned.DIGESTS[place]
    text_digest = _of_code(code)
    if _SHARED in code.co_filename.replace("\\", "/"):
        learned.DIGESTS[place] = text_digest
    return text_digest


def _of_code(code: CodeType) -> str:
    lines = linecache.getlines(code.co_filename)
    text_digest = _digest_or_none("".join(lines[code.co_firstlineno - 1 : _last_line(code)]))
    if text_digest is not None:
        return text_digest
    try:  # statements at the end that compute nothing have no position
        return _digest_or_none(inspect.getsource(code)) or ""
    except OSError:
        return ""


def _last_line(code: CodeType) -> int:
    """Return the last line of the function's instructions."""
    positions = getattr(code, "co_positions", None)  # 3.11
    if positions is None:
        ends = [line for *_, line in code.co_lines() if line]
    else:
        ends = [end for _, end, _, _ in positions() if end]
    inner = (_last_line(c) for c in code.co_consts if inspect.iscode(c))
    return max((code.co_firstlineno, *ends, *inner))


def of_object(value: Any) -> str | None:
    """Return the digest of a function or class; None without source or above MAX_LINES lines."""
    value = inspect.unwrap(value) if callable(value) else value
    code = getattr(value, "__code__", None)
    if inspect.iscode(code):
        return of_code(code) or None
    if not inspect.isclass(value) or (place := of_class(value)) is None:
        return None
    lines, start = linecache.getlines(place[0]), place[1] - 1
    digests = (_digest_or_none("".join(lines[start:stop])) for stop in _block_ends(lines, start))
    return next((text for text in digests if text is not None), None)


def _digest_or_none(source: str) -> str | None:
    try:
        return digest(source)
    except (SyntaxError, ValueError):
        return None


def of_class(cls: type) -> tuple[str, int] | None:
    """Return the file and line of a top-level class, without parsing the file."""
    try:
        file = inspect.getsourcefile(cls)
    except TypeError:
        return None
    if file is None:
        return None
    pattern = re.compile(rf"class {re.escape(cls.__name__)}\b")
    lines = linecache.getlines(file)
    line = next((i for i, text in enumerate(lines, 1) if pattern.match(text)), None)
    return None if line is None else (file, line)


def _block_ends(lines: list[str], start: int) -> list[int]:
    """Return the lines where a block from ``start`` may end, up to MAX_LINES lines later."""
    stops = range(start + 1, min(start + 1 + MAX_LINES, len(lines)))
    ends = [i for i in stops if lines[i].strip() and not lines[i][0].isspace()]
    return ends or ([len(lines)] if len(lines) - start <= MAX_LINES else [])
