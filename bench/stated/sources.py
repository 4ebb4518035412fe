"""Defaults that the classes of a release state, read from its sources; nothing is imported."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import JsonValue

from bench.stated.values import (
    KWARGS,
    RENAMES,
    SELF,
    Given,
    Held,
    Inside,
    Part,
    Scope,
    UnstatedError,
)
from samebits.defaults.rope import FACTOR, OWN
from samebits.defaults.rope import FIELD as ROPE

KINDS: Final = {
    "config": re.compile(r"(models/.*/)?configuration_\w+\.py"),
    "base": re.compile(r"modeling_rope_utils\.py"),
    "processor": re.compile(
        r"(models/.*/)?(image_processing|video_processing|feature_extraction)_\w+\.py"
    ),
    "tokenizer": re.compile(r"(models/.*/)?tokenization_\w+\.py"),
    "generation": re.compile(r"generation/configuration_utils\.py"),
    "training": re.compile(r"training_args\w*\.py"),
}
"""Kind -> paths of its files, inside the folder ``transformers``."""
CONSTANTS: Final = "utils/constants.py"
BASE: Final = "configuration_utils.py"
_OF_CLASSES = frozenset({"config", "processor", "training", "generation"})
"""Kinds whose fields may stand in the body of the class."""
_PRIVATE: Final = f"{SELF}_"
_UNSTATED: Final = ast.Await(ast.Constant(None))
"""An expression that has no value here."""
_ROPE = frozenset({"default_theta", "default_rope_type"})
_POST = "__post_init__"
_CONVERTS = "convert_rope_params_to_dict"
_RENAMES_LAYERS = "remap_legacy_layer_types"
_STANDARDIZES = "standardize_rope_params"
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
    makes: dict[str, Part] = field(default_factory=dict)
    """Name of a config inside -> how the base of all configs makes it where a file has none."""
    overwritten: set[str] = field(default_factory=set)
    """Fields that ``__init__`` sets before that of the bases, without giving them to it."""
    before_base: set[str] = field(default_factory=set)
    """Fields that are set before ``__post_init__`` of the bases runs."""
    keeps: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Field that ``__post_init__`` leaves as a class gave it -> other fields that decide whether it does."""
    resets: set[str] = field(default_factory=set)
    """Fields that ``__post_init__`` sets again, whatever a class gave."""
    takes: dict[str, list[JsonValue]] = field(default_factory=dict)
    """Field -> values of an older form that ``__post_init__`` takes as its default."""
    reads_inside: bool = False
    """Whether the source reads what other files state."""
    aliases: dict[str, str] = field(default_factory=dict)
    """``attribute_map`` of a config: another name that a file may have -> the field."""
    fields: dict[str, JsonValue] = field(default_factory=dict)
    needs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Field -> other fields of which the source makes its default."""
    rope: dict[str, JsonValue] = field(default_factory=dict)
    """What the base of all configs completes ``rope_parameters`` with, as samebits/defaults/rope.py reads it."""
    renames: JsonValue = None
    """New names of kinds of layers, which a base gives to the lists of its classes."""
    computed: set[str] = field(default_factory=set)
    """Fields with a value that the source does not state."""


def shared_constants(text: str, base: str = "") -> dict[str, JsonValue]:
    """Return the constants of ``utils/constants.py``, such as IMAGENET_DEFAULT_MEAN, and the names of layers."""
    named = _constants(ast.parse(base), {})
    return _constants(ast.parse(text), {k: v for k, v in named.items() if k == RENAMES})


def kind_of(path: str) -> str | None:
    """Return the kind of a file; None if it has no defaults."""
    return next((kind for kind, pattern in KINDS.items() if pattern.fullmatch(path)), None)


def of_file(
    text: str,
    kind: str,
    shared: Mapping[str, JsonValue] | None = None,
    inside: Inside | None = None,
) -> dict[str, Stated]:
    """Return class -> what it states, of one file; ``inside`` knows the configs inside, of all files."""
    tree = ast.parse(text)
    constants = _constants(tree, shared or {})
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if kind == "generation":
        constants |= dict(_made(classes, constants))
    return {node.name: _of_class(node, kind, constants, inside) for node in classes}


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


def _of_class(
    node: ast.ClassDef,
    kind: str,
    constants: Mapping[str, JsonValue],
    inside: Inside | None = None,
) -> Stated:
    stated = Stated(kind, tuple(_name(base) for base in node.bases))
    methods = {} if kind == "base" else _methods(node)
    scope = Scope(constants, methods=methods, parts=stated.makes, inside=inside, cls=node.name)
    body = _Body(scope, methods)
    for statement in node.body:
        _read_attribute(statement, stated, body)
    if kind == "config" and _POST in methods:
        _give(methods[_POST], stated, body)
    for statement in node.body:
        _read_method(statement, kind, body)
    body.finish()
    if f"{_RENAMES_LAYERS}(config=self)" in ast.unparse(node):
        stated.renames = constants.get(RENAMES)
    _note(stated, body)
    if _POST in methods:
        _take(methods[_POST], stated, body)
    else:
        stated.before_base = {*body.fields}
    return stated


def _note(stated: Stated, body: _Body) -> None:
    """Note what the statements of a class have made of its fields."""
    values, needs = body.stated(), body.needs()
    stated.overwritten = body.overwritten
    stated.before_base = body.before_base
    stated.reads_inside = body.scope.reads_inside
    stated.fields = {
        name: values[name]
        for name in body.fields
        if name in values and not (name in stated.makes and isinstance(values[name], dict))
    }
    stated.computed = body.fields - stated.fields.keys()
    stated.needs = {name: tuple(sorted(needs[name])) for name in stated.fields if needs[name]}
    stated.rope = body.rope


def _give(method: ast.FunctionDef, stated: Stated, body: _Body) -> None:
    """Note what ``__post_init__`` makes of fields that a class gives another default."""
    for name in {n for n in _assigned(method) if n.startswith(SELF)}:
        tried = body.with_value(name, Given())
        tried.run(method.body)
        field, value = name.removeprefix(SELF), tried.scope.values.get(name)
        if isinstance(value, Given):
            stated.keeps[field] = tuple(sorted(tried.needs().get(field, ())))
        elif name in tried.scope.values:
            stated.resets.add(field)


def _take(method: ast.FunctionDef, stated: Stated, body: _Body) -> None:
    """Note the values of an older form that ``__post_init__`` takes as the default."""
    for name in {n for n in map(_asked_for_bool, ast.walk(method)) if n in stated.fields}:
        default = stated.fields[name]
        for old in (False, True):
            tried = body.with_value(f"{SELF}{name}", old)
            tried.run(s for s in method.body if f"{SELF}{name}" in _assigned(s))
            if not isinstance(default, bool) and tried.stated().get(name) == default:
                stated.takes.setdefault(name, []).append(old)


def _asked_for_bool(node: ast.AST) -> str:
    """Return the field of ``isinstance(self.field, bool)``."""
    match node:
        case ast.Call(
            func=ast.Name(id="isinstance"),
            args=[ast.Attribute(value=ast.Name(id="self"), attr=name), ast.Name(id="bool")],
        ):
            return name
        case _:
            return ""


def _methods(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    return {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}


def _read_attribute(statement: ast.stmt, stated: Stated, body: _Body) -> None:
    """Note what an attribute of a class states."""
    match statement:
        case ast.Assign(targets=[ast.Name(id="model_type")], value=ast.Constant(value=str(name))):
            stated.type = name
        case ast.Assign(
            targets=[ast.Name(id="sub_configs" | "sub_configs_defaults")], value=ast.Dict() as parts
        ):
            stated.makes.update(_parts(parts, body.scope))
            stated.parts = {
                name: part.of for name, part in stated.makes.items() if part.is_of_its_class
            }
        case ast.Assign(targets=[ast.Name(id="attribute_map")], value=ast.Dict() as names):
            with suppress(UnstatedError):
                stated.aliases = _names_of(names)
                body.scope.aliases = {
                    f"{SELF}{name}": f"{SELF}{real}" for name, real in stated.aliases.items()
                }
        case ast.AnnAssign(target=ast.Name(id=name), annotation=hint, value=ast.expr() as value):
            if stated.kind in _OF_CLASSES and not ast.unparse(hint).startswith("ClassVar"):
                body.state(name, value, attribute=True)
        case ast.Assign(targets=[ast.Name()]) | ast.If() if stated.kind == "training":
            body.run([statement])
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name in _ROPE:
            body.complete(name, value)
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if stated.kind == "processor":
            body.state(name, value, attribute=True)
        case _:
            return


def _names_of(node: ast.Dict) -> dict[str, str]:
    """Return a dict of names that a source states."""
    named = Scope({}).evaluate(node)
    return {str(k): str(v) for k, v in named.items()} if isinstance(named, dict) else {}


def _read_method(statement: ast.stmt, kind: str, body: _Body) -> None:
    """Follow a method that gives an instance its fields."""
    match statement:
        case ast.FunctionDef(name="__init__") if kind != "base":
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

    def __init__(self, scope: Scope, methods: Mapping[str, ast.FunctionDef] | None = None) -> None:
        self.scope = scope
        self.fields: set[str] = set()
        self.rope: dict[str, JsonValue] = {}
        self.overwritten: set[str] = set()
        self.before_base: set[str] = set()
        self._methods = methods or {}
        self._is_helper = False
        self._locals: set[str] = set()
        if self._methods.keys() & {_CONVERTS, _STANDARDIZES}:
            self.rope[OWN] = True

    def with_value(self, name: str, value: object) -> _Body:
        """Return the same statements followed so far, where a name has another value."""
        body = copy.copy(self)
        body.fields, body._locals = {*self.fields}, {*self._locals}
        body.rope = {**self.rope}
        body.scope = self.scope.copied()
        body.scope.values[name] = value
        return body

    def state(self, name: str, node: ast.expr, *, attribute: bool = False) -> None:
        """Note the default of a field."""
        if name not in _UNREAD and not name.startswith("_"):
            self.fields.add(name)
            self.overwritten.discard(name)
            self.before_base.discard(name)
            self.scope.assign(f"{SELF}{name}" if attribute else name, node)

    def complete(self, name: str, node: ast.expr) -> None:
        """Note what ``rope_parameters`` are completed with; None where the source does not state it."""
        self.scope.assign(name, node)
        self.rope[name] = self.scope.values.get(name)

    def stated(self) -> dict[str, JsonValue]:
        """Return field -> value."""
        names = {name: self._last(name) for name in self.fields}
        return {
            name: value.of if isinstance(value, Held) else value
            for name, last in names.items()
            if last in self.scope.values and not isinstance(value := self.scope.values[last], Part)
        }

    def needs(self) -> dict[str, frozenset[str]]:
        """Return field -> the others that its value was made of."""
        needs = self.scope.needs
        none = {*_ROPE, *(self._locals - self.fields)}
        return {
            name: needs.get(self._last(name), frozenset()) - none - {name} for name in self.fields
        }

    def _last(self, name: str) -> str:
        """Return the name that has the value of a field: of the attribute, or of an argument for a base."""
        own = f"{SELF}{name}"
        return own if own in self.scope.values or own in self.scope.unknown else name

    def _is_set(self, name: str) -> bool:
        """Tell whether the code has set an attribute itself."""
        return f"{SELF}{name}" in self.scope.values.keys() | self.scope.unknown

    def _completes(self) -> None:
        """Follow what the base does: its ``rope_parameters`` are no longer None."""
        if OWN in self.rope:
            self.finish()
        elif f"{SELF}{ROPE}" in self.scope.values:
            held = self.scope.values[f"{SELF}{ROPE}"]
            self.scope.values[f"{SELF}{ROPE}"] = held if isinstance(held, Held) else Held(held)

    def finish(self) -> None:
        """Follow how the class itself completes ``rope_parameters``, unless that was followed."""
        methods, self._methods = self._methods, {}
        if _CONVERTS in methods and not self._is_helper:
            self._is_helper = True  # its local names are no fields
            self.run(methods[_CONVERTS].body)
            self._is_helper = False
            text = ast.unparse(methods[_CONVERTS])
            if "super()" in text or not (f"self.{_STANDARDIZES}()" in text or self._is_whole()):
                self.scope.forget(f"{SELF}{ROPE}")
        if _STANDARDIZES in methods:
            self.scope.forget(f"{SELF}{ROPE}")

    def fill(self, node: ast.expr | None) -> None:
        """Note what ``generate()`` takes for a field that is None: a dict of fields."""
        if not isinstance(node, ast.Dict):
            return
        for key, value in zip(node.keys, node.values, strict=True):
            match key:
                case ast.Constant(value=str(name)) if self.stated().get(name, "") is None:
                    self.state(name, value, attribute=True)
                case _:
                    continue

    def run(self, statements: Iterable[ast.stmt]) -> None:
        """Follow statements; what a branch assigns that may or may not run has no stated value."""
        for statement in statements:
            match statement:
                case ast.Assign(
                    targets=[
                        ast.Subscript(
                            value=ast.Name(id="kwargs"), slice=ast.Constant(value=str(name))
                        )
                    ],
                    value=value,
                ):
                    self._keyword(name, value)
                case ast.Assign(targets=[ast.Subscript(value=of, slice=key)], value=value):
                    self.scope.change(_target(of), of, key, value, keep=False)
                case ast.Assign(targets=[target], value=value) if name := _target(target):
                    if name.startswith(SELF):
                        name = name.removeprefix(SELF)
                        self.state(name, _popped(value, name) or value, attribute=True)
                    else:
                        self._local(name, value)
                case ast.If():
                    self._branch(statement)
                case ast.Expr(value=ast.Call() as call):
                    self._call(statement, call)
                case _:
                    self._forget_assigned(statement)

    def _is_whole(self) -> bool:
        """Tell whether ``rope_parameters`` have all for each kind of layer, so that nothing can be added."""
        value = self.scope.values.get(f"{SELF}{ROPE}")
        return isinstance(value, dict) and all(
            isinstance(part, dict) and part.keys() >= {"rope_type", "rope_theta"}
            for part in value.values()
        )

    def _local(self, name: str, node: ast.expr) -> None:
        popped = _popped(node, name)
        if popped is not None and not self._is_helper:
            self.state(name, popped)
        else:
            self._locals.add(name)
            self.scope.assign(name, node)

    def _call(self, statement: ast.stmt, call: ast.Call) -> None:
        """Follow a call that stands alone: of the base, or one that sets what is not there."""
        match call:
            case ast.Call(
                func=ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=method),
                keywords=keywords,
            ):
                if method == "__init__":
                    names = self.fields - self.scope.keywords
                    self.overwritten = {name for name in names if self._is_set(name)}
                self.before_base = {*self.fields} if method == _POST else self.before_base
                for keyword in keywords:
                    if keyword.arg is not None:
                        self.state(keyword.arg, keyword.value, attribute=True)
                self._completes()
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="kwargs"), attr="setdefault"),
                args=[ast.Constant(value=str(name)), value],
            ):
                if name not in self.scope.keywords:
                    self._keyword(name, value)
            case ast.Call(func=ast.Attribute(value=of, attr="setdefault"), args=[key, value]):
                self.scope.change(_target(of), of, key, value, keep=True)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self")), keywords=keywords):
                for keyword in keywords:  # a method of its own may set what it is given
                    self.scope.forget(f"{SELF}{keyword.arg}")
            case _:
                self._forget_assigned(statement)

    def _keyword(self, name: str, node: ast.expr) -> None:
        """Follow what the code adds to ``kwargs``."""
        self.scope.assign(f"{KWARGS}{name}", node)
        self.scope.keywords.add(name)
        if name == FACTOR:
            self.rope[name] = self.scope.values.get(f"{KWARGS}{name}")
        else:  # the base makes an attribute of what is left
            self.fields.add(name)
            self.scope.forget(f"{SELF}{name}")

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
            self.scope.forget(name)
            if name.startswith(_PRIVATE):  # a property may show it
                self.scope.forget(f"{SELF}{name.removeprefix(_PRIVATE)}")
        for inner in ast.walk(statement):
            match inner:
                case (
                    ast.Call(
                        func=ast.Attribute(value=ast.Name(id="kwargs"), attr="setdefault"),
                        args=[ast.Constant(value=str(name)), _],
                    )
                    | ast.Subscript(
                        value=ast.Name(id="kwargs"),
                        slice=ast.Constant(value=str(name)),
                        ctx=ast.Store(),
                    )
                ):
                    self._keyword(name, _UNSTATED)
                case ast.For(iter=ast.List(elts=names) | ast.Tuple(elts=names)) if any(
                    _is_keyword(each) for each in ast.walk(inner)
                ):
                    for each in names:
                        if isinstance(each, ast.Constant) and isinstance(each.value, str):
                            self._keyword(each.value, _UNSTATED)
                case _:
                    continue


def _is_keyword(node: ast.AST) -> bool:
    """Tell whether a node sets a part of ``kwargs``."""
    match node:
        case ast.Subscript(value=ast.Name(id="kwargs"), ctx=ast.Store()):
            return True
        case _:
            return False


def _parts(node: ast.Dict, scope: Scope) -> Iterator[tuple[str, Part]]:
    for key, value in zip(node.keys, node.values, strict=True):
        match key, value:
            case ast.Constant(value=str(name)), ast.Name(id=of):
                yield name, Part(of)
            case (
                ast.Constant(value=str(name)),
                ast.Call(func=ast.Name(id="SubConfigSpec"), args=[], keywords=keywords),
            ):
                yield name, _part(keywords, scope)
            case _:
                pass


def _part(keywords: Iterable[ast.keyword], scope: Scope) -> Part:
    """Return the part of ``SubConfigSpec(config_class=..., model_type=..., init_kwargs=...)``."""
    named = {keyword.arg: keyword.value for keyword in keywords}
    facts: dict[str | None, Any] = {}
    for name in named.keys() - {"config_class"}:
        with suppress(UnstatedError):
            facts[name] = scope.evaluate(named[name])
    given = facts.get("init_kwargs", None if "init_kwargs" in named else {})
    is_made = facts.get("optional", "optional" in named) is False
    return Part(_name(named["config_class"]), facts.get("model_type"), given, is_made=is_made)


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
            case ast.Attribute(value=ast.Name() | ast.Attribute() as of, ctx=ast.Store()) if not (
                _target(inner)
            ):
                yield _target(of)  # a field of a config inside
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
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return f"{SELF}{name}"
        case ast.Subscript(value=of):
            return _target(of)
        case _:
            return ""


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
