"""How is a large file read as an array, and how does a reader stay small while going through it?

A page that was read counts as memory of the process until it is given back, though the kernel could
take it at any time: two tensors of a gigabyte would make a host of two gigabytes. Whoever goes through
an array gives back what is behind every now and then; read again, it comes from the page cache.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

STRIDE = 32 << 20
"""Bytes after which to give back."""


def mapped(path: Path) -> NDArray[np.uint8]:
    """Return the bytes of a file that is not empty; np.memmap does the same in five times as long."""
    with path.open("rb") as file:
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def give_back(values: NDArray[Any]) -> None:
    """Give back the memory of an array that is mapped from a file; any other stays as it is."""
    base: object = values
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
