"""What a tensor's hash is computed from: a header, then its contiguous little-endian bytes."""

from __future__ import annotations

from collections.abc import Iterable

_FORMAT = b"samebits-tensor-1"
"""Names the format of the hashed bytes; another format gets another number."""


def header(dtype: str, shape: Iterable[int]) -> bytes:
    """Return what is hashed before the bytes: it distinguishes dtypes and shapes of equal bytes."""
    return b"\0".join((_FORMAT, dtype.encode(), ",".join(str(n) for n in shape).encode(), b""))
