"""Questions about single nodes of a syntax tree, which know nothing of files and classes around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeVar

Function = ast.FunctionDef | ast.AsyncFunctionDef
_Node = TypeVar("_Node", bound=ast.AST)


def inside(scope: ast.AST | None, kind: type[_Node]) -> Iterator[_Node]:
    """Yield the nodes of one kind in a scope, itself included; nothing of None."""
    yield from (n for n in ast.walk(scope) if isinstance(n, kind)) if scope is not None else ()


def stores(scope: ast.AST | None) -> Iterator[ast.Attribute]:
    """Yield the attributes that code in a scope sets."""
    yield from (n for n in inside(scope, ast.Attribute) if isinstance(n.ctx, ast.Store))


def is_name(node: ast.AST | None, *names: str) -> bool:
    """Return True for a variable of one of these names."""
    return isinstance(node, ast.Name) and node.id in names


def method_call(node: ast.AST) -> tuple[ast.expr | None, str]:
    """Return ``x`` and ``name`` of ``x.name(…)``; None and '' for anything else."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value, node.func.attr
    return None, ""


def receiver(node: ast.AST) -> str:
    """Return the last name of an expression: ``tokenizer`` of ``self.tokenizer``; empty if none."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_super(node: ast.AST) -> bool:
    """Return True for ``super()``."""
    return isinstance(node, ast.Call) and is_name(node.func, "super")


def argument_names(function: Function) -> set[str]:
    """Return the arguments that a call can name."""
    return {a.arg for a in (*function.args.args, *function.args.kwonlyargs)}


def is_self(node: ast.AST) -> bool:
    """Return True for ``self``."""
    return is_name(node, "self")


def own_attribute(node: ast.AST) -> str:
    """Return ``x`` of ``self.x``; '' for anything else."""
    return node.attr if isinstance(node, ast.Attribute) and is_self(node.value) else ""


def assigned(scope: ast.AST, target: str) -> list[ast.expr]:
    """Return the values that assignments in a function or a file give to an expression, as it is written."""
    return [
        node.value
        for node in inside(scope, ast.Assign)
        if any(ast.unparse(t) == target for t in node.targets)
    ]


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """Return a keyword argument of a call."""
    return next((k for k in call.keywords if k.arg == name), None)


def is_constant(node: ast.AST | None, value: object) -> bool:
    """Return True for a literal of this value and type."""
    return (
        isinstance(node, ast.Constant) and type(node.value) is type(value) and node.value == value
    )


def mentions(node: ast.AST, text: str) -> bool:
    """Return True if a name, an attribute, a string or a function in a node is ``text``."""
    return any(
        (isinstance(n, ast.Name) and n.id == text)
        or (isinstance(n, ast.FunctionDef) and n.name == text)
        or (isinstance(n, ast.Attribute) and n.attr == text)
        or (isinstance(n, ast.Constant) and n.value == text)
        for n in ast.walk(node)
    )
