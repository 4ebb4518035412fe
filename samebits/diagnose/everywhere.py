"""Failures that belong to a model and not to a release: every stack fails in the same way."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from samebits.compare.phases import exception_key, same_exception, signals_of
from samebits.diagnose.alone import is_same
from samebits.records.capture import Failure
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict


class SharedFailure(NamedTuple):
    """A failure that a model has in every stack, and the cells that have it as their verdict."""

    failure: Failure
    cells: tuple[CellResult, ...]
    where: str
    """The model, or those of its rows that fail this way."""
    loads: bool
    """True if the model loads, so that the observations of other phases are compared."""
    n_stacks: int

    @property
    def text(self) -> str:
        """The failure in one line."""
        raised = self.failure.in_words.rstrip(": ")
        if self.loads:
            phase = self.failure.phase
            return f"{self.where} fails in the same way in every release: {phase}: {raised}"
        fails = (
            "fails to load"
            if exception_key(self.failure)[0] == "load"
            else f"fails ({self.failure.phase})"
        )
        return f"{self.where} {fails} in all {self.n_stacks} environments: {raised}"


def everywhere(results: Iterable[CellResult]) -> list[SharedFailure]:
    """Return the failures that belong to a model, each once for all its stacks and variants."""
    models: dict[str, dict[str, list[CellResult]]] = {}
    for result in results:
        rows = models.setdefault(result.cell.model, {})
        rows.setdefault(str(result.cell.variant), []).append(result)
    return [failure for model, rows in models.items() for failure in _model_failures(model, rows)]


def is_everywhere(result: CellResult) -> bool:
    """Return True for a reference cell whose failure every release has."""
    failure = result.failure
    return failure is not None and _is_reference(result) and _is_shared(failure, result)


def _model_failures(model: str, rows: dict[str, list[CellResult]]) -> list[SharedFailure]:
    failing: dict[tuple[object, ...], dict[str, list[CellResult]]] = {}
    for variant, cells in rows.items():
        row_failures = _row_failures(cells)
        if row_failures:
            failure = row_failures[0].failure
            assert failure is not None
            failing.setdefault((len(row_failures) > 1, *exception_key(failure)), {})[variant] = (
                row_failures
            )
    return [_shared_failure(model, rows, same_rows) for same_rows in failing.values()]


def _shared_failure(
    model: str, rows: dict[str, list[CellResult]], failing: dict[str, list[CellResult]]
) -> SharedFailure:
    cells = tuple(cell for row_cells in failing.values() for cell in row_cells)
    where = model if len(failing) == len(rows) else ", ".join(f"{model}/{name}" for name in failing)
    failure = cells[0].failure
    assert failure is not None
    stacks = {cell.cell.stack for cell in cells}
    return SharedFailure(failure, cells, where, _is_reference(cells[0]), len(stacks))


def _row_failures(cells: list[CellResult]) -> list[CellResult]:
    """Return the cells of a row that fail because of the model: all, or only the reference."""
    reference = next((cell for cell in cells if is_everywhere(cell)), None)
    if reference is not None:
        return [reference]
    tried = [cell for cell in cells if cell.judged != Verdict.ABSENT and not _is_unbuilt(cell)]
    if len(tried) < 2 or not all(_failed_to_load(cell) for cell in tried):
        return []
    exceptions = [cell.failure for cell in tried if cell.failure is not None]
    return tried if all(same_exception(exceptions[0], failure) for failure in exceptions) else []


def _is_reference(result: CellResult) -> bool:
    return result.rest is Verdict.REFERENCE


def _is_shared(failure: Failure, result: CellResult) -> bool:
    return any(is_same(failure, shared) for shared in result.shared_failures)


def _is_unbuilt(result: CellResult) -> bool:
    """Return True if the cell's stack could not be built; it then shows nothing of the model."""
    return result.failure is not None and result.failure.phase == "stack"


def _failed_to_load(result: CellResult) -> bool:
    failure = result.failure
    if result.judged != Verdict.FAILED or failure is None or result.rest is not None:
        return False
    return not signals_of(failure.phase)
