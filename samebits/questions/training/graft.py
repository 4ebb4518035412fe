"""Judgement of grafts in a training step, from the pieces that were tried."""

from __future__ import annotations

from samebits.grafts.judge import others, proven, smallest
from samebits.questions.training.step_graft import StepDonor, StepGraft, StepGraftFile
from samebits.questions.training.step_trace import Rung
from samebits.records.graft import Try, Untried

LOSS_FUNCTION = "loss function"
"""All that a loss makes of the logits. It is tried last, as every other piece is a part of it."""


def graft(donor: StepDonor, patient: StepGraftFile, batch: str, rung: Rung) -> StepGraft | str:
    """Return what the tries prove, or why they prove nothing."""
    for side in (donor, patient):
        if side.failure is not None:
            return f"{side.cell}: {side.failure.in_words}"
        if side.leaks:
            return f"{side.cell}: lower precision than float64 comes out of {', '.join(side.leaks)}"
    baseline = patient.tried[0] if patient.tried else None
    if baseline is None or not baseline.of:
        return "no result of the two steps can be compared"
    if baseline.restores:
        return "with nothing put in, the step is the reference's in this precision"
    order = list(dict.fromkeys(name for run in patient.tried for name in run.suspects))
    best = smallest(patient.tried, order)
    return StepGraft(
        batch=batch,
        rung=rung,
        headline=_headline(best, patient, rung),
        proof=proven(best, patient.tried, order),
        smallest=best.suspects if best is not None else (),
        others=others(best, patient.tried),
        tried=patient.tried,
        untried=tuple(Untried(what=what, reason=reason) for what, reason in patient.untried),
    )


def _headline(best: Try | None, patient: StepGraftFile, rung: Rung) -> str:
    exact = "bytes" if rung == "own" else "numbers in float64"
    if best is None:
        names = dict.fromkeys(name for run in patient.tried for name in run.suspects)
        if not names:
            return "nothing of the reference's loss could be put in"
        return f"no piece of the reference's loss restores its step: {', '.join(names)} were tried"
    words = " and ".join(best.suspects)
    n = f"{best.same} of {best.of}"
    if best.suspects == (LOSS_FUNCTION,):
        return (
            f"with the gradient that the reference's {LOSS_FUNCTION} has at the logits, all "
            f"gradients have the reference's {exact} ({n}): the difference is in the loss"
        )
    return f"with {words} of the reference, loss and gradients have its {exact} ({n})"
