"""The greedy steps that can flip, and whether each observed split is a near-tie.

The token of a step can change only if its margin, the distance of the two best scores, is at most
twice the drift: each of the two scores can move by at most one drift. The drift is the largest
distance of the two sides' logits at that step, or the largest distance that rounding can cause, if
that is less: the sum of both sides' distances from their own float64. A split with a larger margin
is not a near-tie and has another cause than rounding: the function, a processor, another end of
text.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits.compare.pair import TensorSource
from samebits.ladder.steps import Climb
from samebits.records.capture import Capture
from samebits.records.comparison import TokenSplit
from samebits.records.ladder import AtRisk, SplitJudgement
from samebits.records.tensor import TensorRef


def judged_splits(
    reference: Capture,
    candidate: Capture,
    splits: Iterable[TokenSplit],
    values: TensorSource,
    climb: Climb | None,
) -> tuple[SplitJudgement, ...]:
    """Return for each split whether it is a near-tie."""
    return tuple(_judged_split(reference, candidate, split, values, climb) for split in splits)


def _judged_split(
    reference: Capture,
    candidate: Capture,
    split: TokenSplit,
    values: TensorSource,
    climb: Climb | None,
) -> SplitJudgement:
    judgement = SplitJudgement(
        prompt=split.prompt, step=split.step, margin=None, drift=None, near_tie=None
    )
    if split.reference is None or split.candidate is None:
        note = "one side has ended and the other has not"
        return judgement.model_copy(update={"near_tie": False, "note": note})
    (_, high), (_, second) = split.reference
    judgement = judgement.model_copy(update={"margin": high - second})
    reference_logits, candidate_logits = (
        _step_logits((side.signals.greedy or {})[split.prompt].logits, split.step, values)
        for side in (reference, candidate)
    )
    drifts = [
        _row_distance(reference_logits, candidate_logits),
        _rounding_drift(climb, split.prompt, split.step) if climb else None,
    ]
    known_drifts = [drift for drift in drifts if drift is not None]
    if not known_drifts:
        return judgement.model_copy(update={"note": "the logits of the step were not recorded"})
    is_near = high - second <= 2 * min(known_drifts)
    return judgement.model_copy(update={"drift": min(known_drifts), "near_tie": is_near})


def _rounding_drift(climb: Climb, row: str, step: int) -> float | None:
    """Return how far rounding can move a logit: the sum of both sides' float64 errors."""
    values = climb.pair.values
    errors = [
        _row_distance(
            _step_logits(native.decode.get(row), step, values),
            _step_logits(exact.decode.get(row), step, values),
        )
        for native, exact in zip(climb.rungs("own"), climb.rungs("float64"), strict=True)
        if native is not None and exact is not None
    ]
    measured = [error for error in errors if error is not None]
    return sum(measured) if len(measured) == 2 else None


def _step_logits(ref: TensorRef | None, step: int, values: TensorSource) -> NDArray[Any] | None:
    """Return the logits of one step, None if they are not stored."""
    if ref is None or not values.has(ref) or step >= ref.shape[0]:
        return None
    row: NDArray[Any] = values.tensor(ref)[step]
    return row


def _row_distance(reference: NDArray[Any] | None, candidate: NDArray[Any] | None) -> float | None:
    """Return the largest distance of two rows of logits where both are finite, else None."""
    if reference is None or candidate is None or reference.shape != candidate.shape:
        return None
    a, b = reference.astype(np.float64), candidate.astype(np.float64)
    finite = np.isfinite(a) & np.isfinite(b)
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0))


def at_risk(climb: Climb) -> tuple[AtRisk, ...]:
    """Return the steps of each row whose margin is at most twice the drift.

    Both sides decode the reference's tokens, so every step can be compared.
    """
    reference, candidate = climb.rungs("own")
    if reference is None or candidate is None:
        return ()
    rows = []
    for row, reference_ref in reference.decode.items():
        candidate_ref = candidate.decode.get(row)
        if candidate_ref is None:
            continue
        n = min(reference_ref.shape[0], candidate_ref.shape[0])
        steps = tuple(
            step for step in range(n) if _can_flip(climb, row, reference_ref, candidate_ref, step)
        )
        rows.append(AtRisk(prompt=row, steps=steps, n_steps=n))
    return tuple(rows)


def _can_flip(
    climb: Climb, row: str, reference: TensorRef, candidate: TensorRef, step: int
) -> bool:
    values = climb.pair.values
    reference_logits, candidate_logits = (
        _step_logits(reference, step, values),
        _step_logits(candidate, step, values),
    )
    drifts = [_row_distance(reference_logits, candidate_logits), _rounding_drift(climb, row, step)]
    measured = [drift for drift in drifts if drift is not None]
    return (
        reference_logits is not None
        and bool(measured)
        and _margin(reference_logits) <= 2 * min(measured)
    )


def _margin(logits: NDArray[Any]) -> float:
    if logits.size < 2:
        return float("inf")
    second, high = np.partition(logits.astype(np.float64), -2)[-2:]
    return float(high - second)
