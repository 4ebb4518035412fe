"""Does a run pass, and if not, why?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.diagnosing.amounts import some
from samebits.words import EXPLANATORY, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from samebits.comparison import CellResult
    from samebits.document import ExpectedReport, StackReport

PASS, FAIL = 0, 1


def exit_code(
    results: Sequence[CellResult],
    expected: Iterable[ExpectedReport],
    stacks: Iterable[StackReport],
    trusted: Mapping[str, bool] | None = None,
) -> tuple[int, tuple[str, ...]]:
    """Return the exit code and why it is not 0, one line for each reason.

    0 is said only if something was compared, every cell passes, every expected difference
    still occurs and every stack could be built. ``trusted`` is, for each model that a user brings,
    whether its own code may run: one that no stack knows is a mistake, and mostly this one.
    """
    reasons = (
        *_not_built(stacks),
        *_failing(results),
        *_fixed(expected),
        *_known_nowhere(results, trusted or {}),
        *_nothing_compared(results),
    )
    return (FAIL if reasons else PASS), reasons


def _not_built(stacks: Iterable[StackReport]) -> Iterator[str]:
    for stack in stacks:
        if stack.failure:
            why = " ".join(stack.failure.split()).removeprefix(f"stack {stack.id}: ")
            yield f"stack {stack.id} failed: {why}"


def _failing(results: Sequence[CellResult]) -> Iterator[str]:
    for verdict in Verdict:
        cells = [str(result.cell) for result in results if result.verdict == verdict]
        if cells and not verdict.passes and verdict != Verdict.FIXED:  # the entry's line says it
            number = "1 cell" if len(cells) == 1 else f"{len(cells):,} cells"
            yield f"{number} with verdict {verdict}: {some(cells)}"


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
