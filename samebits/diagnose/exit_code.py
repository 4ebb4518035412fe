"""Does a run pass, and if not, why?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.amounts import some
from samebits.diagnose.everywhere import everywhere
from samebits.diagnose.failing import failing_signals
from samebits.records.ids import EXPLANATORY, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from samebits.records.comparison import CellResult
    from samebits.records.report import ExpectedReport, StackReport

PASS, FAIL, INCOMPLETE = 0, 1, 3

OPEN = frozenset({Verdict.NOT_FINISHED, Verdict.NOT_OBSERVED})
"""Verdicts of cells of which something is not known, though nothing shows that they fail."""


def exit_code(
    results: Sequence[CellResult],
    expected: Iterable[ExpectedReport],
    stacks: Iterable[StackReport],
    trusted: Mapping[str, bool] | None = None,
) -> tuple[int, tuple[str, ...]]:
    """Return the exit code and why it is not 0, one line for each reason.

    0 is said only if something was compared, every cell passes, every expected difference
    still occurs and every stack could be built; 3 if nothing fails and cells are not finished or not
    observed. ``trusted`` is, for each model that a user brings, whether its own code may run: one
    that no stack knows is a mistake, and mostly this one.
    """
    failing = (
        *_not_built(stacks),
        *_everywhere(results),
        *_failing(results),
        *_fixed(expected),
        *_known_nowhere(results, trusted or {}),
        *_nothing_compared(results),
    )
    incomplete = tuple(_incomplete(results))
    return FAIL if failing else INCOMPLETE if incomplete else PASS, (*failing, *incomplete)


def fails(result: CellResult) -> bool:
    """Return True if a cell makes the run fail.

    One that is not finished or not observed does if what was compared of it fails, and no entry
    expects that. A difference whose kind was not decided, as the ladder did not run, is open.
    """
    if result.verdict not in OPEN:
        return not result.verdict.passes
    if result.rest is None or result.expected:
        return False
    if result.rest is Verdict.DIFFERS:
        return result.ladder is not None
    return not (result.rest.passes or result.rest in OPEN)


def _not_built(stacks: Iterable[StackReport]) -> Iterator[str]:
    for stack in stacks:
        if stack.failure:
            why = " ".join(stack.failure.split()).removeprefix(f"stack {stack.id}: ")
            yield f"stack {stack.id} failed: {why}"


def _everywhere(results: Sequence[CellResult]) -> Iterator[str]:
    for found in everywhere(results):
        if any(cell.verdict is Verdict.FAILED for cell in found.cells):
            yield found.text


def _failing(results: Sequence[CellResult]) -> Iterator[str]:
    """Yield a line for each verdict, without the cells whose failure is their model's."""
    models = {cell.cell for found in everywhere(results) for cell in found.cells}
    for verdict in Verdict:
        cells = [
            result
            for result in results
            if result.verdict == verdict and fails(result) and result.cell not in models
        ]
        if verdict in OPEN:
            for rest in dict.fromkeys(cell.rest for cell in cells):
                names = [str(cell.cell) for cell in cells if cell.rest is rest]
                yield f"{_number(names)} {verdict}, and what was compared {rest}: {some(names)}"
        elif cells and verdict != Verdict.FIXED:  # the entry's line says it
            names = [str(cell.cell) for cell in cells]
            yield f"{_number(names)} with verdict {verdict}: {some(names)}"
    for result in results:
        if result.verdict is Verdict.FAILED and result.expected and result.cell not in models:
            yield f"{result.cell}: {uncovered(result)}"


def uncovered(result: CellResult) -> str:
    """Return what of a failed cell no entry covers, though one expects its failure."""
    signals = some(signal.signal for signal in failing_signals(result))
    where = f" in {signals}" if signals else ""
    return f"its failure is expected, but no entry covers that the rest {result.rest}{where}"


def _number(names: Sequence[str]) -> str:
    return "1 cell" if len(names) == 1 else f"{len(names):,} cells"


def _incomplete(results: Sequence[CellResult]) -> Iterator[str]:
    """Yield a line for each thing that was not finished or observed, and why, with its cells."""
    why: dict[str, list[str]] = {}
    for result in results:
        if result.verdict in OPEN and not fails(result):
            headline = result.headline.removeprefix(f"{result.verdict}: ")
            why.setdefault(f"{result.verdict}: {headline}", []).append(str(result.cell))
    for headline, names in why.items():
        yield f"{_number(names)} {headline} ({some(names)})"


def _fixed(expected: Iterable[ExpectedReport]) -> Iterator[str]:
    for entry in expected:
        if entry.fixed:
            names = ", ".join(entry.fixed)
            where = f"line {entry.line}" if entry.line else "an entry"
            gone = "no longer occurs (rounding alone needs no entry)"
            yield f"expected, {where}: {names} {gone}; remove it ({entry.text})"


def _known_nowhere(results: Sequence[CellResult], trusted: Mapping[str, bool]) -> Iterator[str]:
    for model, may_run in trusted.items():
        cells = [result for result in results if result.cell.model == model]
        if cells and all(result.verdict == Verdict.ABSENT for result in cells):
            why = cells[0].absent or cells[0].headline
            hint = "" if may_run else "; code of its own runs only with trust_remote_code: true"
            yield f"{model} is absent from every stack: {why}{hint}"


def _nothing_compared(results: Iterable[CellResult]) -> Iterator[str]:
    results = list(results)
    if any(result.verdict in OPEN for result in results):
        return  # that is said of them
    if not any(_was_compared(result) for result in results):
        yield (
            "nothing was compared: that takes two stacks of a row in which the model runs and "
            "agrees with itself"
        )


def _was_compared(result: CellResult) -> bool:
    return result.verdict != Verdict.REFERENCE and any(
        signal.outcome in ("identical", "differs") and signal.signal not in EXPLANATORY
        for signal in result.signals
    )
