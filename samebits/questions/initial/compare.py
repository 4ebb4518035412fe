"""The first weights of new models in two environments: set or drawn, to which values, and with which scale.

A scale is known from a sample, so a difference counts only far beyond what a sample can miss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from samebits.questions.initial.records import FirstWeights, InitialSignal, Kind


class Difference(NamedTuple):
    """Tensors that the same lines of two releases start otherwise."""

    made: str
    """How the models are made."""
    kind: Kind
    tensors: tuple[str, ...]


_SIGMAS = 6.0
"""Standard errors beyond which two samples are not of one distribution: 2e-9 by chance."""
_RATIO = 1.15
"""Ratio of two scales up to which a difference is worth nobody's time."""
_CENTRE = 0.25
"""The same for two means, as a share of the smaller scale."""
_TABLE = 1e-3
"""Share of the largest value up to which two tables are the same: what rounds, and the order of operations."""
_FITS = 0.05
"""Share by which a scale may miss a field of the config that states it."""


def differences(reference: InitialSignal, candidate: InitialSignal) -> Iterator[Difference]:
    """Yield what starts otherwise, once for all tensors that the same lines of code write."""
    for made, before in reference.made.items():
        after = candidate.made.get(made)
        if after is None or before.model_class != after.model_class:
            continue
        causes: dict[tuple[Kind, str, str], list[str]] = {}
        for name in (name for name in before.tensors if name in after.tensors):
            pair = before.tensors[name], after.tensors[name]
            if kind := kind_of(*pair):
                first, second = map(_rule, pair)
                # without a rule on either side a tensor stands for itself
                causes.setdefault((kind, first or second or name, second), []).append(name)
        for (kind, *_), names in causes.items():
            yield Difference(made, kind, tuple(names))


def _rule(side: FirstWeights) -> str:
    """Return the line of a rule for many modules; '' for a constructor's, as each has its own."""
    if side.writer is None or side.writer.function.endswith("__init__"):
        return ""
    return side.writer.place


def kind_of(before: FirstWeights, after: FirstWeights) -> Kind | None:
    """Return how two tensors start otherwise; None if they do not, or if a side has values of unwritten memory."""
    if is_unwritten(before) or is_unwritten(after) or not (before.is_finite and after.is_finite):
        return None
    if before.is_fixed != after.is_fixed:
        return "drawn"
    if before.is_fixed:
        return "constant" if _are_other_constants(before, after) else None
    if not (before.std and after.std):
        return None
    error = math.hypot(_error(before), _error(after))
    distance = abs(math.log(after.std / before.std))
    if distance > max(_SIGMAS * error, math.log(_RATIO)):
        return "scale"
    error = math.hypot(*(side.std / math.sqrt(side.n_values) for side in (before, after)))
    least = max(_SIGMAS * error, _CENTRE * min(before.std, after.std))
    if abs(after.mean - before.mean) > least:
        return "centre"
    return "padding" if bool(before.zero_rows) != bool(after.zero_rows) else None


def _are_other_constants(before: FirstWeights, after: FirstWeights) -> bool:
    numbers = [(s.least, s.largest, s.mean, s.std) for s in (before, after)]
    allowed = _TABLE * max(abs(value) for side in numbers for value in side)
    return any(abs(a - b) > allowed for a, b in zip(*numbers, strict=True))


def _error(side: FirstWeights) -> float:
    """Return the standard error of the logarithm of a sample's standard deviation, at least that of normal values."""
    return math.sqrt((max(side.kurtosis, 3.0) - 1) / (4 * side.n_values))


def is_unwritten(side: FirstWeights) -> bool:
    """Return True if a tensor has values that no seed decides: unwritten memory, or an unseeded generator."""
    return side.n_unwritten > 0 or not side.repeats


def stated(signal: InitialSignal, weights: FirstWeights) -> str:
    """Return the first field of the config that states the scale of a tensor; '' if none does."""
    if weights.is_fixed:
        return ""
    allowed = max(_FITS, 4 * _error(weights)) if weights.n_values else 0.0
    return next(
        (
            field
            for field, value in signal.scales.items()
            if value and abs(weights.std / value - 1) <= allowed
        ),
        "",
    )
