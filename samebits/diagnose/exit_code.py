"""The exit code of a run, and the reasons if it is not 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from samebits.compare.describe import some
from samebits.diagnose.alone import failure_line
from samebits.diagnose.everywhere import everywhere
from samebits.diagnose.failing import failing_signals
from samebits.records.comparison import CellResult
from samebits.records.ids import CellId, Verdict
from samebits.records.report import ExpectedReport, StackReport

PASS, FAIL, INCOMPLETE = 0, 1, 3
UNASKED = 4
"""Nothing fails and all was compared, but something within reach was left unasked (``--strict``), or a release has a
finding beside the verdict (``--strict-findings``)."""

OPEN = frozenset({Verdict.NOT_FINISHED, Verdict.NOT_OBSERVED})
"""Verdicts of cells with something unknown, but without a failure."""


def exit_code(
    results: Sequence[CellResult],
    expected: Iterable[ExpectedReport],
    stacks: Iterable[StackReport],
    trusted: Mapping[str, bool] | None = None,
) -> tuple[int, tuple[str, ...]]:
    """Return the exit code and why it is not 0, one line for each reason.

    The code is 0 only if something was compared, every cell passes, every expected difference still
    occurs and every stack could be built. It is 3 if nothing fails, but cells are not finished or
    not observed. ``trusted`` maps each model that a user brings to whether its own code may run: a
    model that no stack knows is a mistake, and usually the missing permission.
    """
    shared = everywhere(results)
    failing = (
        *_not_built(stacks, results),
        *(s.text for s in shared if any(cell.verdict is Verdict.FAILED for cell in s.cells)),
        *_failing(results, {cell.cell for failure in shared for cell in failure.cells}),
        *_fixed(expected),
        *_absent_everywhere(results, trusted or {}),
        *_nothing_compared(results),
    )
    incomplete = tuple(_incomplete(results))
    return FAIL if failing else INCOMPLETE if incomplete else PASS, (*failing, *incomplete)


def fails(result: CellResult) -> bool:
    """Return True if a cell makes the run fail.

    A cell that is not finished or not observed fails the run if the compared part fails and no
    entry expects that. A difference whose kind is undecided because the ladder did not run is open.
    """
    if result.verdict not in OPEN:
        return not result.verdict.passes
    if result.rest is None or result.expected:
        return False
    if result.rest is Verdict.UNDECIDED:
        return result.ladder is not None
    return not (result.rest.passes or result.rest in OPEN)


def _not_built(stacks: Iterable[StackReport], results: Sequence[CellResult]) -> Iterator[str]:
    """Yield a line for each stack that could not be built, unless the machine was the reason.

    Then its cells are not finished, and say so.
    """
    for stack in stacks:
        verdicts = {result.verdict for result in results if result.cell.stack == stack.id}
        if stack.failure and verdicts != {Verdict.NOT_FINISHED}:
            message = " ".join(stack.failure.split()).removeprefix(f"environment {stack.id}: ")
            yield f"environment {stack.id} failed: {message}"


def _failing(results: Sequence[CellResult], shared_cells: set[CellId]) -> Iterator[str]:
    """Yield a line for each verdict, without the cells whose failure belongs to their model."""
    for verdict in Verdict:
        cells = [
            result
            for result in results
            if result.verdict == verdict and fails(result) and result.cell not in shared_cells
        ]
        if verdict in OPEN:
            for rest in dict.fromkeys(cell.rest for cell in cells):
                names = [str(cell.cell) for cell in cells if cell.rest is rest]
                yield f"{_cell_count(names)} {verdict}, and what was compared {rest}: {some(names)}"
        elif cells and verdict != Verdict.FIXED:  # _fixed yields a line for the entry
            names = [str(cell.cell) for cell in cells]
            yield f"{_cell_count(names)} with verdict {verdict}: {some(names)}"
    for result in results:
        is_covered_in_part = (
            result.verdict in (Verdict.FAILED, Verdict.UNSTABLE) and result.expected
        )
        if is_covered_in_part and result.cell not in shared_cells:
            yield f"{result.cell}: {uncovered(result)}"


def uncovered(result: CellResult) -> str:
    """Return the part of a cell that no entry covers, though one expects what it raises or that it is unstable."""
    if result.failures:
        raised = "; ".join(map(failure_line, result.failures))
        return f"a part of it is expected, but no entry covers what else it raises ({raised})"
    if result.verdict is Verdict.UNSTABLE:
        return "what it raises is expected, but no entry covers that it is unstable"
    signals = some(signal.signal for signal in failing_signals(result))
    where = f" in {signals}" if signals else ""
    return f"its failure is expected, but no entry covers the rest ({result.rest}{where})"


def _cell_count(names: Sequence[str]) -> str:
    return "1 cell" if len(names) == 1 else f"{len(names):,} cells"


def _incomplete(results: Sequence[CellResult]) -> Iterator[str]:
    """Yield a line for each reason why something was not finished or observed, with its cells."""
    by_reason: dict[str, list[str]] = {}
    for result in results:
        if result.verdict in OPEN and not fails(result):
            reason = result.open_reason or result.headline
            by_reason.setdefault(f"{result.verdict}: {reason}", []).append(str(result.cell))
    for reason, names in by_reason.items():
        yield f"{_cell_count(names)} {reason} ({some(names)})"


def _fixed(expected: Iterable[ExpectedReport]) -> Iterator[str]:
    for entry in expected:
        if entry.fixed:
            names = ", ".join(entry.fixed)
            where = f"line {entry.line}" if entry.line else "an entry"
            remark = "no longer occurs (rounding needs no entry)"
            yield f"expected, {where}: {names} {remark}; remove it ({entry.text})"


_HINT = (
    "; code in a package runs if packages: and import: name it, and the model's own code runs only "
    "with trust_remote_code: true"
)


def _absent_everywhere(results: Sequence[CellResult], trusted: Mapping[str, bool]) -> Iterator[str]:
    for model, may_run in trusted.items():
        cells = [result for result in results if result.cell.model == model]
        if cells and all(result.verdict == Verdict.ABSENT for result in cells):
            reason = cells[0].absent or cells[0].headline
            hint = "" if may_run else _HINT
            yield f"{model} is absent from every environment: {reason}{hint}"


def _nothing_compared(results: Iterable[CellResult]) -> Iterator[str]:
    results = list(results)
    if any(result.verdict in OPEN for result in results):
        return  # _incomplete yields a line for them
    if not any(_was_compared(result) for result in results):
        yield (
            "nothing was compared: a comparison needs two environments in which the model runs and "
            "reproduces itself"
        )


def _was_compared(result: CellResult) -> bool:
    return result.verdict != Verdict.REFERENCE and any(
        signal.outcome in ("identical", "differs") for signal in result.signals
    )
