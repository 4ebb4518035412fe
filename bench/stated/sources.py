"""Defaults that the classes of a release state, read from its sources; nothing is imported."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.stated.values import Scope, UnstatedError

if TYPE_CHECKING:
    from pydantic import JsonValue

KINDS: Final = {
    "config": re.compile(r"(models/.*/)?configuration_\w+\.py"),
    "processor": re.compile(
        r"(models/.*/)?(image_processing|video_processing|feature_extraction)_\w+\.py"
    ),
    "tokenizer": re.compile(r"(models/.*/)?tokenization_\w+\.py"),
    "generation": re.compile(r"generation/configuration_utils\.py"),
    "training": re.compile(r"training_args\w*\.py"),
}
"""Kind -> paths of its files, inside the folder ``transformers``."""
CONSTANTS: Final = "utils/constants.py"
_OF_CLASSES = frozenset({"config", "processor", "training", "generation"})
"""Kinds whose fields may stand in the body of the class."""
_UNREAD = frozenset(
    {"self", "args", "kwargs", "model_input_names", "valid_kwargs", "unused_kwargs"}
)


@dataclass
class Stated:
    """What one class states."""

    kind: str
    bases: tuple[str, ...]
    type: str | None = None
    """``model_type`` of a config."""
    parts: dict[str, str] = field(default_factory=dict)
    """Name of a config inside -> its class."""
    aliases: dict[str, str] = field(default_factory=dict)
    """``attribute_map`` of a config: another name that a file may have -> the field."""
    fields: dict[str, JsonValue] = field(default_factory=dict)
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Field -> other fields of which the source makes its default."""
    computed: set[str] = field(default_factory=set)
    """Fields with a value that the source does not state."""


def shared_constants(text: str) -> dict[str, JsonValue]:
    """Return the constants of ``utils/constants.py``, such as IMAGENET_DEFAULT_MEAN."""
    return _constants(ast.parse(text), {})


def kind_of(path: str) -> str | None:
    """Return the kind of a file; None if it has no defaults."""
    return next((kind for kind, pattern in KINDS.items() if pattern.fullmatch(path)), None)


def of_file(
    text: str, kind: str, shared: Mapping[str, JsonValue] | None = None
) -> dict[str, Stated]:
    """Return class -> what it states, of one file."""
    tree = ast.parse(text)
    constants = _constants(tree, shared or {})
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if kind == "generation":
        constants |= dict(_made(classes, constants))
    return {node.name: _of_class(node, kind, constants) for node in classes}


def _made(
    classes: Iterable[ast.ClassDef], constants: Mapping[str, JsonValue]
) -> Iterator[tuple[str, JsonValue]]:
    """Yield ``CompileConfig()`` and its fields, for each dataclass: such a call is a default of others."""
    for node in classes:
        if any("dataclass" in ast.unparse(each) for each in node.decorator_list):
            fields = _of_class(node, "generation", constants).fields
            yield f"{node.name}()", dict(sorted(fields.items()))


def _constants(tree: ast.Module, shared: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    scope = Scope(shared)
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name.isupper():
                with suppress(UnstatedError):
                    scope.values[name] = scope.evaluate(value)
            case _:
                continue
    return {**shared, **scope.values}


def _of_class(node: ast.ClassDef, kind: str, constants: Mapping[str, JsonValue]) -> Stated:
    stated = Stated(kind, tuple(_name(base) for base in node.bases))
    body = _Body(Scope(constants))
    for statement in node.body:
        _read_attribute(statement, stated, body)
    for statement in node.body:
        _read_method(statement, kind, body)
    values, needs = body.scope.values, body.scope.needs
    stated.fields = {name: values[name] for name in body.fields if name in values}
    stated.computed = body.fields - stated.fields.keys()
    others = {name: needs.get(name, frozenset()) - {name} for name in stated.fields}
    stated.needs = {name: tuple(sorted(of)) for name, of in others.items() if of}
    return stated


def _read_attribute(statement: ast.stmt, stated: Stated, body: _Body) -> None:
    """Note what an attribute of a class states."""
    match statement:
        case ast.Assign(targets=[ast.Name(id="model_type")], value=ast.Constant(value=str(name))):
            stated.type = name
        case ast.Assign(
            targets=[ast.Name(id="sub_configs" | "sub_configs_defaults")], value=ast.Dict() as parts
        ):
            stated.parts = dict(_parts(parts))
        case ast.Assign(targets=[ast.Name(id="attribute_map")], value=ast.Dict() as names):
            with suppress(UnstatedError):
                stated.aliases = _names_of(names)
        case ast.AnnAssign(target=ast.Name(id=name), annotation=hint, value=ast.expr() as value):
            if stated.kind in _OF_CLASSES and not ast.unparse(hint).startswith("ClassVar"):
                body.state(name, value)
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if stated.kind == "processor":
            body.state(name, value)
        case _:
            return


def _names_of(node: ast.Dict) -> dict[str, str]:
    """Return a dict of names that a source states."""
    named = Scope({}).evaluate(node)
    return {str(k): str(v) for k, v in named.items()} if isinstance(named, dict) else {}


def _read_method(statement: ast.stmt, kind: str, body: _Body) -> None:
    """Follow a method that gives an instance its fields."""
    match statement:
        case ast.FunctionDef(name="__init__"):
            for name, default in _arguments(statement):
                body.state(name, default)
            if kind != "tokenizer":  # those make of an argument what the vocabulary allows
                body.run(statement.body)
        case ast.FunctionDef(name="__post_init__") if kind == "config":
            body.run(statement.body)
        case ast.FunctionDef(
            name="_get_default_generation_params", body=[*_, ast.Return(value=returned)]
        ):
            body.fill(returned)
        case _:
            return


class _Body:
    """The statements that give an instance its fields, followed for an instance made without arguments."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.fields: set[str] = set()

    def state(self, name: str, node: ast.expr) -> None:
        """Note the default of a field."""
        if name not in _UNREAD and not name.startswith("_"):
            self.fields.add(name)
            self._assign(name, node)

    def _assign(self, name: str, node: ast.expr) -> None:
        try:
            value = self.scope.evaluate(node)
        except UnstatedError:
            self._forget(name)
            return
        self.scope.values[name] = value
        self.scope.needs[name] = frozenset(self.scope.read)

    def _forget(self, name: str) -> None:
        self.scope.values.pop(name, None)

    def fill(self, node: ast.expr | None) -> None:
        """Note what ``generate()`` takes for a field that is None: a dict of fields."""
        if not isinstance(node, ast.Dict):
            return
        for key, value in zip(node.keys, node.values, strict=True):
            match key:
                case ast.Constant(value=str(name)) if self.scope.values.get(name, "") is None:
                    self.state(name, value)
                case _:
                    continue

    def run(self, statements: Iterable[ast.stmt]) -> None:
        """Follow statements; what a branch assigns that may or may not run has no stated value."""
        for statement in statements:
            match statement:
                case ast.Assign(targets=[target], value=value) if name := _target(target):
                    popped = _popped(value, name)
                    if popped is not None or _is_field(target):
                        self.state(name, popped or value)
                    else:
                        self._assign(name, value)
                case ast.If():
                    self._branch(statement)
                case ast.Expr(
                    value=ast.Call(
                        func=ast.Attribute(value=ast.Call(func=ast.Name(id="super"))),
                        keywords=keywords,
                    )
                ):
                    for keyword in keywords:
                        if keyword.arg is not None:
                            self.state(keyword.arg, keyword.value)
                case _:
                    self._forget_assigned(statement)

    def _branch(self, statement: ast.If) -> None:
        if _is_of_kwargs(statement.test):
            self.run(statement.orelse)
            return
        try:
            chosen = statement.body if self.scope.evaluate(statement.test) else statement.orelse
        except UnstatedError:
            self._forget_assigned(statement)
            return
        needs = frozenset(self.scope.read)
        self.run(chosen)
        # also where the branch is not taken: a different value would take it
        for name in _assigned(statement):
            self.scope.needs[name] = self.scope.needs.get(name, frozenset()) | needs

    def _forget_assigned(self, statement: ast.stmt) -> None:
        for name in _assigned(statement):
            self._forget(name)


def _parts(node: ast.Dict) -> Iterator[tuple[str, str]]:
    for key, value in zip(node.keys, node.values, strict=True):
        match key, value:
            case ast.Constant(value=str(name)), ast.Name(id=of):
                yield name, of
            case _:
                pass


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _arguments(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args]
    with_default = named[len(named) - len(arguments.defaults) :]
    for argument, default in zip(with_default, arguments.defaults, strict=True):
        yield argument.arg, default
    for argument, keyword_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if keyword_default is not None:
            yield argument.arg, keyword_default


def _assigned(node: ast.AST) -> Iterator[str]:
    """Yield the names that a statement assigns, wherever inside it."""
    for inner in ast.walk(node):
        match inner:
            case (
                ast.Name(ctx=ast.Store())
                | ast.Attribute(ctx=ast.Store())
                | ast.Subscript(ctx=ast.Store())
            ):
                yield _target(inner)
            case ast.Call(func=ast.Attribute(value=of)):
                yield _target(of)  # a method may change a list or a dict
            case _:
                pass


def _target(node: ast.expr) -> str:
    """Return the name of ``name`` or ``self.name``, also of a part of it."""
    match node:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
        case ast.Subscript(value=of):
            return _target(of)
        case _:
            return ""


def _is_field(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute)


def _is_of_kwargs(test: ast.expr) -> bool:
    """Tell whether a branch runs only for a keyword that the caller gives."""
    match test:
        case ast.BoolOp(op=ast.And(), values=parts):
            return any(map(_is_of_kwargs, parts))
        case ast.Compare(left=ast.Constant(), ops=[ast.In()], comparators=[ast.Name(id="kwargs")]):
            return True
        case ast.Compare(left=given, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            return _is_of_kwargs(given)
        case ast.NamedExpr(value=given):
            return _is_of_kwargs(given)
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="kwargs"), attr="pop" | "get"),
            args=[_] | [_, ast.Constant(value=None | False)],
        ):
            return True
        case _:
            return False


def _popped(node: ast.expr, name: str) -> ast.expr | None:
    """Return the default of ``kwargs.pop(name, default)``."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="kwargs"), attr="pop" | "get"),
            args=[ast.Constant(value=key), default],
        ) if key == name:
            return default
        case _:
            return None
