"""Comparison of attention masks by meaning: which queries see which keys."""

from __future__ import annotations

import base64
import zlib
from math import prod

import numpy as np
from numpy.typing import NDArray

from samebits.records.trace import Visibility

Rows = tuple[tuple[int, int], ...] | None


def unpacked(attention: Visibility) -> NDArray[np.bool_] | None:
    """Return which query sees which key, [batch, heads, queries, keys]; None if it was not kept."""
    if not attention.allowed or len(attention.shape) not in {3, 4}:
        return None
    raw = np.frombuffer(zlib.decompress(base64.b64decode(attention.allowed)), np.uint8)
    bits = np.unpackbits(raw)[: prod(attention.shape)].astype(np.bool_)
    shape = (
        attention.shape
        if len(attention.shape) == 4
        else (attention.shape[0], 1, *attention.shape[1:])
    )
    return bits.reshape(shape)


def difference(
    reference_attention: Visibility, candidate_attention: Visibility, rows: Rows
) -> str | None:
    """Return in words how the candidate's mask differs outside padding; '' if it does not.

    None if the two cannot be compared. If one side has more keys, those at its end that no query
    sees are free slots of a cache. Without such keys, the masks are aligned at the last key.
    """
    reference, candidate = unpacked(reference_attention), unpacked(candidate_attention)
    if reference is None or candidate is None:
        return None
    aligned = _aligned(reference, candidate)
    if aligned is None:
        return None
    reference, candidate = aligned
    counts = _real_queries(reference.shape, rows)
    # what a query without any visible key returns depends on the kernel, not on the mask
    differs = (reference != candidate) & counts
    if not differs.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(differs)[0])
    row = f" of row {first[0]}" if reference.shape[0] > 1 else ""
    sees = ("does not see", "sees") if candidate[first] else ("sees", "does not see")
    places, all_places = int(differs.any(axis=1).sum()), differs[:, 0].size
    return (
        f"query {first[2]}{row} {sees[0]} key {first[3]} in the reference and {sees[1]} "
        f"it in the candidate; "
        f"{places:,} of {all_places:,} places differ"
    )


def _aligned(
    reference: NDArray[np.bool_], candidate: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
    """Return both masks with equal numbers of heads and keys; None if batch or queries differ."""
    if reference.shape[0] != candidate.shape[0] or reference.shape[2] != candidate.shape[2]:
        return None
    if reference.shape[1] != candidate.shape[1]:
        if 1 not in {reference.shape[1], candidate.shape[1]}:
            return None
        heads = max(reference.shape[1], candidate.shape[1])
        reference, candidate = (
            np.broadcast_to(m, (m.shape[0], heads, *m.shape[2:])) for m in (reference, candidate)
        )
    extra = abs(reference.shape[3] - candidate.shape[3])
    longer = reference if reference.shape[3] > candidate.shape[3] else candidate
    at_end = bool(extra) and not longer[..., -extra:].any()
    keys = max(reference.shape[3], candidate.shape[3])
    return _padded(reference, keys, at_end=at_end), _padded(candidate, keys, at_end=at_end)


def _padded(mask: NDArray[np.bool_], keys: int, *, at_end: bool) -> NDArray[np.bool_]:
    extra = keys - mask.shape[3]
    return np.pad(mask, ((0, 0), (0, 0), (0, 0), (0, extra) if at_end else (extra, 0)))


def _real_queries(shape: tuple[int, ...], rows: Rows) -> NDArray[np.bool_]:
    """Return which queries are not padding, to be broadcast against a mask of that shape."""
    counts = np.ones((shape[0], 1, shape[2], 1), np.bool_)
    if rows is None or len(rows) != shape[0]:
        return counts
    for row, (start, stop) in enumerate(rows):
        # the queries of a decode are never padding
        if stop == shape[2]:
            counts[row, 0, :start] = False
    return counts
