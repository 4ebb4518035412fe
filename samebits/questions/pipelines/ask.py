"""Which cells have their pipelines called, and what a report keeps of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.jobs.records import Options
from samebits.questions.pipelines.compare import report
from samebits.questions.pipelines.records import PIPELINES, PipelinesOfRow
from samebits.records.question import compared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samebits.matrix.spec import ModelSpec
    from samebits.questions.pipelines.records import PipelinesSignal
    from samebits.records.capture import Capture
    from samebits.records.ids import CellId


def options(cell: CellId, model: ModelSpec) -> Options | None:
    """Ask the model's first CPU variant: a pipeline loads the model as it likes."""
    return Options(large=model.large) if cell.variant == model.first_on_cpu else None


def of_captures(captures: Mapping[str, Capture], reference: str) -> PipelinesOfRow | None:
    """Return the tasks of a row's cells, and what differs from the reference's."""
    signals = PIPELINES.by_stack(captures)
    if not signals:
        return None
    return PipelinesOfRow(
        stacks={stack: _trimmed(signal) for stack, signal in signals.items()},
        compared=compared(reference, signals, report),
    )


def _trimmed(signal: PipelinesSignal) -> PipelinesSignal:
    tasks = {name: task.model_copy(update={"cases": {}}) for name, task in signal.tasks.items()}
    return signal.model_copy(update={"tasks": tasks})
