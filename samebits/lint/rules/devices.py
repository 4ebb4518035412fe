"""SB3xx: tensors of two devices, where a model is made on the meta device."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from samebits.lint.guards import guarded
from samebits.lint.problem import LintRule, Problem
from samebits.lint.project import Project, problem
from samebits.lint.releases import since
from samebits.lint.rules.loading import FACTORIES, constructor, runs_with
from samebits.lint.source import Source
from samebits.lint.syntax import (
    Function,
    argument_names,
    assigned,
    inside,
    is_constant,
    is_name,
    keyword,
    method_call,
    own_attribute,
)

_META, _CPU, _SAME = "meta", "cpu", "where it was"
_MADE_ON_META = FACTORIES - {"linspace"}
"""Functions that follow ``torch.device("meta")``; 5.6.2 and later make ``torch.linspace`` on the CPU."""
_MADE_ON_CPU = {"Tensor", "FloatTensor", "DoubleTensor", "HalfTensor", "LongTensor", "IntTensor"}
"""Constructors of torch that no default device reaches."""
_KEEPING = {
    *("abs", "contiguous", "double", "exp", "expand", "flatten", "float", "half", "long", "neg", "permute", "repeat"),
    *("reshape", "squeeze", "t", "transpose", "unsqueeze", "view"),
}  # fmt: skip
"""Methods of a tensor, and functions of torch, whose result lies where their input does."""


def _mixed(project: Project) -> Iterator[Problem]:
    """Find sums and products of a tensor on the meta device and one on the CPU, made while a model is made."""
    for entry in project.loaded_parts:
        methods = [m for owner, m in constructor(project, entry) if owner.node is entry.node]
        for method in methods:
            calls = [c for m in methods for c in inside(m, ast.Call) if _calls(method, c)]
            if method.name != "__init__" and not any(_is_run(entry.source, c) for c in calls):
                continue
            places = _Places(entry.source, method, _absent(method, calls))
            for node in inside(method, ast.BinOp):
                sides = {places.of(node.left): node.left, places.of(node.right): node.right}
                if sides.keys() != {_META, _CPU} or not _is_run(entry.source, node):
                    continue
                if not guarded(entry.source, node):
                    yield _problem(entry.source, method, node, sides[_CPU])


def _problem(source: Source, method: Function, node: ast.BinOp, on_cpu: ast.expr) -> Problem:
    return problem(
        source,
        node,
        f"{method.name}() runs on the meta device, which torch.Tensor() does not heed: {ast.unparse(on_cpu)} "
        "is on the CPU and the other operand is not: RuntimeError while the model loads",
        since("5.0"),
        "make both tensors with device='cpu', by torch.tensor() in place of torch.Tensor()",
    )


def _calls(method: Function, call: ast.Call) -> bool:
    return own_attribute(call.func) == method.name


def _is_run(source: Source, node: ast.AST) -> bool:
    """Return True if a node runs whenever its method does."""
    method = source.function(node)
    is_method = isinstance(source.parents.get(method), ast.ClassDef) if method else False
    return is_method and runs_with(source, method, node)


def _absent(method: Function, calls: Sequence[ast.Call]) -> set[str]:
    """Return the arguments that are None by default, and that no call of a method passes."""
    places = [a.arg for a in method.args.args]
    defaults = zip(reversed(places), reversed(method.args.defaults), strict=False)
    names = {name for name, default in defaults if is_constant(default, None)}
    for call in calls:
        if any(k.arg is None for k in call.keywords) or any(
            isinstance(a, ast.Starred) for a in call.args
        ):
            return set()
        names -= {k.arg for k in call.keywords if k.arg} | set(places[1 : len(call.args) + 1])
    return names


class _Places:
    """Where the tensors of one method lie, while a model is made; None for what is not certain."""

    def __init__(self, source: Source, method: Function, absent: set[str]) -> None:
        self._source = source
        self._method = method
        self._absent = absent
        self._asked: set[str] = set()

    def of(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self._of_name(node.id)
        if isinstance(node, ast.Subscript):
            return self.of(node.value)
        if isinstance(node, ast.UnaryOp):
            return self.of(node.operand)
        if isinstance(node, ast.BinOp):
            sides = {self.of(node.left), self.of(node.right)} - {None}  # a number
            return sides.pop() if len(sides) == 1 else None
        return self._of_call(node) if isinstance(node, ast.Call) else None

    def _of_name(self, name: str) -> str | None:
        """Return the one place of all values of a variable; a value made of the variable itself changes nothing."""
        if name in self._asked:
            return _SAME
        values = assigned(self._method, name)
        writes = [n for n in inside(self._method, ast.Name) if is_name(n, name) and _is_set(n)]
        if len(writes) != len(values) or name in argument_names(self._method):
            return None  # a loop, an argument or a part of a tuple
        self._asked.add(name)
        places = {self.of(value) for value in values} - {_SAME}
        self._asked.discard(name)
        return places.pop() if len(places) == 1 else None

    def _of_call(self, call: ast.Call) -> str | None:
        name = self._source.dotted(call.func)
        if name.startswith("torch."):
            return self._of_torch(name.removeprefix("torch."), call)
        owner, called = method_call(call)
        if owner is None:
            return None
        if called == "to":
            stays = len(call.args) == 1 and not call.keywords and self._is_none(call.args[0])
            return self.of(owner) if stays else None
        return self.of(owner) if called in _KEEPING else None

    def _of_torch(self, name: str, call: ast.Call) -> str | None:
        if name in _MADE_ON_CPU:
            return _CPU
        if name in _KEEPING and call.args:
            return self.of(call.args[0])
        device = keyword(call, "device")
        is_free = device is None or self._is_none(device.value)
        return _META if name in _MADE_ON_META and is_free else None

    def _is_none(self, node: ast.expr) -> bool:
        return is_constant(node, None) or (isinstance(node, ast.Name) and node.id in self._absent)


def _is_set(node: ast.Name) -> bool:
    return not isinstance(node.ctx, ast.Load)


RULES = (LintRule("SB305", "error", _mixed),)
