"""What logits decide: the tokens that two tensors of logits choose, and their KL divergence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 16
"""Elements processed together, unless a single position has more."""


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """The changes of argmax and the KL divergence; None if there is no vocabulary axis."""

    n_argmax: int | None = None
    """Positions whose argmax changed. As in torch, NaN is larger than every number."""
    n_positions: int | None = None
    kl_max: float | None = None
    """In nats, over the positions where it is defined; None if there is none."""
    kl_mean: float | None = None
    position: int | None = None
    """The first position whose argmax changed, else the one with the largest KL divergence, as an
    index into all positions; None if nothing of both differs."""


def decisions(
    reference: NDArray[Any], candidate: NDArray[Any], rows: NDArray[np.bool_] | None
) -> Decisions:
    """Return what the logits [..., vocabulary] decide where the mask ``rows`` is True.

    KL is undefined at a position where a side holds NaN or +inf, or only -inf. Such positions are
    left out of the maximum and the mean. A -inf is a probability of 0.
    """
    if not reference.ndim or not reference.shape[-1]:
        return Decisions()
    changed: list[int] = []
    n_positions = 0
    divergences: list[NDArray[np.float64]] = []
    places: list[NDArray[np.intp]] = []
    for positions, a, b in _blocks(reference, candidate, rows):
        x, y = a.astype(np.float64), b.astype(np.float64)
        n_positions += len(x)
        changed += positions[x.argmax(-1) != y.argmax(-1)].tolist()
        defined = np.isfinite(x.max(-1)) & np.isfinite(y.max(-1))
        divergences.append(_divergence(x, y, defined))
        places.append(positions[defined])
    values = np.concatenate(divergences) if divergences else np.empty(0)
    return Decisions(
        n_argmax=len(changed),
        n_positions=n_positions,
        kl_max=float(values.max()) if values.size else None,
        kl_mean=float(values.mean()) if values.size else None,
        position=changed[0] if changed else _most_divergent(values, places),
    )


def _most_divergent(values: NDArray[np.float64], places: list[NDArray[np.intp]]) -> int | None:
    if not values.size or not values.max():
        return None
    return int(np.concatenate(places)[values.argmax()])


def _blocks(
    reference: NDArray[Any], candidate: NDArray[Any], rows: NDArray[np.bool_] | None
) -> Iterator[tuple[NDArray[np.intp], NDArray[Any], NDArray[Any]]]:
    """Yield positions, and both sides as [positions, vocabulary], a bounded number at a time."""
    vocabulary = reference.shape[-1]
    a, b = reference.reshape(-1, vocabulary), candidate.reshape(-1, vocabulary)
    counted = _positions(reference.shape, rows)
    step = max(1, CHUNK // vocabulary)
    for start in range(0, len(counted), step):
        positions = counted[start : start + step]
        yield positions, a[positions], b[positions]


def _positions(shape: tuple[int, ...], rows: NDArray[np.bool_] | None) -> NDArray[np.intp]:
    if rows is None:
        return np.arange(prod(shape[:-1]))
    return np.flatnonzero(np.repeat(rows.reshape(-1), prod(shape[rows.ndim : -1])))


def _divergence(
    x: NDArray[np.float64], y: NDArray[np.float64], defined: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return KL(x || y) of the positions [n, vocabulary] where it is defined."""
    same = (x == y).all(-1)
    result = np.zeros(np.count_nonzero(defined))
    work = defined & ~same
    result[~same[defined]] = _kl(x[work], y[work])
    return result


def _kl(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    log_p, log_q = _log_softmax(x), _log_softmax(y)
    p = np.exp(log_p)
    terms = np.where(p > 0, p * (log_p - log_q), 0.0)
    total: NDArray[np.float64] = np.maximum(terms.sum(-1), 0.0)  # rounding may leave it just below
    return total


def _log_softmax(x: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = x - x.max(-1, keepdims=True)
    normed: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return normed
