"""What the report has of a training step, and what the forward explains of a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from samebits.questions.training.records import TrainingComparison, TrainingFile, TrainingReport
from samebits.records.ids import Signal, Verdict

if TYPE_CHECKING:
    from samebits.questions.training.step_graft import StepGraft
    from samebits.questions.training.step_trace import StepOrigin
    from samebits.records.comparison import CellResult

_FORWARD_AGREES = frozenset({Verdict.IDENTICAL, Verdict.ROUNDING, Verdict.REFERENCE})
_OF_FORWARD: tuple[Signal, ...] = ("hidden_states", "logits", "outputs")


def report_of(file: TrainingFile, comparison: TrainingComparison | None) -> TrainingReport:
    """Return the facts of a step without its tensors, and its comparison."""
    shared = TrainingReport(
        reason=file.reason,
        failure=file.failure,
        asked_of=file.asked_of,
        relations=file.relations,
        comparison=comparison,
        seconds=file.seconds,
    )
    step = file.own
    if step is None:
        return shared
    batches = step.batches
    return shared.model_copy(
        update={
            "losses": {name: b.loss for name, b in batches.items() if b.loss is not None},
            "others": {name: b.others for name, b in batches.items() if b.others},
            "formulas": {name: b.formula for name, b in batches.items() if b.formula},
            "refused": {name: b.refused for name, b in batches.items() if b.refused},
            "n_gradients": len(step.gradients),
            "without": step.without,
            "carriers": step.carriers,
            "norm": step.norm,
            "behind": step.behind,
        }
    )


def with_explanation(
    report: TrainingReport,
    name: Literal["origin", "graft"],
    explanation: StepOrigin | StepGraft | str,
) -> TrainingReport:
    """Return a report with the origin or the graft of a difference, or with why there is none."""
    assert report.comparison is not None
    update = {f"no_{name}" if isinstance(explanation, str) else name: explanation}
    return report.model_copy(update={"comparison": report.comparison.model_copy(update=update)})


def with_forward(report: TrainingReport, result: CellResult) -> TrainingReport:
    """Return a report in which a difference that begins in the forward is not accused again.

    The forward's own difference is the cell's verdict. A loss that is another function of the
    logits stays accused, as the formulas show it.
    """
    comparison = report.comparison
    if comparison is None or comparison.standing not in ("diverged", "undecided"):
        return report
    if _forward_agrees(result):
        return report
    begins = any(
        item.signal == "logits" and item.outcome in ("diverged", "undecided")
        for item in comparison.items
    )
    if not begins or any(item.formulas for item in comparison.items):
        return report
    update = {"standing": "follows", "reason": "it follows from the forward, which differs already"}
    return report.model_copy(update={"comparison": comparison.model_copy(update=update)})


def _forward_agrees(result: CellResult) -> bool:
    """Return True if the forward explains no other logits of a step.

    A verdict may rest on something else than the forward, such as a decode or an argument of
    generate(): then logits with the same bits explain nothing.
    """
    if result.judged in _FORWARD_AGREES:
        return True
    outcomes = {signal.signal: signal.outcome for signal in result.signals}
    forward = [outcomes[name] for name in _OF_FORWARD if name in outcomes]
    same = outcomes.get("logits") == "identical" and "differs" not in forward
    return result.judged in (Verdict.DIVERGED, Verdict.UNDECIDED) and same
