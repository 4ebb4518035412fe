"""Guards: code that asks which release it runs in, or tries a name before it uses it."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.lint.source import Source

_QUESTIONS = {"hasattr", "signature", "getfullargspec", "find_spec", "import_module", "callable"}
_WORDS = re.compile(
    r"version|TYPE_CHECKING|_available\b|is_torchdynamo|is_legacy|transformers_(?:ge|gt|le|lt|v?\d)",
    re.IGNORECASE,
)
_IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError"}
_USE_ERRORS = {"AttributeError", "TypeError", "KeyError", "RuntimeError", "ValueError"}
_ANY = {"Exception", "BaseException"}
_LEAVES = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def guarded_import(source: Source, node: ast.AST) -> bool:
    """Return True if a failure of this import is expected, or it does not always run."""
    return guarded(source, node, _IMPORT_ERRORS)


def guarded(source: Source, node: ast.AST, errors: set[str] = _USE_ERRORS) -> bool:
    """Return True if the code around a node asks for the release, or catches one of the errors."""
    inner = node
    for outer in source.ancestors(node):
        if isinstance(outer, (ast.If, ast.IfExp, ast.While)) and inner is not outer.test:
            if _asks(source, outer.test):
                return True
        elif (isinstance(outer, (ast.BoolOp, ast.Assert)) and _asks(source, outer)) or (
            isinstance(outer, ast.Try) and _catches(outer, inner, errors)
        ):
            return True
        if isinstance(inner, ast.stmt) and _left_before(source, outer, inner):
            return True
        inner = outer
    return False


def _catches(node: ast.Try, inner: ast.AST, errors: set[str]) -> bool:
    """Return True in the body of such a try, and in the handler that is its fallback."""
    caught = errors | _ANY
    for handler in node.handlers:
        names = _exception_names(handler.type)
        if (not names or names & caught) and (inner in node.body or inner is handler):
            return True
    return False


def _exception_names(node: ast.expr | None) -> set[str]:
    if node is None:
        return set()
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    return {
        part.attr if isinstance(part, ast.Attribute) else getattr(part, "id", "") for part in parts
    }


def _left_before(source: Source, outer: ast.AST, inner: ast.stmt) -> bool:
    """Return True if a guard before the statement, in the same block, leaves the block."""
    for field in ("body", "orelse", "finalbody"):
        block = getattr(outer, field, None)
        if not isinstance(block, list) or inner not in block:
            continue
        return any(
            isinstance(earlier, ast.If)
            and isinstance(earlier.body[-1], _LEAVES)
            and _asks(source, earlier.test)
            for earlier in block[: block.index(inner)]
        )
    return False


def _asks(source: Source, test: ast.AST) -> bool:
    """Return True if an expression depends on the release or on which names exist."""
    for node in ast.walk(test):
        if isinstance(node, (ast.Name, ast.Attribute)):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in _QUESTIONS or _WORDS.search(name) or name in _flags(source):
                return True
    return False


@cache
def _flags(source: Source) -> frozenset[str]:
    """Return names that are assigned from such a question, or beside an import that may fail."""
    names: set[str] = set()
    for node in source.nodes:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        value = node.value
        asks = any(
            (
                isinstance(inner, (ast.Name, ast.Attribute))
                and (inner.id if isinstance(inner, ast.Name) else inner.attr) in _QUESTIONS
            )
            or (isinstance(inner, ast.Name) and _WORDS.search(inner.id))
            or (isinstance(inner, ast.Attribute) and inner.attr == "__version__")
            for inner in ast.walk(value)
        )
        beside = any(
            isinstance(outer, ast.Try)
            and any(_exception_names(h.type) & (_IMPORT_ERRORS | _ANY) for h in outer.handlers)
            for outer in source.ancestors(node)
        )
        if asks or beside:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {t.id for t in targets if isinstance(t, ast.Name)}
            names |= {t.attr for t in targets if isinstance(t, ast.Attribute)}
    return frozenset(names)
