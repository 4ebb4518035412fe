"""Which failures are a model's and not a release's: every stack fails in the same way?"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.compare.phases import key, same, signals_of
from samebits.diagnose.alone import is_same
from samebits.records.ids import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.records.capture import Failure
    from samebits.records.comparison import CellResult


class Everywhere(NamedTuple):
    """A failure that a model has in every stack, with the cells whose verdict it is."""

    failure: Failure
    cells: tuple[CellResult, ...]
    where: str
    """The model, or those of its rows that fail so."""
    loads: bool
    """Whether the model loads, so that what other phases observed is compared."""
    n_stacks: int

    @property
    def text(self) -> str:
        """The failure in one line, as a property of the model."""
        raised = f"{self.failure.type}: {self.failure.in_short}".rstrip(": ")
        if self.loads:
            phase = self.failure.phase
            return f"{self.where} fails in the same way in every release: {phase}: {raised}"
        fails = (
            "fails to load" if key(self.failure)[0] == "load" else f"fails ({self.failure.phase})"
        )
        return f"{self.where} {fails} in all {self.n_stacks} stacks: {raised}"


def everywhere(results: Iterable[CellResult]) -> list[Everywhere]:
    """Return the failures that are a model's, each once, however many stacks and variants have it."""
    models: dict[str, dict[str, list[CellResult]]] = {}
    for result in results:
        rows = models.setdefault(result.cell.model, {})
        rows.setdefault(str(result.cell.variant), []).append(result)
    return [found for model, rows in models.items() for found in _of_model(model, rows)]


def is_everywhere(result: CellResult) -> bool:
    """Return True of a reference cell that fails as every release does."""
    failure = result.failure
    return failure is not None and _is_reference(result) and _is_shared(failure, result)


def _of_model(model: str, rows: dict[str, list[CellResult]]) -> list[Everywhere]:
    failing: dict[tuple[object, ...], dict[str, list[CellResult]]] = {}
    for variant, cells in rows.items():
        found = _of_row(cells)
        if found:
            failure = found[0].failure
            assert failure is not None
            failing.setdefault((len(found) > 1, *key(failure)), {})[variant] = found
    return [_joined(model, rows, same_rows) for same_rows in failing.values()]


def _joined(
    model: str, rows: dict[str, list[CellResult]], failing: dict[str, list[CellResult]]
) -> Everywhere:
    cells = tuple(cell for found in failing.values() for cell in found)
    where = model if len(failing) == len(rows) else ", ".join(f"{model}/{name}" for name in failing)
    failure = cells[0].failure
    assert failure is not None
    stacks = {cell.cell.stack for cell in cells}
    return Everywhere(failure, cells, where, _is_reference(cells[0]), len(stacks))


def _of_row(cells: list[CellResult]) -> list[CellResult]:
    """Return the cells of a row that fail for what is the model's: all, or the reference alone."""
    reference = next((cell for cell in cells if is_everywhere(cell)), None)
    if reference is not None:
        return [reference]
    tried = [cell for cell in cells if cell.judged != Verdict.ABSENT and not _is_unbuilt(cell)]
    if len(tried) < 2 or not all(_did_not_load(cell) for cell in tried):
        return []
    raised = [cell.failure for cell in tried if cell.failure is not None]
    return tried if all(same(raised[0], failure) for failure in raised) else []


def _is_reference(result: CellResult) -> bool:
    return result.rest is Verdict.REFERENCE


def _is_shared(failure: Failure, result: CellResult) -> bool:
    return any(is_same(failure, shared) for shared in result.shared_failures)


def _is_unbuilt(result: CellResult) -> bool:
    """Return True if the cell's stack could not be built, which says nothing of the model."""
    return result.failure is not None and result.failure.phase == "stack"


def _did_not_load(result: CellResult) -> bool:
    failure = result.failure
    if result.judged != Verdict.FAILED or failure is None or result.rest is not None:
        return False
    return not signals_of(failure.phase)
