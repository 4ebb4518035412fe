"""Values that a source states: literals, constants of the library, and what it makes of other fields."""

from __future__ import annotations

import ast
import copy
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from pydantic import JsonValue

from samebits.defaults.table import TORCH, Default, renamed

_RESAMPLING: Final = {
    "NEAREST": 0,
    "LANCZOS": 1,
    "BILINEAR": 2,
    "BICUBIC": 3,
    "BOX": 4,
    "HAMMING": 5,
}
"""``PIL.Image.Resampling``: https://pillow.readthedocs.io/en/stable/reference/Image.html#resampling-filters"""
_ENUMS: Final[Mapping[str, Mapping[str, JsonValue]]] = {
    "PILImageResampling": _RESAMPLING,
    "Resampling": _RESAMPLING,
    "ChannelDimension": {"FIRST": "channels_first", "LAST": "channels_last"},
}
_OPERATORS: Final[Mapping[type[ast.AST], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
SELF: Final = "self."
"""Begins the name of an attribute, which may differ from an argument of its name."""
RENAMES: Final = "_LEGACY_LAYER_TYPE_REMAP"
"""The constant with new names of kinds of layers."""
_MAX_RANGE = 1000
KWARGS: Final = "kwargs."
_MAX_POWER = 64
_DEFAULT_NAMES = ("default", "default_factory")
_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "len": len,
    "math.ceil": math.ceil,
    "max": max,
    "min": min,
    "sum": sum,
    "list": list,
    "dict": dict,
}


_TYPES: Final[Mapping[str, type]] = {"str": str, "dict": dict, "bool": bool}


class UnstatedError(ValueError):
    """The source does not state the value."""


@dataclass(frozen=True)
class Held:
    """A value that a base completes to a dict: the source states no more than that it is not None."""

    of: JsonValue


class Given:
    """A value that a class gives to its base: the source of the base shows no more than that it is not None."""

    def __bool__(self) -> bool:
        raise UnstatedError

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        raise UnstatedError

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Part:
    """A config inside, as the base of all configs or the class itself makes it where a file has none."""

    of: str
    type: str | None = None
    """``model_type``, where ``of`` is AutoConfig."""
    given: Mapping[str, JsonValue] | None = field(default_factory=dict)
    """What its class is given; None if the source does not state it."""
    is_made: bool = True

    @property
    def is_of_its_class(self) -> bool:
        """Whether it has the defaults of its class, also where a file has none of it."""
        return self.is_made and self.given == {}


class Inside(Protocol):
    """Knows what other files of the release state: the defaults of configs inside, and what bases complete."""

    def default(self, part: Part, name: str) -> JsonValue:
        """Return the default of a field.

        Raises:
            UnstatedError: no source states it.

        """

    def completed(self, cls: str, held: Held) -> Default:
        """Return ``rope_parameters`` of a class as the base of all configs completes them.

        Raises:
            UnstatedError: no source states it.

        """


@dataclass
class Scope:
    """Names and their values, at one place of a source."""

    constants: Mapping[str, JsonValue]
    aliases: dict[str, str] = field(default_factory=dict)
    """``self.other`` -> ``self.name``, of ``attribute_map``."""
    values: dict[str, Any] = field(default_factory=dict)
    needs: dict[str, frozenset[str]] = field(default_factory=dict)
    """Name -> the other fields that its value was made of."""
    keywords: set[str] = field(default_factory=set)
    """What the code itself adds to ``kwargs``: ``kwargs.NAME`` has the value."""
    unknown: set[str] = field(default_factory=set)
    """Names with a value that the source does not state."""
    read: set[str] = field(default_factory=set)
    """Fields that the last value was made of."""
    methods: Mapping[str, ast.FunctionDef] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)
    inside: Inside | None = None
    reads_inside: bool = False
    """Whether a value was made of what other files state."""
    cls: str = ""
    """The class that the source is of."""

    def copied(self) -> Scope:
        """Return the same names and values, to follow code that may change them."""
        return replace(
            self,
            values=copy.deepcopy(self.values),
            needs={**self.needs},
            unknown={*self.unknown},
            keywords={*self.keywords},
        )

    def look_up(self, name: str) -> JsonValue:
        """Return the value of a name, or of ``self.name``: that of the argument until the code assigns it.

        Raises:
            UnstatedError: it has none.

        """
        name = self.aliases.get(name, name)
        if name in self.unknown:
            raise UnstatedError
        if name in self.values:
            value: JsonValue = self.values[name]
            self.read |= {name.removeprefix(SELF)} | self.needs.get(name, frozenset())
            return value
        if name.startswith(SELF):
            return self.look_up(name.removeprefix(SELF))
        if name in self.constants:
            return copy.deepcopy(self.constants[name])
        if (needs := _newer_torch(name)) is not None:
            self.read |= needs
            return True
        raise UnstatedError

    def assign(self, name: str, node: ast.expr) -> None:
        """Give a name the value of an expression, or none."""
        name = self.aliases.get(name, name)
        try:
            self.values[name] = self.evaluate(node)
        except UnstatedError:
            self.forget(name)
            return
        self.unknown.discard(name)
        self.needs[name] = frozenset(self.read)

    def forget(self, name: str) -> None:
        """Take the value from a name, and from each other name of the same list or dict."""
        name = self.aliases.get(name, name)
        value = self.values.get(name)
        same = [other for other, held in self.values.items() if held is value]
        for other in [name, *(same if isinstance(value, (list, dict, Part)) else ())]:
            self.values.pop(other, None)
            self.unknown.add(other)

    def change(self, name: str, of: ast.expr, key: ast.expr, node: ast.expr, *, keep: bool) -> None:
        """Set a part of the dict ``of``, which belongs to a name; ``keep`` one that is there."""
        try:
            held, part, value = self.evaluate(of), self._value(key), self._value(node)
        except UnstatedError:
            self.forget(name)
            return
        root = self.values.get(name, self.values.get(name.removeprefix(SELF)))
        if root is None or not isinstance(held, dict) or not isinstance(part, str):
            self.forget(name)
            return
        held[part] = held[part] if keep and part in held else value
        for other in [other for other, value in self.values.items() if value is root]:
            self.needs[other] = self.needs.get(other, frozenset()) | self.read

    def evaluate(self, node: ast.expr) -> JsonValue:
        """Return the value of an expression as JSON has it: tuples are lists, keys are strings.

        Raises:
            UnstatedError: the source does not state the value.

        """
        self.read = set()
        value: JsonValue = self._value(node)
        if isinstance(value, Held):
            raise UnstatedError
        return value

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
            case ast.Name(id=name):
                return self.look_up(name)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                return self.look_up(f"{SELF}{name}")
            case ast.Attribute(
                value=ast.Attribute(value=ast.Name(id="self"), attr=part), attr=name
            ):
                return self._of_part(f"{SELF}{part}", name)
            case ast.Attribute(value=ast.Name(id=part), attr=name) if self._is_part(part):
                return self._of_part(part, name)
            case ast.DictComp(generators=[ast.comprehension(ifs=[test])]) if _asks_kwargs(test):
                return {}
            case ast.Subscript(value=of, slice=key):
                return _part(self._whole(self._value(of)), self._value(key))
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [_plain(self._value(part)) for part in parts]
            case ast.Dict(keys=keys, values=values) if None not in keys:
                named = [key for key in keys if key is not None]
                return {
                    str(self._value(key)): _plain(self._value(value))
                    for key, value in zip(named, values, strict=True)
                }
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _applied(ast.Mult(), -1, self._value(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self._value(operand)
            case ast.BinOp(left=left, op=kind, right=right):
                return _applied(kind, self._value(left), self._value(right))
            case ast.Compare(left=left, ops=[test], comparators=[right]):
                return _applied(test, self._value(left), self._value(right))
            case ast.IfExp(test=condition, body=body, orelse=orelse):
                return self._value(body if self._value(condition) else orelse)
            case ast.BoolOp():
                return self._either(node)
            case ast.Attribute(value=ast.Name(id=enum), attr=name):
                return _member(enum, name)
            case ast.Lambda(args=ast.arguments(args=[]), body=body):
                return self._value(body)
            case (
                ast.ListComp(elt=part, generators=[each])
                | ast.GeneratorExp(elt=part, generators=[each])
            ):
                return self._list(part, each)
            case ast.Call():
                return self._called(node)
            case _:
                raise UnstatedError

    def _either(self, node: ast.BoolOp) -> JsonValue:
        """Return the value of ``and`` or ``or``, which ends at the part that decides."""
        stops_at = isinstance(node.op, ast.Or)
        value: JsonValue = None
        for part in node.values:
            value = self._value(part)
            if bool(value) is stops_at:
                break
        return value

    def _called(self, node: ast.Call) -> Any:
        """Return the value of a call: of a field of a dataclass, of a token, of a conversion, of a size."""
        for keyword in node.keywords:
            if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Name):
                return self._converted(keyword.value.id, [])
            if keyword.arg in _DEFAULT_NAMES:
                return self._value(keyword.value)
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="kwargs"), attr="pop" | "get" as how),
                args=[ast.Constant(value=str(name)), default],
            ):
                return self._keyword(name, default, stays=how == "get")
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="kwargs"), attr="get"),
                args=[ast.Constant(value=str(name))],
            ):
                return self._keyword(name, ast.Constant(None), stays=True)
            case ast.Call(func=ast.Attribute(value=of, attr="get"), args=[key, *default]):
                held = self._value(of)
                if isinstance(held, dict) and len(default) <= 1:
                    absent = self._value(default[0]) if default else None
                    return held.get(str(self._value(key)), absent)
            case ast.Call(
                func=ast.Name(id="getattr"),
                args=[
                    ast.Attribute(value=ast.Name(id="self"), attr=part),
                    ast.Constant(value=str(name)),
                    *_,
                ],
            ):
                return self._of_part(f"{SELF}{part}", name)
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="self"), attr=name), args=given, keywords=[]
            ) if name in self.methods:
                return self._made_by(self.methods[name], given)
            case ast.Call(func=ast.Name(id="AddedToken"), args=[text, *_]):
                return self._value(text)
            case ast.Call(func=ast.Name(id="get_size_dict"), args=[size, *_]):
                value = self._value(size)
                if isinstance(value, dict):  # a size in full stays what it is
                    return value
            case ast.Call(
                func=ast.Name(id="isinstance"), args=[ast.expr() as part, ast.Name(id=kind)]
            ) if kind in _TYPES:
                return _is_of(self._value(part), kind)
            case ast.Call(func=ast.Name(id="remap_legacy_layer_types"), args=[part]):
                names = self.look_up(RENAMES)
                return renamed(self._value(part), names if isinstance(names, dict) else {})
            case ast.Call(func=func, args=parts, keywords=[]) if ast.unparse(func) in _CONVERSIONS:
                return self._converted(ast.unparse(func), parts)
            case ast.Call(func=ast.Name(id=name), args=[], keywords=keywords) if ast.unparse(
                node
            ) not in self.constants and name.endswith("Config"):
                return self._made_part(name, None, keywords)
            case (
                ast.Call(
                    func=ast.Subscript(value=ast.Name(id="CONFIG_MAPPING"), slice=kind),
                    args=[],
                    keywords=keywords,
                )
                | ast.Call(
                    func=ast.Attribute(value=ast.Name(id="AutoConfig"), attr="for_model"),
                    args=[kind],
                    keywords=keywords,
                )
            ):
                return self._made_part("AutoConfig", str(self._value(kind)), keywords)
            case ast.Call(func=ast.Name(), args=[], keywords=[]):
                return self.look_up(ast.unparse(node))
            case _:
                pass
        raise UnstatedError

    def _made_part(self, of: str, kind: str | None, keywords: Sequence[ast.keyword]) -> Any:
        """Return a config inside that the code makes; what it is given may have no stated value."""
        try:
            given = {each.arg: _plain(self._value(each.value)) for each in keywords}
        except UnstatedError:
            return Part(of, kind, None)
        rest = given.pop(None, {})
        named = {str(name): value for name, value in given.items()}
        return Part(of, kind, {**named, **rest} if isinstance(rest, dict) else None)

    def _is_part(self, name: str) -> bool:
        """Tell whether a local name is a config inside."""
        return isinstance(self.values.get(name), Part)

    def _whole(self, value: Any) -> Any:
        """Return a value with what a base has completed."""
        if not isinstance(value, Held):
            return value
        self.reads_inside = True
        if self.inside is None:
            raise UnstatedError
        default = self.inside.completed(self.cls, value)
        self.read |= {*default.needs}
        return default.value

    def _of_part(self, name: str, inner: str) -> JsonValue:
        """Return a field of a config inside that has its defaults."""
        held: Any = self.look_up(name)
        self.reads_inside = True
        if self.inside is None:
            raise UnstatedError
        if isinstance(held, Part):
            return self.inside.default(held, inner)
        name = name.removeprefix(SELF)
        part = self.parts.get(name)
        if part is None or not part.is_made or not (held is None or isinstance(held, dict)):
            raise UnstatedError
        if part.type:  # a file may name another type of it, with other defaults
            self.read.add(inner)
        else:
            self.read.discard(name)
            self.read |= {inner, f"{name}.{inner}"}
        return held[inner] if held and inner in held else self.inside.default(part, inner)

    def _made_by(self, method: ast.FunctionDef, given: Sequence[ast.expr]) -> JsonValue:
        """Return what a method of the class itself returns that only assigns before."""
        names = [argument.arg for argument in method.args.args[1:]]
        *before, last = method.body
        if len(names) != len(given) or not isinstance(last, ast.Return) or last.value is None:
            raise UnstatedError
        values = dict(zip(names, map(self._value, given), strict=True))
        own = self.copied()
        own.values |= values
        own.unknown -= values.keys()
        for statement in before:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    own.assign(name, value)
                    names.append(name)
                case ast.Expr(value=ast.Constant()):
                    continue
                case _:
                    raise UnstatedError
        made = own.evaluate(last.value)
        self.read |= own.read - {*names}
        return made

    def _list(self, part: ast.expr, each: ast.comprehension) -> JsonValue:
        """Return the list that a comprehension makes."""
        if not isinstance(each.target, ast.Name):
            raise UnstatedError
        name, made = each.target.id, []
        hidden = {name: self.values[name]} if name in self.values else {}
        try:
            for item in self._items(each.iter):
                self.values[name] = item
                if all(self._value(test) for test in each.ifs):
                    made.append(self._value(part))
        finally:
            self.values.pop(name, None)
            self.values |= hidden
            self.read.discard(name)
        return made

    def _items(self, node: ast.expr) -> list[JsonValue]:
        match node:
            case ast.Call(func=ast.Name(id="range"), args=parts, keywords=[]):
                ends = [self._value(part) for part in parts]
                if not all(isinstance(end, int) and abs(end) <= _MAX_RANGE for end in ends):
                    raise UnstatedError
                return list(range(*ends))
            case _:
                items = self._value(node)
                if not isinstance(items, list):
                    raise UnstatedError
                return [*items]

    def _keyword(self, name: str, default: ast.expr, *, stays: bool) -> Any:
        """Return a keyword that the code has added, or the default; a file may have it, too."""
        self.read.add(name)
        if name not in self.keywords:
            return self._value(default)
        if not stays:
            self.keywords.remove(name)
        return self.look_up(f"{KWARGS}{name}")

    def _converted(self, name: str, parts: list[ast.expr]) -> JsonValue:
        try:
            value: JsonValue = _CONVERSIONS[name](*(self._value(part) for part in parts))
        except (KeyError, TypeError, ValueError) as error:
            raise UnstatedError from error
        return value


def _asks_kwargs(test: ast.expr) -> bool:
    """Tell whether only what the caller gives passes a test: nothing, for an instance made without."""
    match test:
        case ast.Compare(ops=[ast.In()], comparators=[ast.Name(id="kwargs")]):
            return True
        case _:
            return False


def _applied(kind: ast.AST, left: JsonValue, right: JsonValue) -> JsonValue:
    if isinstance(kind, ast.Pow) and not (isinstance(right, int) and abs(right) <= _MAX_POWER):
        raise UnstatedError
    try:
        value: JsonValue = _OPERATORS[type(kind)](left, right)
    except (KeyError, TypeError, ArithmeticError) as error:
        raise UnstatedError from error
    return value


def _plain(value: Any) -> JsonValue:
    """Return a value that JSON has, or raise."""
    if isinstance(value, (Held, Part, Given)):
        raise UnstatedError
    plain: JsonValue = value
    return plain


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, Given):
        raise UnstatedError
    return isinstance(value, _TYPES[kind]) or (kind == "dict" and isinstance(value, Held))


def _newer_torch(name: str) -> frozenset[str] | None:
    """Return what a test of torch needs that is true where torch is there and new enough; None for other names."""
    if name == "is_torch_available()":
        return frozenset()
    match = re.fullmatch(r"is_torch_greater_or_equal_than_(\d+)_(\d+)", name)
    return frozenset([f"{TORCH}{match[1]}.{match[2]}"]) if match else None


def _part(of: JsonValue, key: JsonValue) -> JsonValue:
    try:
        value: JsonValue = of[key]  # type: ignore[index]
    except (KeyError, IndexError, TypeError) as error:
        raise UnstatedError from error
    return value


def _member(enum: str, name: str) -> JsonValue:
    try:
        return _ENUMS[enum][name]
    except KeyError as error:
        raise UnstatedError from error
