"""Values that a source states: literals, constants of the library, and what it makes of other fields."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import JsonValue

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
_MAX_POWER = 64
_DEFAULT_NAMES = ("default", "default_factory")
_CONVERSIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "len": len,
    "list": list,
    "dict": dict,
}


class UnstatedError(ValueError):
    """The source does not state the value."""


@dataclass
class Scope:
    """Names and their values, at one place of a source."""

    constants: Mapping[str, JsonValue]
    values: dict[str, JsonValue] = field(default_factory=dict)
    needs: dict[str, frozenset[str]] = field(default_factory=dict)
    """Name -> the other fields that its value was made of."""
    read: set[str] = field(default_factory=set)
    """Fields that the last value was made of."""

    def look_up(self, name: str) -> JsonValue:
        """Return the value of a name.

        Raises:
            UnstatedError: it has none.

        """
        if name in self.values:
            self.read |= {name} | self.needs.get(name, frozenset())
            return self.values[name]
        if name in self.constants:
            return self.constants[name]
        raise UnstatedError

    def evaluate(self, node: ast.expr) -> JsonValue:
        """Return the value of an expression as JSON has it: tuples are lists, keys are strings.

        Raises:
            UnstatedError: the source does not state the value.

        """
        self.read = set()
        return self._value(node)

    def _value(self, node: ast.expr) -> JsonValue:
        match node:
            case ast.Constant(value=None | bool() | int() | float() | str() as value):
                return value
            case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="self"), attr=name):
                return self.look_up(name)
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self._value(part) for part in parts]
            case ast.Dict(keys=keys, values=values) if None not in keys:
                named = [key for key in keys if key is not None]
                return {
                    str(self._value(key)): self._value(value)
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

    def _called(self, node: ast.Call) -> JsonValue:
        """Return the value of a call: of a field of a dataclass, of a token, of a conversion, of a size."""
        for keyword in node.keywords:
            if keyword.arg == "default_factory" and isinstance(keyword.value, ast.Name):
                return self._converted(keyword.value.id, [])
            if keyword.arg in _DEFAULT_NAMES:
                return self._value(keyword.value)
        match node:
            case ast.Call(func=ast.Name(id="AddedToken"), args=[text, *_]):
                return self._value(text)
            case ast.Call(func=ast.Name(id="get_size_dict"), args=[size, *_]):
                value = self._value(size)
                if isinstance(value, dict):  # a size in full stays what it is
                    return value
            case ast.Call(
                func=ast.Name(id="isinstance"), args=[ast.expr() as part, ast.Name(id="str")]
            ):
                return isinstance(self._value(part), str)
            case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]) if name in _CONVERSIONS:
                return self._converted(name, parts)
            case ast.Call(func=ast.Name(), args=[], keywords=[]):
                return self.look_up(ast.unparse(node))
            case _:
                pass
        raise UnstatedError

    def _converted(self, name: str, parts: list[ast.expr]) -> JsonValue:
        try:
            value: JsonValue = _CONVERSIONS[name](*(self._value(part) for part in parts))
        except (KeyError, TypeError, ValueError) as error:
            raise UnstatedError from error
        return value


def _applied(kind: ast.AST, left: JsonValue, right: JsonValue) -> JsonValue:
    if isinstance(kind, ast.Pow) and not (isinstance(right, int) and abs(right) <= _MAX_POWER):
        raise UnstatedError
    try:
        value: JsonValue = _OPERATORS[type(kind)](left, right)
    except (KeyError, TypeError, ArithmeticError) as error:
        raise UnstatedError from error
    return value


def _member(enum: str, name: str) -> JsonValue:
    try:
        return _ENUMS[enum][name]
    except KeyError as error:
        raise UnstatedError from error
