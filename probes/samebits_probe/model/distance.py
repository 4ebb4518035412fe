"""Distances between tensors, and the number of mantissa bits that a tensor uses.

Equal means equal bytes. A distance is a float64 and 0 where the bytes agree, also for two
infinities. A distance that is NaN or infinite is returned as the largest float64.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from samebits_probe.model.tensor import dtype_name
from samebits_wire.rounding import stays

Distance = dict[str, Any]

_INTEGER_DTYPES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MANTISSA_BITS = {torch.float64: 52, torch.float32: 23, torch.float16: 10, torch.bfloat16: 7}
_MIN_VALUES = 256
"""Minimum number of values; a smaller tensor may look coarse by coincidence."""


def words(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bits of a contiguous copy as integers of the same size."""
    return tensor.detach().contiguous().reshape(-1).view(_INTEGER_DTYPES[tensor.element_size()])


def differing(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return for every element, in row-major order, whether its bytes differ."""
    if first.dtype != second.dtype or first.shape != second.shape:
        return torch.ones(max(first.numel(), second.numel()), dtype=torch.bool)
    return words(first) != words(second)


def gaps(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return absolute differences in float64, flat; the largest float64 where there is none."""
    return _gaps(first, second, differing(first, second))


def _gaps(first: torch.Tensor, second: torch.Tensor, differ: torch.Tensor) -> torch.Tensor:
    if first.shape != second.shape:
        return torch.full((differ.numel(),), sys.float_info.max, dtype=torch.float64)
    distances = (first.double() - second.double()).abs().reshape(-1)
    distances = torch.where(differ.to(distances.device), distances, torch.zeros_like(distances))
    return torch.nan_to_num(distances, nan=sys.float_info.max, posinf=sys.float_info.max)


def distance(first: torch.Tensor, second: torch.Tensor, *, logits: bool = False) -> Distance:
    """Return a Distance of samebits/records/distance.py.

    With ``logits`` the last axis is the vocabulary, and changes of the argmax are counted.
    """
    result = pooled([(first, second)])
    changes = _argmax_changes(first, second, result["n_differ"]) if logits else None
    return result | {"argmax_changes": changes}


def pooled(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Distance:
    """Return one Distance over several pairs of tensors."""
    n = n_differ = 0
    largest = total = 0.0
    for first, second in pairs:
        differ = differing(first, second)
        n += differ.numel()
        if not (count := int(differ.sum())):
            continue
        n_differ += count
        distances = _gaps(first, second, differ)
        largest = max(largest, float(distances.max()))
        total += float(distances.sum())
    mean = min(total / max(n, 1), sys.float_info.max)
    return {"n": n, "n_differ": n_differ, "max_abs": largest, "mean_abs": mean}


def _argmax_changes(first: torch.Tensor, second: torch.Tensor, n_differ: int) -> int | None:
    if first.shape != second.shape:
        return None
    return int((first.argmax(-1) != second.argmax(-1)).sum()) if n_differ else 0


def same_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Return True if no element's bytes differ."""
    return not bool(differing(first, second).any())


def broken(native: Distance, promoted: Distance, dtype: torch.dtype) -> bool:
    """Return True if a difference did not shrink with more precise arithmetic."""
    return dtype != torch.float64 and stays(native["max_abs"], promoted["max_abs"])


def used_bits(tensor: torch.Tensor) -> int | None:
    """Return the explicit mantissa bits in use; None if there are none or all values are zero."""
    bits = _MANTISSA_BITS.get(tensor.dtype)
    if bits is None or not tensor.numel():
        return None
    combined = int(np.bitwise_or.reduce(words(tensor).cpu().numpy()))
    if not combined & ((1 << 8 * tensor.element_size() - 1) - 1):  # zeros with either sign
        return None
    combined &= (1 << bits) - 1
    return bits - (combined & -combined).bit_length() + 1 if combined else 0


def precision(what: str, tensors: Iterable[torch.Tensor], *, each: bool) -> list[dict[str, Any]]:
    """Return a Precision per dtype: of all tensors together, or of the coarsest one if ``each``.

    Layers are counted one by one, because the others would hide one that computes in bfloat16.
    Parameters are counted together, because the weights of a norm may all be one.
    """
    bits_by_dtype: dict[torch.dtype, list[int]] = {}
    for tensor in tensors:
        bits = used_bits(tensor)
        if bits is not None and (not each or tensor.numel() >= _MIN_VALUES):
            bits_by_dtype.setdefault(tensor.dtype, []).append(bits)
    return [
        {
            "what": what,
            "dtype": dtype_name(dtype),
            "mantissa_bits": _MANTISSA_BITS[dtype],
            "used_bits": min(bits) if each else max(bits),
        }
        for dtype, bits in bits_by_dtype.items()
    ]
