"""Which cells have their processors asked, and what a report keeps of the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.jobs.records import Options
from samebits.questions.processors.compare import reports_of
from samebits.questions.processors.records import PROCESSORS, ProcessorsOfRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samebits.matrix.spec import ModelSpec
    from samebits.questions.processors.records import ProcessorsSignal
    from samebits.records.capture import Capture
    from samebits.records.ids import CellId


def options(cell: CellId, model: ModelSpec) -> Options | None:
    """Ask the model's first CPU variant, as dtype and attention do not matter."""
    return Options() if cell.variant == model.first_on_cpu else None


def of_captures(captures: Mapping[str, Capture], reference: str) -> ProcessorsOfRow | None:
    """Return the processors of a row's cells, and what differs from the reference's."""
    signals = PROCESSORS.by_stack(captures)
    return of_signals(signals, reference) if signals else None


def of_signals(signals: Mapping[str, ProcessorsSignal], reference: str) -> ProcessorsOfRow:
    """Return processors without what they make of each input, and what differs of that."""
    return ProcessorsOfRow(
        stacks={stack: _trimmed(signal) for stack, signal in signals.items()},
        compared=reports_of(signals, reference),
    )


def _trimmed(signal: ProcessorsSignal) -> ProcessorsSignal:
    parts = {name: part.model_copy(update={"cases": {}}) for name, part in signal.parts.items()}
    return signal.model_copy(update={"parts": parts})
