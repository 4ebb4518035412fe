"""What is asked of two traced training steps: which batch, and which gradients count."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from samebits.questions.training.records import TrainingComparison, TrainingFile
    from samebits.records.ids import CellId

_BEFORE_BACKWARD = ("logits", "loss", "other losses")


class StepQuestion(NamedTuple):
    """One training step of a pair to trace."""

    reference: CellId
    batch: str
    backward: bool
    """Whether the difference is in gradients; else the trace ends with the losses."""
    skipped: frozenset[str]
    """Tensors of the checkpoint whose gradients are not compared by name."""
    without: frozenset[str]
    """Tensors that get a gradient on one side only."""
    in_loss: bool
    """Whether a loss differs, and not the logits that it is computed from."""
    no_rounding: bool
    """True if nothing of the step differs by rounding: its own bits show where it begins, too."""


def question(
    comparison: TrainingComparison, reference: TrainingFile, candidate: TrainingFile
) -> StepQuestion | str:
    """Return what to trace of a pair whose step diverged, or why nothing is traced; '' for no need."""
    first = comparison.first
    if comparison.standing != "diverged" or first is None or reference.own is None:
        return ""
    if candidate.own is None:
        return ""
    backward = first.signal not in _BEFORE_BACKWARD
    batch = first.batch or next(iter(reference.own.batches))
    facts = [own.batches.get(batch) for own in (reference.own, candidate.own)]
    if any(side is None or side.refused for side in facts):
        return ""  # the exception says it all
    begins_before = any(
        item.signal == "logits" and item.batch == batch and item.outcome == "diverged"
        for item in comparison.items
    )
    if begins_before and first.signal != "logits":
        return "the logits differ already, and what is computed from them differs with them"
    outcomes = comparison.counts
    return StepQuestion(
        reference=reference.cell,
        batch=batch,
        backward=backward,
        skipped=frozenset({*reference.uncertain, *candidate.uncertain}),
        without=frozenset({*reference.own.without} ^ {*candidate.own.without}),
        in_loss=first.signal in ("loss", "other losses"),
        no_rounding=not outcomes.get("rounding") and not outcomes.get("undecided"),
    )
