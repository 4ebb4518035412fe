"""Puts accelerate, without which there is no Trainer, into a process that has imported transformers.

The packages lie in a folder of their own, as those of a model do, and no environment of a cell has
them. transformers asks at its import which packages are there. So it is asked again: its flag is
set anew, and every block ``if is_accelerate_available():`` at the top of a module that is loaded
runs now. A process that starts with the folder on its path would compute the same, and would cost
an import of torch and transformers, which takes several times as long as the training.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType

from samebits_probe.model import forks

PACKAGE = "accelerate"
_ASKS = "is_accelerate_available"
_HEADER = re.compile(rf"^if\b[^:]*\b{_ASKS}\b[^:]*:", re.MULTILINE)
_NEXT = re.compile(r"^(?!else\b|elif\b|#)\S", re.MULTILINE)
"""The first line of what follows such a statement."""


def use(folder: str) -> str:
    """Put the packages of a folder at the end of the path, and return accelerate's version."""
    if not forks.knows_accelerate():
        sys.path.append(folder)
        importlib.invalidate_caches()
        forks.ask_for_accelerate_again()
        if not forks.knows_accelerate():
            raise ImportError("transformers finds no accelerate that it takes")
        for module in list(_loaded()):
            _complete(module)
    return importlib.metadata.version(PACKAGE)


def _loaded() -> Iterator[ModuleType]:
    """Yield the loaded modules of transformers that ask for accelerate."""
    for name, module in list(sys.modules.items()):
        if name.startswith("transformers.") and _ASKS in getattr(module, "__dict__", {}):
            yield module


def _complete(module: ModuleType) -> None:
    """Run the blocks of a module that asked for accelerate when there was none."""
    try:
        source = inspect.getsource(module)
    except (OSError, TypeError):
        return  # a module without a source, such as the one that finds the others
    for block in blocks(source):
        exec(compile(block, str(module.__file__), "exec"), vars(module))  # noqa: S102


def blocks(source: str) -> Iterator[ast.Module]:
    """Yield the statements at the top of a module that begin with ``if`` and ask for accelerate.

    Only their text is parsed: whole modules take ten times as long.
    """
    for header in _HEADER.finditer(source):
        end = _NEXT.search(source, header.end())
        text = source[header.start() : end.start() if end else len(source)]
        try:
            yield ast.parse(text)
        except SyntaxError:  # the text of a string begins a line
            yield from _parsed(source)
            return


def _parsed(source: str) -> Iterator[ast.Module]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.If) and _ASKS in ast.unparse(node.test):
            yield ast.Module(body=[node], type_ignores=[])
