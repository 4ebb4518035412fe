"""Where in a prompt two outputs of a forward differ: the largest distance at each position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_POSITIONS = 128
"""Longer prompts have no distances by position: a picture of them has no place for each."""

CHUNK = 1 << 16
"""Elements processed together, unless a single position has more."""

DIGITS = 3
"""Significant digits of a distance; it is for a picture, and report.json stays small."""


def by_position(
    reference: NDArray[Any], candidate: NDArray[Any], rows: NDArray[np.bool_] | None
) -> tuple[float, ...]:
    """Return the largest absolute difference at each position, over all rows of the batch.

    Both sides have the shape [batch, positions, width]; () for any other shape and for long prompts.
    Padding, where the mask ``rows`` [batch, positions] is False, counts as no difference, and so do
    elements that are not finite on both sides.
    """
    if reference.ndim != 3 or not reference.size or reference.shape[1] > MAX_POSITIONS:
        return ()
    largest = np.zeros(reference.shape[1])
    with np.errstate(all="ignore"):
        for row, start, stop in _blocks(reference.shape):
            a, b = (side[row, start:stop].astype(np.float64) for side in (reference, candidate))
            distances = np.abs(a - b)
            distances[~np.isfinite(distances)] = 0.0
            maxima = distances.max(-1)
            if rows is not None:
                maxima *= rows[row, start:stop]
            np.maximum(largest[start:stop], maxima, out=largest[start:stop])
    return tuple(float(f"{value:.{DIGITS}g}") for value in largest)


def _blocks(shape: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """Yield batch row and half-open range of positions, a bounded number of elements at a time."""
    step = max(1, CHUNK // shape[2])
    for row in range(shape[0]):
        for start in range(0, shape[1], step):
            yield row, start, min(start + step, shape[1])
