"""Which cells load other classes, and what a report keeps of the loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.jobs.records import Options
from samebits.questions.classes.compare import differences
from samebits.questions.classes.records import CLASSES, ClassesOfRow, ClassesReport
from samebits.records.question import compared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samebits.matrix.spec import ModelSpec
    from samebits.questions.classes.records import ClassesSignal
    from samebits.records.capture import Capture
    from samebits.records.ids import CellId


def options(cell: CellId, model: ModelSpec) -> Options | None:
    """Ask the model's first CPU variant: what is read does not depend on the dtype."""
    return Options(large=model.large) if cell.variant == model.first_on_cpu else None


def of_captures(captures: Mapping[str, Capture], reference: str) -> ClassesOfRow | None:
    """Return the loads in a row's cells, and what differs from the reference's."""
    signals = CLASSES.by_stack(captures)
    if not signals:
        return None
    return ClassesOfRow(stacks=signals, compared=compared(reference, signals, _report))


def _report(first: str, reference: ClassesSignal, candidate: ClassesSignal) -> ClassesReport:
    return ClassesReport(reference=first, differences=tuple(differences(reference, candidate)))
