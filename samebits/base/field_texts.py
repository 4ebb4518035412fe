"""The texts below the fields of a record, for the help of options and for JSON schemas.

pydantic reads them with ``use_attribute_docstrings`` as each class is made, which was a quarter of the time to
import samebits. Here they are read where they are shown.
"""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise

from pydantic import BaseModel


def text_of(record: type[BaseModel], name: str) -> str:
    """Return the text of a field: its ``description``, or else the string below it; '' without one."""
    described = record.model_fields[name].description
    classes = (kind for kind in record.__mro__ if name in vars(kind).get("__annotations__", ()))
    return described or next(
        (_texts(kind.__module__)[kind.__qualname__].get(name, "") for kind in classes), ""
    )


@cache
def _texts(module: str) -> dict[str, dict[str, str]]:
    """Return the strings below the fields of each class of a module, by field."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: _of_class(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _of_class(node: ast.ClassDef) -> dict[str, str]:
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(node.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
