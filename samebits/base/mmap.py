"""Memory-mapped files as arrays, and releasing the pages of them that were read.

A page that was read counts as memory of the process until it is released, though the kernel could
reclaim it at any time: reading two tensors of a gigabyte would make a process of two gigabytes. So
a loop over an array calls :func:`give_back` every :data:`STRIDE` bytes. A released page that is
read again comes from the page cache.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

STRIDE = 32 << 20
"""Number of bytes after which a loop releases the pages that it has read."""


def map_file(path: str | Path) -> NDArray[np.uint8]:
    """Map a non-empty file read-only and return its bytes; np.memmap takes five times as long."""
    with open(path, "rb") as file:  # noqa: PTH123  a Path costs more than the call
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def release_pages(values: NDArray[Any]) -> None:
    """Release the pages of an array that is mapped from a file; do nothing for other arrays."""
    base: object = values
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview):
        base = base.obj
    if isinstance(base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
