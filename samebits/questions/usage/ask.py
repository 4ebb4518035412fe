"""Where the uses of a model are tried: in its first CPU variant, as others would answer the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.jobs.records import Options
from samebits.questions.usage.records import USAGE, UsageOfRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samebits.matrix.spec import ModelSpec
    from samebits.records.capture import Capture
    from samebits.records.ids import CellId


def options(cell: CellId, model: ModelSpec) -> Options | None:
    """Return how uses are tried; None in all but the model's first CPU variant."""
    return Options(large=model.large) if cell.variant == model.first_on_cpu else None


def of_captures(captures: Mapping[str, Capture], _reference: str) -> UsageOfRow | None:
    """Return what the cells of a row answered."""
    stacks = USAGE.by_stack(captures)
    return UsageOfRow(stacks=stacks) if stacks else None
