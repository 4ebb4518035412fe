"""What does memory hold that nobody wrote: a pattern that we chose, seen to be there.

Two forks of one parent share its heap, so a read of unwritten memory agrees between them by
luck. Each run of a cell therefore fills all fresh memory with its own byte, and a tensor
that still shows the byte was never written.

glibc's thread cache hands out freed blocks without filling them; the host switches it off in
the environment (GLIBC_TUNABLES), since that can only be done before a process starts.
"""

from __future__ import annotations

import ctypes
import platform

import torch

PATTERNS = {"a": 0x3F, "b": 0xC0}
"""Run -> byte. As floats of any width they are ordinary numbers, 0.75 and -6.0 in float32, so
that they spread through the arithmetic instead of turning into NaN or vanishing."""

# glibc's mallopt parameters (malloc.h)
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_PERTURB = -1, -3, -6
_CHECKED_SIZES = (*range(1, 65), 100, 300, 5_000, 100_000, 3_000_000)


def fill_unwritten(run: str, device: str) -> str:
    """Make all memory that is allocated from now on hold the byte of ``run``; say how."""
    byte = PATTERNS[run]
    how = _fill_malloc(byte) or _fill_by_hand(byte)
    if device != "cpu":
        _fill_device(byte, device)
    tensors = [torch.empty(n, device=device) for n in _CHECKED_SIZES]
    seen = sum(_shows(tensor, byte) for tensor in tensors)
    return f"0x{byte:02x} by {how}, seen in {seen} of {len(_CHECKED_SIZES)} fresh tensors"


def holds_pattern(tensor: torch.Tensor, run: str) -> bool:
    """Return True if every byte of ``tensor`` is the one that unwritten memory was filled with."""
    if tensor.is_meta or tensor.numel() * tensor.element_size() < 2:
        return False
    return _shows(tensor, PATTERNS[run])


def _shows(tensor: torch.Tensor, byte: int) -> bool:
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    return bool((flat.view(torch.uint8) == byte).all())


def _fill_malloc(byte: int) -> str:
    """Ask glibc to fill every block that malloc hands out; '' where there is no glibc."""
    if platform.libc_ver()[0] != "glibc":
        return ""
    libc = ctypes.CDLL(None)
    # blocks that come from mmap are zero whatever was there before: keep them on the heap
    libc.mallopt(_M_MMAP_THRESHOLD, 1 << 30)
    libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)
    # glibc fills with the complement of the byte it is given
    return "glibc M_PERTURB" if libc.mallopt(_M_PERTURB, byte ^ 0xFF) else ""


def _fill_by_hand(byte: int) -> str:
    blocks = [torch.empty(n, dtype=torch.uint8) for n in (64, 256, 4096, 65536, 1 << 20) * 64]
    for block in blocks:
        block.fill_(byte)
    return "blocks filled and freed"


def _fill_device(byte: int, device: str) -> None:
    # the caching allocator hands freed blocks out again without clearing them
    blocks = [
        torch.full((n,), byte, dtype=torch.uint8, device=device) for n in (1 << 19, 1 << 25) * 8
    ]
    del blocks
