"""Values: contents of tensors regardless of shape and strides, by which traces are joined.

A value is a dtype and the bytes of the logically contiguous tensor. No tensor is hashed twice: a
tensor carries its value together with the version counter that in-place operations advance.
"""

from __future__ import annotations

import base64
import hashlib
import math
from functools import cache
from typing import Any

import numpy as np
import torch

from samebits_probe.model.tensor import NotHashable, dtype_name, raw_bytes
from samebits_probe.process.hashing import hasher

Fact = dict[str, Any]

LITERAL_LIMIT = 4
"""Elements up to which a trace contains a value's numbers."""
_MARK = "_samebits_value"
_MAX_LOOSE_ELEMENTS = 1 << 18
"""Elements above which a value is identified only by its bytes."""
_MAX_ROWS = 512
_GRID = 20
_MASK_SIZE = 1e30
"""Size at which numbers are a mask's: a mask's smallest number depends on its dtype."""
_SENTINEL = 2**31 - 1
_PATTERNS = {2: np.int16, 4: np.int32, 8: np.int64}
_MAX_HASHED_BYTES = 1 << 16
"""Bytes above which a view of a parameter is identified by base and layout, without a hash."""


class Values:
    """Numbers contents in the order in which they appear."""

    def __init__(self, pads: torch.Tensor | None = None, *, coarse: bool = False) -> None:
        self._coarse = coarse
        self.defers = True
        """Whether large parameters are hashed last, and their views not at all."""
        self.scaled = False
        """Whether coarse contents differ if one is the other times a power of two."""
        self.facts: list[Fact] = []
        """Per value: hash, dtype, shape at its first appearance, structural, literal."""
        self._ids: dict[Any, int] = {}
        self._deferred: list[tuple[int, torch.Tensor, tuple[Any, ...] | None]] = []
        self._large_values: set[int] = set()
        self._marked: list[torch.Tensor] = []
        self.pads = pads

    def carried(self, tensor: torch.Tensor) -> int | None:
        """Return the value that a tensor carries; None if it was written into since."""
        mark = getattr(tensor, _MARK, None)
        return mark[1] if mark is not None and mark[0] == _version(tensor) else None

    def stale(self, tensor: torch.Tensor) -> int | None:
        """Return the value that a tensor carried before it was written into."""
        mark = getattr(tensor, _MARK, None)
        return None if mark is None else mark[1]

    def mark(self, tensor: torch.Tensor, value: int, base: torch.Tensor | None = None) -> None:
        """Attach a value to a tensor; ``base`` counts the versions of a view being made."""
        if (version := _version(tensor if base is None else base)) is not None:
            setattr(tensor, _MARK, (version, value))
            if isinstance(tensor, torch.nn.Parameter) or tensor.is_leaf:
                self._marked.append(tensor)

    def of(
        self, tensor: torch.Tensor, *, structural: bool = False, base: torch.Tensor | None = None
    ) -> int:
        """Return the value of a tensor, hashed if it carries none."""
        if (value := self.carried(tensor)) is not None:
            return value
        value = self._hashed(tensor, structural=structural)
        self.mark(tensor, value, base)
        return value

    def of_written(self, tensor: torch.Tensor, *, structural: bool) -> int:
        """Return the value of a tensor that an operation has just written into.

        Its version is counted up when the operation returns, which is after this.
        """
        value = self._hashed(tensor, structural=structural)
        if (version := _version(tensor)) is not None:
            setattr(tensor, _MARK, (version + 1, value))
        return value

    def of_source(self, tensor: torch.Tensor) -> int:
        """Return the value of a parameter or buffer; a large one is hashed in :meth:`close`."""
        if not self.defers or _nbytes(tensor) <= _MAX_HASHED_BYTES or tensor.is_meta:
            return self.of(tensor)
        value = self._defer(("source", id(tensor)), tensor, None)
        self._large_values.add(value)
        return value

    def of_view(
        self, tensor: torch.Tensor, value: int, base: torch.Tensor, *, structural: bool
    ) -> int:
        """Return the value of a new view of ``base``, which has ``value``.

        A view of a large parameter is not hashed: parameter and layout identify it.
        """
        if value in self._large_values:
            layout = (tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
            return self._defer(("view", value, layout), tensor, layout, base)
        return self.of(tensor, structural=structural, base=base)

    def close(self) -> None:
        """Hash the deferred tensors and remove the marks from tensors that continue to exist."""
        bases = {}
        for value, tensor, layout in self._deferred:
            if layout is None:
                bases[value] = self.digest(tensor, None)
                self.facts[value]["hash"] = bases[value]
        by_key = {value: key for key, value in self._ids.items()}
        for value, _, layout in self._deferred:
            if layout is not None:
                text = f"{bases[by_key[value][1]]} {layout}"
                self.facts[value]["hash"] = hasher(text.encode()).hexdigest()[:20]
        for tensor in self._marked:
            if hasattr(tensor, _MARK):
                delattr(tensor, _MARK)

    def digest(self, tensor: torch.Tensor, pads: torch.Tensor | None) -> str:
        """Return the identity of a content; a coarse one does not see rounding of float64."""
        return self._content(tensor, pads).digest()

    def fact(self, tensor: torch.Tensor) -> Fact:
        """Return the facts that identify a content, with rows of padding as zeros."""
        content = self._content(tensor, self.pads)
        return _describe(tensor, content.digest()) | content.loose()

    def _content(self, tensor: torch.Tensor, pads: torch.Tensor | None) -> Content:
        return Content(tensor, pads, coarse=self._coarse, scaled=self.scaled)

    def _hashed(self, tensor: torch.Tensor, *, structural: bool) -> int:
        """Return the number of a content; the tensor is read now."""
        content = self._content(tensor, None if structural else self.pads)
        digest = content.digest()
        # a mask's zero is a different value from a zero that a layer computes
        key = digest, structural
        if (value := self._ids.get(key)) is not None:
            return value
        fact = _describe(tensor, digest)
        return self._number(key, fact | ({"structural": True} if structural else content.loose()))

    def _defer(
        self,
        key: Any,
        tensor: torch.Tensor,
        layout: tuple[Any, ...] | None,
        base: torch.Tensor | None = None,
    ) -> int:
        if (value := self._ids.get(key)) is None:
            value = self._number(key, _describe(tensor, ""))
            self._deferred.append((value, tensor, layout))
        self.mark(tensor, value, base)
        return value

    def _number(self, key: Any, fact: Fact) -> int:
        self._ids[key] = len(self.facts)
        self.facts.append(fact)
        return self._ids[key]


class Content:
    """The bytes of one tensor, read once for all digests of them.

    Rows of padding count as zeros. ``coarse`` numbers are rounded first, see :func:`coarsened`,
    which forgets their power of two unless ``scaled`` is set.
    """

    def __init__(
        self,
        tensor: torch.Tensor,
        pads: torch.Tensor | None,
        *,
        coarse: bool = False,
        scaled: bool = False,
    ) -> None:
        self._exponent = 0
        floating = tensor.is_floating_point()
        if pads is not None and floating:
            tensor = without_pads(tensor, pads)
        self._shape = tuple(tensor.shape)
        self._loose = floating and 4 < tensor.numel() <= _MAX_LOOSE_ELEMENTS
        self._size = tensor.element_size()
        self._name = dtype_name(tensor.dtype)
        try:
            raw = raw_bytes(tensor.double() if coarse and floating else tensor)
        except (NotHashable, RuntimeError, TypeError) as reason:
            raw = memoryview(f"{type(reason).__name__} {list(tensor.shape)}".encode())
            self._loose = False
        if coarse and floating and not tensor.is_meta:
            exact = np.frombuffer(raw, np.float64)
            numbers = coarsened(exact)
            if scaled:
                self._exponent = _exponent(np.where(np.abs(exact) < _MASK_SIZE, exact, 0.0))
            raw, self._name, self._size = memoryview(numbers).cast("B"), "int32", 4
        self._raw = raw

    def digest(self) -> str:
        """Return 80 bits of BLAKE3 over dtype and bytes."""
        digest = hasher(self._name.encode())
        digest.update(self._raw)
        if self._exponent:
            digest.update(f" times 2^{self._exponent}".encode())
        return str(digest.hexdigest()[:20])

    def loose(self) -> Fact:
        """Return facts that identify a tensor in any order of its elements, and of its rows.

        bag: sums of the bit patterns and of their squares and cubes, modulo 2^64. rows: per row of
        the last axis a weighted sum of bit patterns, so that a row is found in any other tensor.
        """
        pattern = _PATTERNS.get(self._size)
        if not self._loose or pattern is None:
            return {}
        bits = np.frombuffer(self._raw, pattern).astype(np.int64)
        powers = bits * bits
        sums = [bits.sum(), powers.sum()]
        powers *= bits
        bag = np.array([*sums, powers.sum()], np.int64).tobytes().hex()
        sums_by_name = {"bag": f"{bag} {self._exponent}" if self._exponent else bag}
        width = self._shape[-1] if len(self._shape) > 1 else 0
        if width > 1 and bits.size // width <= _MAX_ROWS:
            # an odd factor tells powers of two apart, and leaves a row of zeros zero
            rows = bits.reshape(-1, width) @ _weights(width) * (2 * self._exponent + 1)
            sums_by_name["rows"] = base64.b64encode(rows.tobytes()).decode()
        return sums_by_name


def digest(tensor: torch.Tensor, pads: torch.Tensor | None) -> str:
    """Return 80 bits of BLAKE3 over dtype and bytes, with rows of padding as zeros."""
    return Content(tensor, pads).digest()


def _describe(tensor: torch.Tensor, key: str) -> Fact:
    fact = {"hash": key, "dtype": dtype_name(tensor.dtype), "shape": list(tensor.shape)}
    if tensor.numel() <= LITERAL_LIMIT and not tensor.is_meta:
        fact["literal"] = [repr(number) for number in tensor.detach().flatten().tolist()]
    return fact


def coarsened(numbers: Any) -> Any:
    """Return float64 numbers as int32 multiples of 2^-20 of the power of two above the largest.

    In float64 rounding is about 2^-50 of that, so two sides agree unless they compute something
    different. One number in 2^30 is that close to the middle between two multiples.
    """
    inside = np.abs(numbers) < _MASK_SIZE
    if inside.all():
        return _on_grid(numbers)
    grid = _on_grid(np.where(inside, numbers, 0.0))
    return np.where(inside, grid, np.where(numbers < 0, -_SENTINEL, _SENTINEL)).astype(np.int32)


def _on_grid(numbers: Any) -> Any:
    # not a product: the power of two itself is out of range for the smallest numbers
    return np.rint(np.ldexp(numbers, _GRID - _exponent(numbers))).astype(np.int32)


def _exponent(numbers: Any) -> int:
    """Return the power of two above the largest number; 0 for zeros."""
    return math.frexp(float(np.abs(numbers).max()))[1] if numbers.size else 0


@cache
def _weights(width: int) -> Any:
    words = b"".join(hashlib.sha256(f"row {i}".encode()).digest()[:8] for i in range(width))
    return np.frombuffer(words, np.int64)


def without_pads(tensor: torch.Tensor, pads: torch.Tensor) -> torch.Tensor:
    """Return a tensor with zeros where its token axis is padding; itself if it has no such axis.

    The token axis is the first one after the batch that is as long as the prompt, or the first one
    if batch and prompt are flattened. For scores it is the axis of queries.
    """
    rows, width = pads.shape
    if tensor.ndim >= 2 and tensor.shape[0] == rows * width:
        shape = (rows * width, *[1] * (tensor.ndim - 1))
        return tensor.masked_fill(pads.reshape(shape), 0.0)
    if tensor.ndim < 2 or tensor.shape[0] != rows:
        return tensor
    if (axis := next((i for i in range(1, tensor.ndim) if tensor.shape[i] == width), None)) is None:
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
