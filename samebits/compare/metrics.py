"""Distance between two tensors of equal shape.

Bytes are compared first. Only chunks that differ are examined further, so tensors of gigabytes need
a few megabytes of temporaries. Elements are compared as bytes too: -0.0 and +0.0 differ (at a
distance of 0), equal NaNs are equal, and NaNs with different payloads differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum, isfinite, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits.base.mmap import STRIDE, release_pages
from samebits.compare.decisions import Decisions, decisions
from samebits.compare.positions import by_position
from samebits.compare.ulp import distance, max_ulp
from samebits.records.comparison import Choices, Extreme, LikelyToken, Metrics

CHUNK = 1 << 16
"""Elements processed together: half a megabyte as float64."""

TOP = 5


def row_mask(ranges: Sequence[tuple[int, int]], shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return the mask [batch, positions] that is True inside each row's half-open range."""
    positions = np.arange(shape[1])
    return np.array([(positions >= start) & (positions < stop) for start, stop in ranges], np.bool_)


def measure(
    reference: NDArray[Any],
    candidate: NDArray[Any],
    *,
    rows: NDArray[np.bool_] | None = None,
    logits: bool = False,
    tokens: Mapping[str, str] | None = None,
    positions: bool = False,
) -> Metrics:
    """Return how ``candidate`` differs from ``reference``, which has the same shape.

    ``rows`` is a mask over the leading axes; elements where it is False are ignored. ``logits``
    says that the last axis is the vocabulary; ``tokens`` maps its ids to their texts. ``positions``
    asks for distances by position, of outputs [batch, positions, width]. If the dtypes
    differ, an element differs if its value does; the caller reports the dtypes. Complex numbers
    count as pairs of reals along one more axis.
    """
    assert reference.shape == candidate.shape
    reference, candidate = _real(reference, candidate)
    flat = reference.reshape(-1), candidate.reshape(-1)
    sums = _Sums(max_ulp=max_ulp(flat[0][:0], flat[1][:0]))
    with np.errstate(all="ignore"):
        released = 0
        for start, stop in _spans(reference.shape, rows):
            sums.add(start, flat[0][start:stop], flat[1][start:stop])
            if (stop - released) * flat[0].itemsize > STRIDE:
                released = stop
                release_pages(flat[0])
                release_pages(flat[1])
        chosen = decisions(reference, candidate, rows) if logits else Decisions()
    profile = by_position(reference, candidate, rows) if positions and sums.n_differ else ()
    texts = tokens or {}
    return _metrics(sums, reference.shape, chosen, texts if logits else None).model_copy(
        update={
            "choices": _choices(reference, candidate, chosen.position, texts),
            "by_position": profile,
        }
    )


def differing(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the elements whose bytes differ; whose values differ, for two dtypes."""
    if a.dtype == b.dtype:
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        bits: NDArray[np.bool_] = a.view(unsigned) != b.view(unsigned)
        return bits
    x, y = a.astype(np.float64), b.astype(np.float64)
    values: NDArray[np.bool_] = x.view(np.uint64) != y.view(np.uint64)
    return values & ~(np.isnan(x) & np.isnan(y))


@dataclass
class _Sums:
    """Sums over the chunks seen so far."""

    max_ulp: int | None
    """None if one of the sides is not a float tensor."""
    n: int = 0
    n_differ: int = 0
    n_finite: int = 0
    sum_abs: list[float] = field(default_factory=list)
    max_abs: float = 0.0
    max_rel: float = 0.0
    dot: float = 0.0
    norms: tuple[float, float] = (0.0, 0.0)
    nans: tuple[int, int] = (0, 0)
    infs: tuple[int, int] = (0, 0)
    first: int | None = None
    top: list[tuple[float, int, float, float]] = field(default_factory=list)
    """(distance, flat index, reference, candidate), largest distance first."""

    def add(self, start: int, a: NDArray[Any], b: NDArray[Any]) -> None:
        """Add one chunk of flat values that begins at flat index ``start``."""
        self.n += a.size
        where = np.flatnonzero(differing(a, b))
        x = a.astype(np.float64)
        y = b.astype(np.float64) if where.size else x
        finite = self._add_all(x, y)
        if not where.size:
            return
        self.n_differ += where.size
        if self.first is None:
            self.first = start + int(where[0])
        self._add_differing(start, a, b, x, y, where if finite is None else where[finite[where]])

    def _add_all(self, x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.bool_] | None:
        """Add all elements of a chunk; return where both sides are finite, None if everywhere."""
        first = _dot(x, x)
        norms = first, first if y is x else _dot(y, y)
        self.dot += first if y is x else _dot(x, y)
        self.norms = self.norms[0] + norms[0], self.norms[1] + norms[1]
        if isfinite(norms[0]) and isfinite(norms[1]):  # then every element is
            self.n_finite += x.size
            return None
        self.nans = _added(self.nans, np.isnan(x), np.isnan(y))
        self.infs = _added(self.infs, np.isinf(x), np.isinf(y))
        finite = np.isfinite(x) & np.isfinite(y)
        self.n_finite += int(np.count_nonzero(finite))
        return finite

    def _add_differing(
        self,
        start: int,
        a: NDArray[Any],
        b: NDArray[Any],
        x: NDArray[np.float64],
        y: NDArray[np.float64],
        where: NDArray[np.intp],
    ) -> None:
        """Add the elements ``where``, which differ and are finite on both sides."""
        a, b, x, y = a[where], b[where], x[where], y[where]
        if not where.size:
            return
        if self.max_ulp is not None:
            self.max_ulp = max(self.max_ulp, max_ulp(a, b) or 0)
        distances = _absolute(a, b, x, y)
        self.sum_abs.append(float(distances.sum()))
        self.max_abs = max(self.max_abs, float(distances.max()))
        nonzero = x != 0
        relative = distances[nonzero] / np.abs(x[nonzero])
        self.max_rel = max(self.max_rel, float(relative.max(initial=0.0)))
        largest = _largest(distances, self.top[-1][0] if len(self.top) == TOP else None)
        self.top += [
            (float(distances[i]), start + int(where[i]), float(x[i]), float(y[i])) for i in largest
        ]
        self.top = sorted(self.top, key=lambda entry: (-entry[0], entry[1]))[:TOP]


def _real(a: NDArray[Any], b: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    if "c" not in a.dtype.kind + b.dtype.kind:
        return np.ascontiguousarray(a).reshape(a.shape), np.ascontiguousarray(b).reshape(b.shape)
    return _pairs(a), _pairs(b)


def _pairs(values: NDArray[Any]) -> NDArray[Any]:
    """Return complex numbers, or reals converted to complex, as pairs along one more axis."""
    pairs = np.ascontiguousarray(
        values if values.dtype.kind == "c" else values.astype(np.complex128)
    )
    part = np.dtype(f"f{pairs.dtype.itemsize // 2}")
    return pairs.reshape(-1).view(part).reshape(*values.shape, 2)


def _dot(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the dot product without BLAS, whose threads cost more than they save on a chunk."""
    return float(np.multiply(x, y).sum())


def _spans(shape: tuple[int, ...], rows: NDArray[np.bool_] | None) -> Iterator[tuple[int, int]]:
    """Yield the flat half-open ranges to compare, none longer than a chunk."""
    for start, stop in _runs(shape, rows):
        for place in range(start, stop, CHUNK):
            yield place, min(place + CHUNK, stop)


def _runs(shape: tuple[int, ...], rows: NDArray[np.bool_] | None) -> list[tuple[int, int]]:
    if rows is None:
        return [(0, prod(shape))]
    assert rows.shape == shape[: rows.ndim]
    inner = prod(shape[rows.ndim :])
    edges = np.flatnonzero(np.diff(rows.reshape(-1).astype(np.int8), prepend=0, append=0))
    return [(int(start) * inner, int(stop) * inner) for start, stop in edges.reshape(-1, 2)]


def _added(sums: tuple[int, int], a: NDArray[np.bool_], b: NDArray[np.bool_]) -> tuple[int, int]:
    return sums[0] + int(np.count_nonzero(a)), sums[1] + int(np.count_nonzero(b))


def _absolute(
    a: NDArray[Any], b: NDArray[Any], x: NDArray[np.float64], y: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return |x - y|, for integers from the integers themselves: float64 cannot hold them all."""
    if a.dtype == b.dtype and a.dtype.kind in "iu":
        return distance(a, b).astype(np.float64)
    return np.abs(x - y)


def _largest(distances: NDArray[np.float64], above: float | None) -> NDArray[np.intp]:
    """Return the indices of the largest few, in descending order, ties in order of index.

    Only values larger than ``above`` qualify: an equal one would come after the present entries.
    """
    indices = np.arange(distances.size) if above is None else np.flatnonzero(distances > above)
    values = distances[indices]
    if values.size > TOP:
        threshold = np.partition(values, values.size - TOP)[values.size - TOP]
        indices = indices[values >= threshold]
    return indices[np.argsort(-distances[indices], kind="stable")[:TOP]]


def _cosine(sums: _Sums) -> float | None:
    a, b = sums.norms
    if sums.n_finite < sums.n or not (isfinite(a) and isfinite(b) and a > 0 and b > 0):
        return None
    return max(-1.0, min(1.0, sums.dot / (sqrt(a) * sqrt(b))))


def _metrics(
    sums: _Sums,
    shape: tuple[int, ...],
    chosen: Decisions,
    tokens: Mapping[str, str] | None,
) -> Metrics:
    return Metrics(
        n=sums.n,
        n_differ=sums.n_differ,
        max_abs=sums.max_abs,
        mean_abs=fsum(sums.sum_abs) / sums.n_finite if sums.n_finite else 0.0,
        max_rel=sums.max_rel,
        max_ulp=sums.max_ulp,
        cosine=_cosine(sums),
        n_nan=sums.nans,
        n_inf=sums.infs,
        first_index=None if sums.first is None else _index(sums.first, shape),
        top=tuple(_extreme(entry, shape, tokens) for entry in sums.top),
        n_argmax=chosen.n_argmax,
        n_positions=chosen.n_positions,
        kl_max=chosen.kl_max,
        kl_mean=chosen.kl_mean,
    )


def _choices(
    reference: NDArray[Any],
    candidate: NDArray[Any],
    position: int | None,
    tokens: Mapping[str, str],
) -> Choices | None:
    if position is None:
        return None
    sides = (
        tuple(_likely(side.reshape(-1, side.shape[-1])[position], tokens))
        for side in (reference, candidate)
    )
    return Choices(
        index=_index(position, reference.shape[:-1]), reference=next(sides), candidate=next(sides)
    )


def _likely(logits: NDArray[Any], tokens: Mapping[str, str]) -> Iterator[LikelyToken]:
    """Yield the most likely tokens, equal ones in order of their ids."""
    values = logits.astype(np.float64)
    for id in np.argsort(-values, kind="stable")[:TOP].tolist():
        yield LikelyToken(id=id, logit=float(values[id]), text=tokens.get(str(id)))


def _extreme(
    entry: tuple[float, int, float, float],
    shape: tuple[int, ...],
    tokens: Mapping[str, str] | None,
) -> Extreme:
    index = _index(entry[1], shape)
    token = None if tokens is None or not index else _token(index[-1], tokens)
    return Extreme(index=index, reference=entry[2], candidate=entry[3], token=token)


def _token(id: int, tokens: Mapping[str, str]) -> str:
    text = tokens.get(str(id))
    return str(id) if text is None else f"{id} {text!r}"


def _index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(int(place) for place in np.unravel_index(flat, shape))
