"""Architectures that the installed transformers knows.

Run as a program, this file prints ``{"architectures": [model_type …]}``, of the transformers in a folder that is
named, if one is. Reading the text of the
table takes milliseconds. Importing it takes seconds, because that imports torch.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from collections.abc import Sequence
from pathlib import Path

_CONFIG_TABLE = "CONFIG_MAPPING_NAMES"


def architectures() -> list[str]:
    """Return every model_type that the installed transformers knows, without importing it.

    The table is in models/auto/configuration_auto.py, in late 5.x mostly in auto_mappings.py of
    the same folder.
    """
    spec = importlib.util.find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        return []
    folder = Path(spec.submodule_search_locations[0]) / "models" / "auto"
    model_types: set[str] = set()
    for name in ("configuration_auto.py", "auto_mappings.py"):
        if (folder / name).exists():
            model_types |= _table_keys(folder / name)
    return sorted(model_types)


def _table_keys(path: Path) -> set[str]:
    keys: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if _fills_table(node):
            for child in ast.walk(node):
                keys |= _pair_keys(child)
    return keys


def _fills_table(node: ast.AST) -> bool:
    """Return True for ``TABLE = …`` and ``TABLE.update(…)``."""
    if isinstance(node, ast.Assign):
        return any(isinstance(t, ast.Name) and t.id == _CONFIG_TABLE for t in node.targets)
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    owner = node.func.value
    return node.func.attr == "update" and isinstance(owner, ast.Name) and owner.id == _CONFIG_TABLE


def _pair_keys(node: ast.AST) -> set[str]:
    """Return the key of an ``("llama", "LlamaConfig")`` pair, or the keys of a dict literal."""
    if isinstance(node, ast.Tuple) and len(node.elts) == 2:
        return _texts([node.elts[0]])
    return _texts(node.keys) if isinstance(node, ast.Dict) else set()


def _texts(nodes: Sequence[ast.AST | None]) -> set[str]:
    constants = (node.value for node in nodes if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


if __name__ == "__main__":
    sys.path[:0] = sys.argv[1:]
    print(json.dumps({"architectures": architectures()}))
