"""Which greedy steps can flip, and was each split that was seen a near-tie?

The token of a step can change only if its margin, the distance of the two best scores, is no
more than twice the drift: each of the two can move by no more than one drift. The drift is the
largest distance of the two sides' logits at that step, or what rounding can make of it if that
is less: both sides' distances from their own float64. A split with a larger margin is no
near-tie and has another cause than rounding: the function, a processor, another end of text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from samebits.records.ladder import AtRisk, SplitJudgement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from samebits.compare.pair import TensorSource
    from samebits.ladder.steps import Climb
    from samebits.records.capture import Capture
    from samebits.records.comparison import TokenSplit
    from samebits.records.tensor import TensorRef


def judged_splits(
    reference: Capture,
    candidate: Capture,
    splits: Iterable[TokenSplit],
    values: TensorSource,
    climb: Climb | None,
) -> tuple[SplitJudgement, ...]:
    """Return for each split whether it is a near-tie."""
    return tuple(_judged(reference, candidate, split, values, climb) for split in splits)


def _judged(
    reference: Capture,
    candidate: Capture,
    split: TokenSplit,
    values: TensorSource,
    climb: Climb | None,
) -> SplitJudgement:
    told = SplitJudgement(
        prompt=split.prompt, step=split.step, margin=None, drift=None, near_tie=None
    )
    if split.reference is None or split.candidate is None:
        ended = "one side has ended and the other has not"
        return told.model_copy(update={"near_tie": False, "note": ended})
    (_, high), (_, second) = split.reference
    told = told.model_copy(update={"margin": high - second})
    one, other = (
        _at((side.signals.greedy or {})[split.prompt].logits, split.step, values)
        for side in (reference, candidate)
    )
    drifts = [_between(one, other), _rounding(climb, split.prompt, split.step) if climb else None]
    known = [drift for drift in drifts if drift is not None]
    if not known:
        return told.model_copy(update={"note": "the logits of the step were not recorded"})
    near = high - second <= 2 * min(known)
    return told.model_copy(update={"drift": min(known), "near_tie": near})


def _rounding(climb: Climb, row: str, step: int) -> float | None:
    """Return how far rounding can move a logit: both sides' distances from their own float64."""
    values = climb.pair.values
    errors = [
        _between(_at(own.decode.get(row), step, values), _at(exact.decode.get(row), step, values))
        for own, exact in zip(climb.rungs("own"), climb.rungs("float64"), strict=True)
        if own is not None and exact is not None
    ]
    known = [error for error in errors if error is not None]
    return sum(known) if len(known) == 2 else None


def _at(ref: TensorRef | None, step: int, values: TensorSource) -> NDArray[Any] | None:
    """Return the logits of one step, None if they are not there."""
    if ref is None or not values.has(ref) or step >= ref.shape[0]:
        return None
    row: NDArray[Any] = values.tensor(ref)[step]
    return row


def _between(one: NDArray[Any] | None, other: NDArray[Any] | None) -> float | None:
    """Return the largest distance of two rows of logits where both are finite, if there are two."""
    if one is None or other is None or one.shape != other.shape:
        return None
    a, b = one.astype(np.float64), other.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0))


def at_risk(climb: Climb) -> tuple[AtRisk, ...]:
    """Return the steps of each row whose margin is no more than twice the drift.

    Both sides are fed the reference's tokens, so every step can be looked at.
    """
    one, other = climb.rungs("own")
    if one is None or other is None:
        return ()
    found = []
    for row, ref in one.decode.items():
        there = other.decode.get(row)
        if there is None:
            continue
        n = min(ref.shape[0], there.shape[0])
        steps = tuple(step for step in range(n) if _can_flip(climb, row, ref, there, step))
        found.append(AtRisk(prompt=row, steps=steps, n_steps=n))
    return tuple(found)


def _can_flip(climb: Climb, row: str, one: TensorRef, other: TensorRef, step: int) -> bool:
    values = climb.pair.values
    mine, theirs = _at(one, step, values), _at(other, step, values)
    drifts = [_between(mine, theirs), _rounding(climb, row, step)]
    known = [drift for drift in drifts if drift is not None]
    return mine is not None and bool(known) and _margin(mine) <= 2 * min(known)


def _margin(logits: NDArray[Any]) -> float:
    if logits.size < 2:
        return float("inf")
    second, high = np.partition(logits.astype(np.float64), -2)[-2:]
    return float(high - second)
