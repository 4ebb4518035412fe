"""Selection of the cells that get a capsule: one per model and candidate stack, worst first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from samebits.diagnose.verdict import ENOUGH
from samebits.records.comparison import CellResult
from samebits.records.ids import CellId, Verdict

Scope = Literal["none", "failing", "all"]
"""failing: cells that fail the run. all: expected and rounding differences, too."""

MAX_CAPSULES = 8
"""Maximum without --repro: each capsule takes at least two imports of transformers."""

_BY_SEVERITY = (
    Verdict.FAILED,
    Verdict.UNSTABLE,
    Verdict.DIVERGED,
    Verdict.UNDECIDED,
    Verdict.ROUNDING,
)


class Chosen(NamedTuple):
    """The cells that get a capsule, and those that exceed the limit."""

    cells: tuple[CellId, ...]
    left_out: tuple[CellId, ...]


def chosen(results: Iterable[CellResult], scope: Scope) -> Chosen:
    """Choose from results whose verdicts respect the expectations of the matrix file.

    Left out are cells whose difference is gone, cells without a reference, and unfinished cells,
    which would not finish a second time.
    """
    worst = sorted(
        (result for result in results if _is_wanted(result, scope)),
        key=lambda result: _BY_SEVERITY.index(result.judged),
    )
    by_model_and_stack: dict[tuple[str, str], CellId] = {}
    for result in worst:
        by_model_and_stack.setdefault((result.cell.model, result.cell.stack), result.cell)
    cells = tuple(by_model_and_stack.values())
    limit = len(cells) if scope == "all" else MAX_CAPSULES
    return Chosen(cells[:limit], cells[limit:])


def _is_wanted(result: CellResult, scope: Scope) -> bool:
    if scope == "none" or result.judged not in _BY_SEVERITY:
        return False
    if result.reference in {None, result.cell} or result.unfinished is not None:
        return False
    if result.signals and all(s.excused for s in result.signals if s.signal in ENOUGH):
        return False  # no model is in the folder
    return scope == "all" or not result.verdict.passes
