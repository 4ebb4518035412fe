"""The identity of a tensor: a hash of its dtype, its shape and its bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
from blake3 import blake3
from pydantic import Field

from samebits.records.record import Record
from samebits_wire.tensors import header

ITEM_SIZES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "complex64": 8,
    "complex128": 16,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}
"""Name of the torch dtype, without ``torch.`` -> bytes of an element."""
_BEYOND_NUMPY = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2"})


class _Dtypes(Mapping[str, np.dtype[Any]]):
    """Name of the torch dtype, without ``torch.`` -> numpy dtype that reads its bytes."""

    def __getitem__(self, name: str) -> np.dtype[Any]:
        if name not in ITEM_SIZES:
            raise KeyError(name)
        if name not in _BEYOND_NUMPY:
            return np.dtype(name)
        # from ml_dtypes 0.7 on its import takes a second, and most commands read no such tensor
        import ml_dtypes  # noqa: PLC0415

        dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return dtype

    def __iter__(self) -> Iterator[str]:
        return iter(ITEM_SIZES)

    def __len__(self) -> int:
        return len(ITEM_SIZES)


NUMPY_DTYPES = _Dtypes()


class TensorRef(Record):
    """A reference to a tensor: identity and size without values."""

    hash: str = Field(pattern=r"^[0-9a-f]{64}$")
    dtype: str
    shape: tuple[int, ...]
    stored: bool = False
    """True if the bytes are in the store under this hash."""

    @property
    def numel(self) -> int:
        """Number of elements; 1 for a 0-d tensor."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes of the values."""
        return self.numel * ITEM_SIZES[self.dtype]


def stored_tensors(value: object) -> Iterator[TensorRef]:
    """Yield every stored tensor in records and JSON values, at any depth."""
    left = [value]
    while left:
        value = left.pop()
        if isinstance(value, TensorRef):
            if value.stored:
                yield value
        elif isinstance(value, Record):
            left += vars(value).values()
        elif isinstance(value, dict):
            if value.get("stored") is True and {"hash", "dtype", "shape"} <= value.keys():
                fields = {name: value[name] for name in TensorRef.model_fields}
                yield TensorRef.model_validate(fields)
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value


def hasher(dtype: str, shape: tuple[int, ...]) -> blake3:
    """Return the BLAKE3 of a tensor's header; the caller adds its contiguous little-endian bytes."""
    return blake3(header(dtype, shape))


def tensor_hash(dtype: str, shape: tuple[int, ...], data: bytes | memoryview) -> str:
    """Return the hex BLAKE3 that identifies a contiguous little-endian tensor."""
    digest = hasher(dtype, shape)
    digest.update(data)
    return digest.hexdigest()
