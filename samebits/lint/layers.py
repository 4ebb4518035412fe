"""Calls of the library's own layers and models: which class of transformers an expression holds."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from samebits.lint.project import Class, Project
from samebits.lint.source import Source
from samebits.lint.syntax import (
    Function,
    assigned,
    inside,
    is_name,
    is_super,
    method_call,
    own_attribute,
)


def library_class(project: Project, source: Source, node: ast.expr) -> str:
    """Return the dotted name of the library's class whose instance is called; empty if unknown.

    Known are ``self.x(…)``, and the variable of a loop over ``self.xs``, for what ``__init__``
    assigns; and ``super().forward(…)`` in a class that derives from one.
    """
    owner = source.class_of(node)
    if owner is None:
        return ""
    entry = Class(source, owner)
    if isinstance(node, ast.Attribute) and is_super(node.value):
        if node.attr != "forward":
            return ""
        bases = [b for b in project.family(entry).outside if b.startswith("transformers.")]
        own = [c for c in project.family(entry).own[1:] if c.method("forward")]
        return bases[0] if len(bases) == 1 and not own else ""
    name = _attribute(source, node)
    if not name:
        return ""
    for ancestor in project.family(entry).own:
        held = list(_held(ancestor, name))
        if held:
            return held[0] if len(set(held)) == 1 else ""
    return ""


def instance_class(project: Project, source: Source, node: ast.expr) -> str:
    """Return the dotted name of the library's class that a variable holds an instance of; empty if unknown.

    Every assignment of the name makes one of the same class: in the function around it, or for the whole file.
    """
    if isinstance(node, ast.Attribute):
        return library_class(project, source, node)
    if not isinstance(node, ast.Name):
        return ""
    function = source.function(node)
    scopes = [function, source.tree] if function is not None else [source.tree]
    for scope in scopes:
        if isinstance(scope, Function) and node.id in _parameters(scope):
            return ""
        made = list(_bound(source, scope, node.id))
        if made:
            return made[0] if len(set(made)) == 1 else ""
    return ""


def _parameters(function: Function) -> set[str]:
    arguments = function.args
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return {a.arg for a in (*named, arguments.vararg, arguments.kwarg) if a is not None}


def _bound(source: Source, scope: ast.AST, name: str) -> Iterator[str]:
    """Yield what each statement of a scope binds a name to; empty if it is not of the library."""
    for node in source.stores.get(name, ()):
        if source.function(node) is not (scope if isinstance(scope, Function) else None):
            continue
        statement = source.parents.get(node)
        if isinstance(statement, ast.Assign) and node in statement.targets:
            yield _made(source, statement.value)
        else:
            yield ""


def _attribute(source: Source, node: ast.expr) -> str:
    """Return ``layers`` for ``self.layers``, ``self.layers[i]`` and the variable of a loop over it."""
    if isinstance(node, ast.Subscript):
        node = node.value
    if name := own_attribute(node):
        return name
    if not isinstance(node, ast.Name):
        return ""
    for loop in inside(source.function(node), ast.For):
        if any(is_name(t, node.id) for t in ast.walk(loop.target)):
            return next(filter(None, map(own_attribute, ast.walk(loop.iter))), "")
    return ""


def _held(entry: Class, name: str) -> Iterator[str]:
    """Yield the dotted names of what a class assigns to ``self.name``; empty if not of the library."""
    for value in assigned(entry.node, f"self.{name}"):
        yield _made(entry.source, value)


def _made(source: Source, value: ast.expr) -> str:
    """Return the class that an expression makes an instance or a list of instances of."""
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return _made(source, value.elt)
    if isinstance(value, ast.List):
        names = {_made(source, element) for element in value.elts}
        return names.pop() if len(names) == 1 else ""
    if not isinstance(value, ast.Call):
        return ""
    if source.dotted(value.func).endswith(("nn.ModuleList", "nn.Sequential")) and value.args:
        return _made(source, value.args[0])
    owner, name = method_call(value)
    is_loaded = name in {"from_config", "from_pretrained"}
    return source.from_library(owner if is_loaded else value.func)
