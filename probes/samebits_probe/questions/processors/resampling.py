"""Resampling of images in float64, with the kernels of Pillow, which torchvision shares.

Pillow computes in integers and stores each pass in 8 bits, so a difference of its results does not
show whether two calls asked for the same kernel. The weights of a pass are what Pillow makes of an
identity matrix of floats. Only the values between the passes are wider here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

NEAREST = 0
KERNELS = range(6)
"""Pillow's numbers of its filters."""
_COEFFICIENT_BITS = 22
"""Bits behind the point of Pillow's integer weights for 8-bit images."""
_WHITE = 255.0


def resampled(image: np.ndarray, size: tuple[int, int], resample: int) -> np.ndarray:
    """Return an image of values in 0..255, channels last, in another size, in float64."""
    result = np.asarray(image, np.float64)
    for axis, after in ((1, size[1]), (0, size[0])):  # Pillow's order of its passes
        if after != result.shape[axis]:
            columns = np.tensordot(weights(result.shape[axis], after, resample), result, (1, axis))
            result = np.clip(np.moveaxis(columns, 0, axis), 0.0, _WHITE)
    return result


def weights(before: int, after: int, resample: int) -> np.ndarray:
    """Return the weights of one pass: rows are the pixels of the result, columns those before."""
    return pillow(np.eye(before, dtype=np.float32), (before, after), resample).T


def pillow(pixels: np.ndarray, size: tuple[int, int], resample: int) -> np.ndarray:
    """Return what Pillow itself makes of an array, also where its resize is watched."""
    from PIL import Image  # noqa: PLC0415  a stack need not have it

    resize: Any = getattr(Image.Image.resize, "__wrapped__", Image.Image.resize)
    return np.asarray(resize(Image.fromarray(pixels), size[::-1], resample=resample), np.float64)


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
