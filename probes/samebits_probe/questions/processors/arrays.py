"""Facts of an array that a capture keeps instead of its values: hash, shape, seeded projections.

A projection is the sum of all values times fixed random weights. The projections of two arrays
differ as much as the arrays do, so the host can measure the difference without the values. The
weights are numbers in (-1, 1) with no common divisor, so that differences do not cancel out.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

import numpy as np

from samebits_probe.cell.outcomes import plain as plain_text
from samebits_probe.questions.processors.samples import uniform

N_PROJECTIONS = 4
_N_SAMPLES = 6
_HASH_LENGTH = 16
_MAX_TEXT = 200
_SEED = 831
_MIN_KEPT, _MAX_KEPT = 1 << 16, 1 << 22
"""Values for which weights are kept, a power of two; the largest ones are 4 x 32 MB."""


def facts(value: Any) -> dict[str, Any]:
    """Return the facts of an array; a list of arrays of several shapes is one after the other."""
    pieces = [plain(piece) for piece in _pieces(value)]
    dtypes = sorted({str(piece.dtype) for piece in pieces})
    shapes = [list(piece.shape) for piece in pieces]
    digest = hashlib.sha256(json.dumps([dtypes, shapes]).encode())
    for piece in pieces:
        digest.update(np.ascontiguousarray(piece).tobytes())
    if (flat := _numbers(pieces)) is None:
        return _facts(dtypes, shapes, digest)
    finite = np.isfinite(flat)
    n_special = int(flat.size - np.count_nonzero(finite))
    values = np.where(finite, flat, 0.0) if n_special else flat
    return _facts(dtypes, shapes, digest) | {
        "n": int(flat.size),
        "n_special": n_special,
        "projections": _projections(values),
        "sample": [float(v) for v in values[:: max(1, flat.size // _N_SAMPLES)][:_N_SAMPLES]],
    }


def facts_of_text(value: str | list[str] | tuple[str, ...]) -> dict[str, Any]:
    """Return the facts of a text, or of several."""
    texts = [value] if isinstance(value, str) else list(value)
    shown = plain_text(json.dumps(texts, ensure_ascii=False))
    digest = hashlib.sha256(shown.encode())
    return _facts(["text"], [[len(texts)]], digest) | {"text": shown[:_MAX_TEXT]}


def _facts(dtypes: list[str], shapes: list[list[int]], digest: Any) -> dict[str, Any]:
    return {"dtype": ", ".join(dtypes), "shapes": shapes, "hash": digest.hexdigest()[:_HASH_LENGTH]}


def plain(value: Any) -> np.ndarray:
    """Return a tensor, a list of numbers or an image as an array."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return np.asarray(value.numpy())
    return np.asarray(value)


def _pieces(value: Any) -> list[Any]:
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = list(value)  # arrays of several lengths, which would be hashed as addresses
    if not isinstance(value, (list, tuple)):
        return [value]
    if all(isinstance(piece, (bool, int, float, str)) for piece in value):
        return [value]
    return [piece for item in value for piece in _pieces(item)]


def _numbers(pieces: list[np.ndarray]) -> np.ndarray | None:
    if not pieces or any(piece.dtype.kind not in "biuf" for piece in pieces):
        return None
    flat = [piece.reshape(-1).astype(np.float64) for piece in pieces]
    return flat[0] if len(flat) == 1 else np.concatenate(flat)


def _projections(values: np.ndarray) -> list[float]:
    products = (values * _weights(number, values.size) for number in range(N_PROJECTIONS))
    return [float(np.add.reduce(product)) for product in products]


def _weights(number: int, count: int) -> np.ndarray:
    size = max(_MIN_KEPT, 1 << (count - 1).bit_length())
    return _kept(number, size)[:count] if size <= _MAX_KEPT else _made(number, count)


@lru_cache(maxsize=4 * N_PROJECTIONS)
def _kept(number: int, size: int) -> np.ndarray:
    return _made(number, size)


def _made(number: int, count: int) -> np.ndarray:
    return 2.0 * uniform(_SEED + number, count) - 1.0
