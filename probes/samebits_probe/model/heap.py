"""Fill of unwritten memory with a known byte, to detect tensors that were never written.

Two forks of one parent share its heap, so reads of unwritten memory may agree between them by
coincidence. Each run of a cell therefore fills all new memory with a byte of its own, and a tensor
that still holds only this byte was never written.

glibc's thread cache reuses freed blocks without filling them. The host switches it off in the
environment (GLIBC_TUNABLES), because that is only possible before a process starts. numpy also
keeps small freed blocks; they are filled explicitly.

A load can also be *poisoned*: torch fills the memory that it allocates with NaN, the largest
integer, or True (torch.utils.deterministic.fill_uninitialized_memory). This can be detected in
single elements, and no model holds these values by coincidence.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from samebits_probe.model.tensor import flattened

PATTERNS = {"a": 0x3F, "b": 0xC0, "poisoned": 0xE5}
"""Run, or the poisoned load inside one -> byte. As floats of any width they are ordinary numbers,
0.75, -6.0 and -1.4e23 in float32, so that they affect results instead of becoming NaN or zero. No
model holds the last one in any dtype."""

# glibc's mallopt parameters (malloc.h)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_PERTURB = -1, -3, -6
_CHECKED_SIZES = (*range(1, 65), 100, 300, 5_000, 100_000, 3_000_000)
_NUMPY_CACHE = ((*range(1, 64), *range(64, 1024, 4)), 7)
"""Sizes of the freed blocks that numpy keeps, without large odd ones, and how many (alloc.c)."""


def fill_unwritten(run: str, device: str) -> str:
    """Fill all memory that is allocated from now on with the byte of ``run``; return how."""
    byte = PATTERNS[run]
    method = _fill(byte, device)
    tensors = [torch.empty(n, device=device) for n in _CHECKED_SIZES]
    n_filled = sum(_holds_only(tensor, byte) for tensor in tensors)
    return f"0x{byte:02x} by {method}, seen in {n_filled} of {len(_CHECKED_SIZES)} fresh tensors"


def holds_pattern(tensor: torch.Tensor, run: str) -> bool:
    """Return True if every byte of ``tensor`` is the fill of unwritten memory."""
    if tensor.layout != torch.strided or tensor.is_quantized:
        return False
    if tensor.is_meta or tensor.numel() * tensor.element_size() < 2:
        return False
    return _holds_only(tensor, PATTERNS[run])


def elements(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of every element, uint8 [number of elements, bytes per element]."""
    flat = flattened(tensor)
    if flat.is_complex():
        flat = torch.view_as_real(flat.resolve_conj())
    return flat.view(torch.uint8).reshape(tensor.numel(), tensor.element_size())


def elements_with_pattern(tensor: torch.Tensor, run: str) -> torch.Tensor:
    """Return which elements hold only the byte of ``run``, bool [number of elements]."""
    return (elements(tensor) == PATTERNS[run]).all(1)


def elements_with_poison(tensor: torch.Tensor) -> torch.Tensor:
    """Return which elements hold the fill of a poisoned load, bool [number of elements].

    Memory allocated by torch holds torch's fill, other memory the byte of malloc.
    """
    return _elements_with_fill(tensor) | elements_with_pattern(tensor, "poisoned")


@contextmanager
def poisoned(run: str, device: str) -> Iterator[str]:
    """Fill all memory that is allocated inside with poison; yield a report of what was filled.

    Afterwards memory is filled with the byte of ``run`` again.
    """
    _fill(PATTERNS["poisoned"], device)
    try:
        with _filled_by_torch():
            yield _check_allocations(device)
    finally:
        _fill(PATTERNS[run], device)


@contextmanager
def _filled_by_torch() -> Iterator[bool]:
    """Make torch fill what it allocates inside; yield False if torch is older than 2.2."""
    switch = torch.utils.deterministic
    if not hasattr(switch, "fill_uninitialized_memory"):
        yield False
        return
    fills, mode = switch.fill_uninitialized_memory, torch.get_deterministic_debug_mode()
    # torch.use_deterministic_algorithms imports all of inductor first, which takes 4 s;
    # with warn_only an operation without a deterministic form runs as usual
    torch._C._set_deterministic_algorithms(True, warn_only=True)
    switch.fill_uninitialized_memory = True
    try:
        yield True
    finally:
        switch.fill_uninitialized_memory = fills
        torch._C._set_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def _check_allocations(device: str) -> str:
    """Return a report of which allocations torch fills, which malloc fills, and which neither."""
    by_torch, by_malloc, unfilled = [], [], []
    for name, tensor in _unwritten_tensors(device):
        if bool(_elements_with_fill(tensor).all()):
            by_torch.append(name)
        elif bool(elements_with_pattern(tensor, "poisoned").all()):
            by_malloc.append(name)
        else:
            unfilled.append(name)
    n = len(by_torch) + len(by_malloc) + len(unfilled)
    parts = [f"NaN, the largest integer or True, seen in {len(by_torch)} of {n} ways to allocate"]
    if by_malloc:
        parts.append(f"0x{PATTERNS['poisoned']:02x} in {', '.join(by_malloc)}")
    if unfilled:
        parts.append(f"nothing in {', '.join(unfilled)}")
    return "; ".join(parts)


def _unwritten_tensors(device: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield unwritten tensors from every way of allocation that models' code uses."""
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        name = str(dtype).removeprefix("torch.")
        yield f"empty {name}", torch.empty(33, dtype=dtype, device=device)
    # not from the meta device: its first use imports much, and it allocates in the same ways
    yield "empty_like", torch.empty_like(torch.zeros(3, 5, device=device))
    yield "empty_strided", torch.empty_strided((3, 5), (5, 1), device=device)
    yield "new_empty", torch.zeros(1, device=device).new_empty(40)
    if device == "cpu":
        yield "torch.Tensor(n)", torch.Tensor(35)
        yield "UntypedStorage", torch.tensor([]).set_(torch.UntypedStorage(148))
        yield "numpy.empty", torch.from_numpy(np.empty(36, dtype=np.float32))


def _elements_with_fill(tensor: torch.Tensor) -> torch.Tensor:
    return (elements(tensor) == _torch_fill_bytes(tensor.dtype).to(tensor.device)).all(1)


def _torch_fill_bytes(dtype: torch.dtype) -> torch.Tensor:
    """Return the bytes of torch's fill of one element (fill_empty_deterministic_)."""
    with _filled_by_torch():
        return elements(torch.empty(1, dtype=dtype))


def _holds_only(tensor: torch.Tensor, byte: int) -> bool:
    if bool((elements(tensor.detach()[(0,) * tensor.ndim]) != byte).any()):
        return False  # so nearly every tensor is read no further
    # needs no second tensor of this size, and is thirty times as fast as comparing and counting
    least, largest = torch.aminmax(elements(tensor))
    return int(least) == int(largest) == byte


def trim() -> None:
    """Return freed memory to the system: glibc keeps it because of the thresholds set below.

    Memory that glibc allocates afterwards is filled, too.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def _fill(byte: int, device: str) -> str:
    """Fill all memory that is allocated from now on with ``byte``; return how."""
    method = _fill_malloc(byte) or _fill_and_free_blocks(byte)
    if device != "cpu":
        _fill_device(byte, device)
    _fill_numpy(byte)
    return method


def _fill_malloc(byte: int) -> str:
    """Make glibc fill every block that malloc returns; return '' where there is no glibc."""
    if platform.libc_ver()[0] != "glibc":
        return ""
    libc = ctypes.CDLL(None)
    # blocks from mmap are zero in any case, so keep all blocks on the heap
    libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
    # glibc fills with the complement of the byte it is given
    return "glibc M_PERTURB" if libc.mallopt(_M_PERTURB, byte ^ 0xFF) else ""


def _fill_and_free_blocks(byte: int) -> str:
    blocks = [torch.empty(n, dtype=torch.uint8) for n in (64, 256, 4096, 65536, 1 << 20) * 64]
    for block in blocks:
        block.fill_(byte)
    return "blocks filled and freed"


def _fill_numpy(byte: int) -> None:
    """Fill the small freed blocks that numpy keeps for its next arrays."""
    sizes, copies = _NUMPY_CACHE
    blocks = [np.empty(n, np.uint8) for n in sizes for _ in range(copies)]
    for block in blocks:  # np.full takes four times as long
        block.fill(byte)
    del blocks, block


def _fill_device(byte: int, device: str) -> None:
    # the caching allocator reuses freed blocks without clearing them
    blocks = [
        torch.full((n,), byte, dtype=torch.uint8, device=device) for n in (1 << 19, 1 << 25) * 8
    ]
    del blocks
