"""The modules that a checkpoint's own code cannot be loaded without."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from samebits.base.checkpoint import read_small


def imported(names: Iterable[str], file_of: Callable[[str], Path | None]) -> set[str]:
    """Return the top-level modules that Python files import, and those that they import beside themselves.

    Without one of them a load raises ImportError, also where only a function imports it; what a ``try`` or an ``if``
    guards is left out (transformers 4.48.3 … 5.24.0: dynamic_module_utils.py, ``check_imports``). ``file_of`` returns
    the file of a module beside the checkpoint, or None.
    """
    modules: set[str] = set()
    read: set[str] = set()
    rest = [*names]
    while rest:
        name = rest.pop()
        file = file_of(name) if name not in read else None
        read.add(name)
        for node in _unguarded(_tree(file)):
            modules |= {*_outside(node)}
            rest += _beside(node)
    return modules


def _tree(file: Path | None) -> ast.AST:
    try:
        return ast.parse(read_small(file)) if file is not None else ast.Module([], [])
    except (OSError, SyntaxError, ValueError):  # the load says so
        return ast.Module([], [])


def _unguarded(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    if isinstance(node, ast.Try | ast.If):
        return
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node
    for child in ast.iter_child_nodes(node):
        yield from _unguarded(child)


def _outside(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif node.level == 0 and node.module:
        yield node.module.partition(".")[0]


def _beside(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the modules of the same folder, as ``from .x import y`` and ``from . import x`` name them."""
    if isinstance(node, ast.ImportFrom) and node.level == 1:
        yield from [node.module] if node.module else (alias.name for alias in node.names)
