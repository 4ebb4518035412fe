"""Resampling of images in float64, with the kernels that Pillow documents and torchvision shares.

Pillow computes in integers and stores each pass in 8 bits, so a difference of its results does not
show whether two calls asked for the same kernel. Here only the values between the passes are wider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

NEAREST = 0
_COEFFICIENT_BITS = 22
"""Bits behind the point of Pillow's integer weights for 8-bit images."""
_WHITE = 255.0


class Kernel(NamedTuple):
    """A filter, and how far it reaches."""

    support: float
    weight: Callable[[np.ndarray], np.ndarray]


def _box(x: np.ndarray) -> np.ndarray:
    return ((x > -0.5) & (x <= 0.5)).astype(np.float64)


def _bilinear(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(0.0, 1.0 - np.abs(x)))


def _hamming(x: np.ndarray) -> np.ndarray:
    window = 0.54 + 0.46 * np.cos(np.pi * x)
    return np.where(np.abs(x) < 1.0, np.sinc(x) * window, 0.0)


def _bicubic(x: np.ndarray) -> np.ndarray:
    a, x = -0.5, np.abs(x)
    near = ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * a
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3.0, np.sinc(x) * np.sinc(x / 3.0), 0.0)


KERNELS = {
    1: Kernel(3.0, _lanczos),
    2: Kernel(1.0, _bilinear),
    3: Kernel(2.0, _bicubic),
    4: Kernel(0.5, _box),
    5: Kernel(1.0, _hamming),
}
"""Pillow's number of a filter -> the filter."""


def resampled(image: np.ndarray, size: tuple[int, int], resample: int) -> np.ndarray:
    """Return an image of values in 0..255, channels last, in another size, in float64."""
    height, width = size
    result = np.asarray(image, np.float64)
    if resample == NEAREST:
        rows, columns = (
            _nearest(n, m) for n, m in zip(result.shape, (height, width), strict=False)
        )
        return np.asarray(result[rows][:, columns])
    if width != result.shape[1]:
        matrix = weights(result.shape[1], width, resample)
        result = np.clip(np.einsum("ox,yxc->yoc", matrix, result, optimize=True), 0.0, _WHITE)
    if height != result.shape[0]:
        matrix = weights(result.shape[0], height, resample)
        result = np.clip(np.einsum("oy,yxc->oxc", matrix, result, optimize=True), 0.0, _WHITE)
    return result


def _nearest(before: int, after: int) -> np.ndarray:
    places = (np.arange(after, dtype=np.float64) + 0.5) * (before / after)
    return np.minimum(places.astype(np.int64), before - 1)


def weights(before: int, after: int, resample: int) -> np.ndarray:
    """Return the weights of one pass: rows are the pixels of the result, columns those before."""
    kernel = KERNELS[resample]
    scale = before / after
    stretch = max(scale, 1.0)
    support = kernel.support * stretch
    centers = (np.arange(after, dtype=np.float64) + 0.5) * scale
    first = np.maximum((centers - support + 0.5).astype(np.int64), 0)
    last = np.minimum((centers + support + 0.5).astype(np.int64), before)
    columns = np.arange(before)
    values = kernel.weight((columns[None, :] - centers[:, None] + 0.5) / stretch)
    values = np.where(
        (columns[None, :] >= first[:, None]) & (columns[None, :] < last[:, None]), values, 0.0
    )
    sums = values.sum(axis=1, keepdims=True)
    return values / np.where(sums == 0.0, 1.0, sums)


def rounding_of(before: tuple[int, int], size: tuple[int, int], resample: int) -> float:
    """Return how far Pillow's bytes can be from the float64 result by its own rounding.

    Each pass rounds its weights to 22 bits and its result to an integer, and the second pass
    weighs the rounding of the first.
    """
    if resample == NEAREST:
        return 0.0
    error = 0.0
    for length, after in ((before[1], size[1]), (before[0], size[0])):
        if length != after:
            matrix = weights(length, after, resample)
            taps = int((matrix != 0.0).sum(axis=1).max())
            spread = float(np.abs(matrix).sum(axis=1).max())
            error = error * spread + 0.5 + (taps + 1) * _WHITE * 2.0 ** -(_COEFFICIENT_BITS + 1)
    return error
