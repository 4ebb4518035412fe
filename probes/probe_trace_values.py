"""Which content does a tensor hold, whatever its shape and strides: the identity that traces join by.

A value is a dtype and the bytes of the logically contiguous tensor. Nothing is hashed twice: a
tensor carries its value together with the version counter that in-place operations advance.
"""

from __future__ import annotations

import base64
import hashlib
import math
from functools import cache
from typing import Any

import torch

from probe_tensor import NotHashable, dtype_name, raw_bytes

Fact = dict[str, Any]

LITERAL_LIMIT = 4
"""Elements up to which a value's numbers stand in the trace."""
_MARK = "_samebits_value"
_LOOSE_LIMIT = 1 << 18
"""Elements above which a value is identified by its bytes alone."""
_MOST_ROWS = 512
_GRID = 20
_BEYOND = 1e30
"""Where masks begin: a mask's smallest number depends on the dtype it was made for."""
_SENTINEL = 2**31 - 1
_PATTERNS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
_SYMBOLIC = 1 << 16
"""Bytes above which a view of a parameter is identified by base and layout and not hashed."""


class Values:
    """Numbers the contents that it meets, in the order of meeting."""

    def __init__(self, pads: torch.Tensor | None = None, *, coarse: bool = False) -> None:
        self._coarse = coarse
        self.facts: list[Fact] = []
        """Per value: hash, dtype, shape at the first meeting, structural, literal."""
        self._ids: dict[Any, int] = {}
        self._bases: list[tuple[int, torch.Tensor, tuple[Any, ...] | None]] = []
        self._marked: list[torch.Tensor] = []
        self.pads = pads

    def known(self, tensor: torch.Tensor) -> int | None:
        """Return the value that a tensor carries, if nothing has written into it since."""
        mark = getattr(tensor, _MARK, None)
        return mark[1] if mark is not None and mark[0] == _version(tensor) else None

    def stale(self, tensor: torch.Tensor) -> int | None:
        """Return the value that a tensor carried before something wrote into it."""
        mark = getattr(tensor, _MARK, None)
        return None if mark is None else mark[1]

    def mark(self, tensor: torch.Tensor, value: int) -> None:
        """Make a tensor carry a value."""
        version = _version(tensor)
        if version is not None:
            setattr(tensor, _MARK, (version, value))
            if isinstance(tensor, torch.nn.Parameter) or tensor.is_leaf:
                self._marked.append(tensor)

    def of(self, tensor: torch.Tensor, *, structural: bool = False) -> int:
        """Return the value of a tensor, hashed if it carries none."""
        value = self.known(tensor)
        if value is not None:
            return value
        key = self.digest(tensor, None if structural else self.pads)
        value = self._number(key, tensor, structural=structural)
        self.mark(tensor, value)
        return value

    def of_written(self, tensor: torch.Tensor, *, structural: bool) -> int:
        """Return the value of a tensor that an operation has just written into.

        Its version is counted up when the operation returns, which is after this.
        """
        key = self.digest(tensor, None if structural else self.pads)
        value = self._number(key, tensor, structural=structural)
        version = _version(tensor)
        if version is not None:
            setattr(tensor, _MARK, (version + 1, value))
        return value

    def of_source(self, tensor: torch.Tensor) -> int:
        """Return the value of a parameter or buffer; a large one is hashed when all is done."""
        if _nbytes(tensor) <= _SYMBOLIC or tensor.is_meta:
            return self.of(tensor)
        return self._later(("source", id(tensor)), tensor, None)

    def of_view(self, tensor: torch.Tensor, base: int) -> int | None:
        """Return the value of a view of a large parameter; None if ``base`` is none."""
        if not any(value == base for value, _, layout in self._bases if layout is None):
            return None
        layout = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
        return self._later(("view", base, layout), tensor, layout)

    def close(self) -> None:
        """Hash what was put off and leave no mark on tensors that live on."""
        bases = {}
        for value, tensor, layout in self._bases:
            if layout is None:
                bases[value] = self.digest(tensor, None)
                self.facts[value]["hash"] = bases[value]
        by_key = {value: key for key, value in self._ids.items()}
        for value, _, layout in self._bases:
            if layout is not None:
                text = f"{bases[by_key[value][1]]} {layout}"
                self.facts[value]["hash"] = hashlib.sha256(text.encode()).hexdigest()[:20]
        for tensor in self._marked:
            if hasattr(tensor, _MARK):
                delattr(tensor, _MARK)

    def digest(self, tensor: torch.Tensor, pads: torch.Tensor | None) -> str:
        """Return the identity of a content; a coarse one does not see rounding of float64."""
        if not self._coarse or not tensor.is_floating_point():
            return digest(tensor, pads)
        real = tensor if pads is None else without_pads(tensor, pads)
        return digest(coarsened(real), None)

    def fact(
        self, tensor: torch.Tensor, known: str | None = None, *, structural: bool = False
    ) -> Fact:
        """Return what identifies a content; ``known`` is its digest, '' if that comes later."""
        fact: Fact = {
            "hash": self.digest(tensor, self.pads) if known is None else known,
            "dtype": dtype_name(tensor.dtype),
            "shape": list(tensor.shape),
        }
        if fact["hash"] and tensor.is_floating_point() and not structural:
            real = tensor if self.pads is None else without_pads(tensor, self.pads)
            fact |= _loose(coarsened(real) if self._coarse else real)
        if structural:
            fact["structural"] = True
        if tensor.numel() <= LITERAL_LIMIT and not tensor.is_meta:
            fact["literal"] = [repr(number) for number in tensor.detach().flatten().tolist()]
        return fact

    def _later(self, key: Any, tensor: torch.Tensor, layout: tuple[Any, ...] | None) -> int:
        new = key not in self._ids
        value = self._number(key, tensor, structural=False)
        if new:
            self._bases.append((value, tensor, layout))
        self.mark(tensor, value)
        return value

    def _number(self, key: Any, tensor: torch.Tensor, *, structural: bool) -> int:
        value = self._ids.get(key)
        if value is not None:
            return value
        self._ids[key] = len(self.facts)
        fact = self.fact(tensor, key if isinstance(key, str) else "", structural=structural)
        self.facts.append(fact)
        return self._ids[key]


def digest(tensor: torch.Tensor, pads: torch.Tensor | None) -> str:
    """Return 80 bits of SHA-256 over dtype and bytes, those of padding rows taken as zero."""
    if pads is not None and tensor.is_floating_point():
        tensor = without_pads(tensor, pads)
    made = hashlib.sha256(dtype_name(tensor.dtype).encode())
    try:
        made.update(raw_bytes(tensor))
    except (NotHashable, RuntimeError, TypeError) as reason:
        made.update(f"{type(reason).__name__} {list(tensor.shape)}".encode())
    return made.hexdigest()[:20]


def coarsened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor's numbers as int32 multiples of 2^-20 of the power of two above the largest.

    In float64 rounding is some 2^-50 of that, so two sides agree unless they compute something
    else; a number that lies that near to the middle between two multiples is one in 2^30.
    """
    numbers = tensor.detach().to(torch.float64)
    outside = ~(numbers.abs() < _BEYOND)
    inside = numbers.masked_fill(outside, 0.0)
    largest = float(inside.abs().max()) if inside.numel() else 0.0
    scale = 2.0 ** (_GRID - math.frexp(largest)[1]) if largest else 1.0
    found = (inside * scale).round().to(torch.int32)
    found = torch.where(outside & (numbers < 0), -_SENTINEL, found)
    return torch.where(outside & ~(numbers < 0), _SENTINEL, found)


def _loose(tensor: torch.Tensor) -> Fact:
    """Return what identifies a tensor whatever the order of its elements, and that of its rows.

    bag: sums of the bit patterns and of their squares and cubes, modulo 2^64. rows: per row of the
    last axis a weighted sum of bit patterns, so that a row is found in any other tensor.
    """
    count = tensor.numel()
    if tensor.is_meta or tensor.layout != torch.strided or not 4 < count <= _LOOSE_LIMIT:
        return {}
    pattern = _PATTERNS.get(tensor.element_size())
    if pattern is None:
        return {}
    bits = tensor.detach().to("cpu").contiguous().view(pattern)
    bits = bits.to(torch.int64)
    squares = bits * bits
    sums = torch.stack([bits.sum(), squares.sum(), (squares * bits).sum()])
    found = {"bag": sums.numpy().tobytes().hex()}
    width = tensor.shape[-1] if tensor.ndim > 1 else 0
    if width > 1 and count // width <= _MOST_ROWS:
        rows = (bits.reshape(-1, width) * _weights(width)).sum(1)
        found["rows"] = base64.b64encode(rows.numpy().tobytes()).decode()
    return found


@cache
def _weights(width: int) -> torch.Tensor:
    words = b"".join(hashlib.sha256(f"row {i}".encode()).digest()[:8] for i in range(width))
    return torch.frombuffer(bytearray(words), dtype=torch.int64)


def without_pads(tensor: torch.Tensor, pads: torch.Tensor) -> torch.Tensor:
    """Return a tensor with zeros where its token axis is padding; itself if it has no such axis.

    The token axis is the first behind the batch that is as long as the prompt, or the first one
    if batch and prompt are flattened. Of scores those are the queries.
    """
    rows, width = pads.shape
    if tensor.ndim >= 2 and tensor.shape[0] == rows * width:
        shape = (rows * width, *[1] * (tensor.ndim - 1))
        return tensor.masked_fill(pads.reshape(shape), 0.0)
    if tensor.ndim < 2 or tensor.shape[0] != rows:
        return tensor
    axis = next((i for i in range(1, tensor.ndim) if tensor.shape[i] == width), None)
    if axis is None:
        return tensor
    shape = tuple(rows if i == 0 else width if i == axis else 1 for i in range(tensor.ndim))
    return tensor.masked_fill(pads.reshape(shape), 0.0)


def _version(tensor: torch.Tensor) -> int | None:
    try:
        return int(tensor._version)
    except RuntimeError:  # tensors made in inference mode count no versions
        return None


def _nbytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())
