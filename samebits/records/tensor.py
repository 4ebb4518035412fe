"""The identity of a tensor: a hash of its dtype, its shape and its bytes."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from blake3 import blake3
from pydantic import Field

from samebits.records.record import Record
from samebits_wire.tensors import header

NUMPY_DTYPES: dict[str, np.dtype[Any]] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "complex64": np.dtype(np.complex64),
    "complex128": np.dtype(np.complex128),
    "int64": np.dtype(np.int64),
    "int32": np.dtype(np.int32),
    "int16": np.dtype(np.int16),
    "int8": np.dtype(np.int8),
    "uint64": np.dtype(np.uint64),
    "uint32": np.dtype(np.uint32),
    "uint16": np.dtype(np.uint16),
    "uint8": np.dtype(np.uint8),
    "bool": np.dtype(np.bool_),
}
"""Name of the torch dtype, without ``torch.`` -> numpy dtype that reads its bytes."""


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
        return self.numel * NUMPY_DTYPES[self.dtype].itemsize


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
