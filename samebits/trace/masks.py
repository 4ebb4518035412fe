"""Do two attentions let the same queries see the same keys, however their masks are spelt?"""

from __future__ import annotations

import base64
import zlib
from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from samebits.records.trace import Visibility

Rows = tuple[tuple[int, int], ...] | None


def unpacked(seen: Visibility) -> NDArray[np.bool_] | None:
    """Return who may see whom, [batch, heads, queries, keys]; None if it was too large to keep."""
    if not seen.allowed or len(seen.shape) not in {3, 4}:
        return None
    raw = np.frombuffer(zlib.decompress(base64.b64decode(seen.allowed)), np.uint8)
    bits = np.unpackbits(raw)[: prod(seen.shape)].astype(np.bool_)
    shape = seen.shape if len(seen.shape) == 4 else (seen.shape[0], 1, *seen.shape[1:])
    return bits.reshape(shape)


def difference(one: Visibility, other: Visibility, rows: Rows) -> str | None:
    """Return in words how the candidate's mask differs in rows that count; '' if it does not.

    None if the two cannot be compared. Where one side holds more keys they are slots of a cache
    that nobody sees, behind the others or before them; if they are not, keys align at the last.
    """
    reference, candidate = unpacked(one), unpacked(other)
    if reference is None or candidate is None:
        return None
    fitted = _fitted(reference, candidate)
    if fitted is None:
        return None
    reference, candidate = fitted
    counts = _counting(reference.shape, rows)
    # a query that sees nothing sees nothing on either side; what comes of it is the kernel's
    apart = (reference != candidate) & counts
    if not apart.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(apart)[0])
    row = f" of row {first[0]}" if reference.shape[0] > 1 else ""
    sees = ("does not see", "sees") if candidate[first] else ("sees", "does not see")
    places, all_places = int(apart.any(axis=1).sum()), apart[:, 0].size
    return (
        f"query {first[2]}{row} {sees[0]} key {first[3]} there and {sees[1]} it here; "
        f"{places:,} of {all_places:,} places differ"
    )


def _fitted(
    one: NDArray[np.bool_], other: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]] | None:
    """Return both with as many heads and keys, or None if batch or queries do not agree."""
    if one.shape[0] != other.shape[0] or one.shape[2] != other.shape[2]:
        return None
    if one.shape[1] != other.shape[1]:
        if 1 not in {one.shape[1], other.shape[1]}:
            return None
        heads = max(one.shape[1], other.shape[1])
        one, other = (np.broadcast_to(m, (m.shape[0], heads, *m.shape[2:])) for m in (one, other))
    more = abs(one.shape[3] - other.shape[3])
    longer = one if one.shape[3] > other.shape[3] else other
    behind = bool(more) and not longer[..., -more:].any()
    keys = max(one.shape[3], other.shape[3])
    return _padded(one, keys, behind=behind), _padded(other, keys, behind=behind)


def _padded(mask: NDArray[np.bool_], keys: int, *, behind: bool) -> NDArray[np.bool_]:
    more = keys - mask.shape[3]
    return np.pad(mask, ((0, 0), (0, 0), (0, 0), (0, more) if behind else (more, 0)))


def _counting(shape: tuple[int, ...], rows: Rows) -> NDArray[np.bool_]:
    """Return which queries are no padding, to be broadcast against a mask of that shape."""
    counts = np.ones((shape[0], 1, shape[2], 1), np.bool_)
    if rows is None or len(rows) != shape[0]:
        return counts
    for row, (start, stop) in enumerate(rows):
        # the queries of a decode are all real
        if stop == shape[2]:
            counts[row, 0, :start] = False
    return counts
