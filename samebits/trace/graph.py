"""Graph of a trace: which operation produced a value, from which inputs, and which use it."""

from __future__ import annotations

import base64
from collections.abc import Iterable

import numpy as np

from samebits.records.trace import Function, Op, Trace, Value

LAYOUT = frozenset(
    [
        "as_strided",
        "cat",
        "chunk",
        "clone",
        "contiguous",
        "copy",
        "copy_",
        "diagonal",
        "expand",
        "flip",
        "gather",
        "index",
        "index_select",
        "narrow",
        "permute",
        "repeat",
        "repeat_interleave",
        "roll",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "stack",
        "t",
        "transpose",
        "unbind",
        "unfold",
        "unsqueeze",
        "unsafe_split",
        "view",
        "_reshape_alias",
        "write",
        "constant_pad_nd",
        "masked_select",
        "slice_scatter",
        "select_scatter",
        "_unsafe_index",
        "_unsafe_view",
        "alias",
        "detach",
    ]
)
"""Operations whose results hold only elements of their inputs, and zeros."""

_BITS = {"float64": 64, "float32": 32, "bfloat16": 16, "float16": 16}
_LOSSLESS = {("bfloat16", "float32"), ("float16", "float32")} | {
    (small, "float64") for small in ("bfloat16", "float16", "float32")
}


RowKey = tuple[str, int, int]


def row_keys(value: Value) -> list[RowKey] | None:
    """Return the identities of the rows of a value; None if they were not computed."""
    if not value.rows:
        return None
    numbers = np.frombuffer(base64.b64decode(value.rows), "<i8").tolist()
    return [(value.dtype, value.shape[-1], number) for number in numbers]


def _numbers_by_row(trace: Trace) -> dict[RowKey, int]:
    numbers: dict[RowKey, int] = {}
    for number, value in enumerate(trace.values):
        for key in row_keys(value) or ():
            numbers.setdefault(key, number)
    return numbers


class Graph:
    """One trace, indexed by content."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.by_hash = {value.hash: i for i, value in enumerate(trace.values)}
        self.by_bag = {v.bag: i for i, v in enumerate(trace.values) if v.bag}
        self.by_row = _numbers_by_row(trace)
        self._producers: dict[int, int] = {}
        self._users: dict[int, list[int]] = {}
        for index, op in enumerate(trace.ops):
            for value in op.inputs:
                self._users.setdefault(value, []).append(index)
            for value in op.outputs:
                # an operation does not produce a value that it returns unchanged
                if value not in op.inputs and value not in trace.sources:
                    self._producers.setdefault(value, index)

    def value(self, number: int) -> Value:
        """Return a value by its number."""
        return self.trace.values[number]

    def root(self, number: int) -> str:
        """Return an identity of a content that ignores the order of its elements."""
        value = self.value(number)
        return value.bag or value.hash

    def rows(self, number: int) -> list[RowKey] | None:
        """Return the identities of a value's rows; None if they are not known."""
        return row_keys(self.value(number))

    def producer(self, value: int) -> int | None:
        """Return the first operation that produced a value; None if none did."""
        return self._producers.get(value)

    def users(self, value: int) -> list[int]:
        """Return the operations that take a value."""
        return self._users.get(value, [])

    def op(self, index: int) -> Op:
        """Return an operation by its number."""
        return self.trace.ops[index]

    def name(self, index: int) -> str:
        """Return an operation's name with its overload, such as ``mm.default``."""
        return self.trace.names[self.op(index).name]

    def base(self, index: int) -> str:
        """Return an operation's name without overload and in-place mark, such as ``mm``."""
        name = self.name(index).partition(".")[0]
        return name[:-1] if name.endswith("_") and not name.startswith("__") else name

    def arguments(self, index: int) -> str:
        """Return an operation's arguments as written."""
        return self.trace.arguments[self.op(index).arguments]

    def module(self, index: int) -> str:
        """Return the name of the module that an operation ran in."""
        return self.trace.modules[self.op(index).module]

    def functions(self, index: int) -> list[Function]:
        """Return the functions that an operation was called from, innermost first."""
        numbers = self.trace.chains[self.op(index).chain].split()
        return [self.trace.functions[int(number)] for number in numbers]

    def is_layout(self, index: int) -> bool:
        """Return True if an operation only moves or copies elements."""
        base = self.base(index)
        if base != "_to_copy":
            return base in LAYOUT or f"{base}_" in LAYOUT
        op = self.op(index)
        source_dtype, result_dtype = (self.value(v).dtype for v in (op.inputs[0], op.outputs[0]))
        return source_dtype == result_dtype or (source_dtype, result_dtype) in _LOSSLESS

    def is_index(self, number: int) -> bool:
        """Return True if a value selects elements: a mask, positions, indices."""
        value = self.value(number)
        return value.structural or value.dtype not in _BITS

    def data_inputs(self, index: int) -> list[int]:
        """Return the values that an operation takes its numbers from."""
        return [v for v in self.op(index).inputs if not self.is_index(v)]

    def described(self, numbers: Iterable[int]) -> tuple[str, ...]:
        """Return dtype, shape and name of values, for a reader."""
        return tuple(map(self._described, numbers))

    def _described(self, number: int) -> str:
        value = self.value(number)
        shape = f"{value.dtype}{list(value.shape)}"
        name = self.trace.sources.get(number, "")
        if value.literal is not None and value.literal:
            shape += f" = {', '.join(value.literal)}"
        return f"{shape} {name}".strip() if name != "constant" else shape
