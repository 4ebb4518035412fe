"""What the code of a model asks of packages and kernels that this environment does not have.

A machine with a GPU may have them, and computes by other code there than any run without them. Kernels that a user
must ask for by ``use_kernels=True`` are left out.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from samebits_probe.model.packages import is_missing
from samebits_probe.questions.usage.subject import Subject

_MODELS = "transformers.models."
_KERNEL = re.compile(r"lazy_load_kernel|\w+_with_fallback")


def optional(subject: Subject) -> list[str]:
    """Return the guarded imports of packages that are not installed, and the kernels that are taken unasked."""
    modules = {type(module).__module__ for module in subject.model.modules()}
    loaded = (sys.modules.get(name) for name in sorted(modules) if name.startswith(_MODELS))
    files = {str(file) for module in loaded if (file := getattr(module, "__file__", None))}
    trees = (ast.parse(Path(file).read_text("utf-8")) for file in sorted(files))
    return sorted({line for tree in trees for line in (*_imports(tree), *_kernels(tree))})


def _imports(tree: ast.Module) -> Iterator[str]:
    """Yield what a module imports of absent packages in a branch of its own body."""
    branches = (node for node in tree.body if isinstance(node, (ast.If, ast.Try)))
    for node in (inner for branch in branches for inner in ast.walk(branch)):
        match node:
            case ast.ImportFrom(module=str(module), level=0) if _is_absent(module):
                yield from (f"import {module}.{alias.name}" for alias in node.names)
            case ast.Import():
                names = (alias.name for alias in node.names)
                yield from (f"import {name}" for name in names if _is_absent(name))
            case _:
                continue


def _is_absent(module: str) -> bool:
    return is_missing(module.partition(".")[0])


def _kernels(tree: ast.Module) -> Iterator[str]:
    """Yield the calls that take a kernel where there is one, and code of the model else."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[*args]) if _KERNEL.fullmatch(name):
                given: list[Any] = [arg.value for arg in args if isinstance(arg, ast.Constant)]
                yield f"{name}({', '.join(map(repr, given))})"
            case _:
                continue
