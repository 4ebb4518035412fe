"""Alignment of a model's tensors in memory, on which the rounding of some kernels depends.

torch's CPU allocator aligns its memory to :data:`BOUNDARY` bytes. A tensor that is part of a mapped
file begins at its offset in the file, and releases differ in which tensors they copy.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from samebits_probe.model.tensor import is_plain

BOUNDARY = 64


def behind(tensor: torch.Tensor) -> int:
    """Return how many bytes after a boundary a tensor begins."""
    return int(tensor.data_ptr() % BOUNDARY)


def n_off(model: torch.nn.Module) -> int:
    """Return how many parameters and buffers do not begin at a boundary."""
    return sum(1 for _ in _unaligned(model))


def align(model: torch.nn.Module) -> None:
    """Replace the data of every parameter and buffer that does not begin at a boundary by a copy.

    Strides must not change: a tensor whose copy would have different ones is not replaced.
    """
    for tensor in _unaligned(model):
        copy = tensor.data.clone()
        if copy.stride() == tensor.stride():
            tensor.data = copy


def _unaligned(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    for tensor in (*model.parameters(), *model.buffers()):
        on_cpu = is_plain(tensor) and tensor.device.type == "cpu"
        if on_cpu and tensor.numel() and behind(tensor):
            yield tensor
