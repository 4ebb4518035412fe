"""The result of a run in ten lines: the head of report.md, and the last lines on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.diagnose.everywhere import is_everywhere
from samebits.diagnose.exit_code import INCOMPLETE, PASS, UNASKED, fails
from samebits.questions import questions
from samebits.records.ids import Verdict
from samebits.reports.plain import advice, on_one_line, raised_beside, wrong_reference
from samebits.reports.sections.at_a_glance import steps
from samebits.reports.sections.environment import code_line, steps_lines
from samebits.reports.sections.findings import named
from samebits.reports.sections.overview import headline
from samebits.reports.sections.state import left_line
from samebits.reports.sections.unrun import media_line, unrun_line
from samebits.reports.stories import places, troubles, verdict_word
from samebits.text.markdown import clip, visible
from samebits.text.numbers import count, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from samebits.records.report import Report
    from samebits.reports.stories import Trouble

MAX_LINES = 10
MAX_WIDTH = 200
"""Characters of a line, the first two excepted; the report has the whole text."""
_MAX_REASONS = 3
_MAX_NOTES = 2
_MAX_TROUBLES = 3
_MAX_ABSENT = 2
_MAX_STEPS = 4


def head(report: Report) -> list[str]:
    """Return at most ten lines: the result, why, the worst of it, and what to do."""
    result, extent = _result(report), clip(headline(report), 2 * MAX_WIDTH)
    middle = [
        *filter(None, [code_line(report)]),
        *_first(report.notes, _MAX_NOTES, "note"),
        *_reasons(report),
        *_worst(report),
        *_moves(report),
        *_absent(report),
        *_first(steps_lines(report), _MAX_NOTES, "note"),
    ]
    middle += filter(
        None, (unrun_line(report), media_line(report), *briefs(report), left_line(report))
    )
    end = list(_to_do(report))
    rest = [*middle[: MAX_LINES - 2 - len(end)], *end]
    return list(map(visible, [result, extent, *(_short(line) for line in rest)]))


def briefs(report: Report) -> list[str]:
    """Return the lines of the questions that have one for a first screen."""
    lines = (question.brief(report) for question in questions() if question.brief is not None)
    return list(filter(None, lines))


def limits(report: Report) -> str:
    """Return how far a result that passes holds, a part of its headline; '' if no question says so."""
    parts = (question.limit(report) for question in questions() if question.limit is not None)
    return "; ".join(filter(None, parts))


def _short(line: str) -> str:
    return clip(on_one_line(line), MAX_WIDTH)


def _result(report: Report) -> str:
    if report.exit_code in (PASS, UNASKED):
        passes = (
            "The run passes"
            if report.exit_code == PASS
            else f"The run passes, but not in full (exit code {UNASKED})"
        )
        return f"{'; '.join(filter(None, [passes, limits(report), raised_beside(report)]))}."
    if report.exit_code == INCOMPLETE:
        return (
            f"The run is incomplete (exit code {INCOMPLETE}): nothing that was compared fails, but "
            "not everything was compared."
        )
    return f"The run does not pass (exit code {report.exit_code})."


def _reasons(report: Report) -> Iterator[str]:
    """Yield why the exit code is not 0, where the headline does not say it."""
    if report.exit_code == UNASKED:
        return
    yield from _first(report.reasons, _MAX_REASONS, "reason")


def _worst(report: Report) -> Iterator[str]:
    """Yield the rows that keep the run from passing, the worst first."""
    lines = [_trouble(trouble, report) for trouble in troubles(report)]
    yield from _first(lines, _MAX_TROUBLES, "row")


def _first(lines: Sequence[str], most: int, noun: str) -> list[str]:
    """Return the lines, or the first of them and how many were left out."""
    if len(lines) <= most:
        return list(lines)
    shown = most - 1
    return [*lines[:shown], f"… and {plural(len(lines) - shown, f'more {noun}')}"]


def _trouble(trouble: Trouble, report: Report) -> str:
    story, shared = trouble
    cell = shared.first
    codes = ", ".join(sorted(named(shared.cells, report)))
    verdict = cell.verdict if is_everywhere(cell) else verdict_word(cell)
    wrong = {wrong_reference(each) for each in shared.cells}
    if codes and wrong != {""} and len(wrong) == 1:
        codes += f" of {wrong.pop()}, the reference"
    words = " ".join(filter(None, [verdict, cell.figure, codes and f"({codes})"]))
    return f"{story.name} on {places(shared)}: {words}"


def _moves(report: Report) -> Iterator[str]:
    """Yield what changes from stack to stack in a run that passes: all of it is expected."""
    if report.exit_code not in (PASS, UNASKED):
        return
    lines = [
        f"{f'{before} → {stack}' if before else stack}: "
        + ", ".join(f"{what} {count(len(models))}" for what, models in changes.items())
        + f" {'models' if sum(map(len, changes.values())) != 1 else 'model'}"
        for before, stack, changes in steps(report)
    ]
    yield from _first(lines, _MAX_STEPS, "step")


def _absent(report: Report) -> Iterator[str]:
    """Yield the models that no stack has: most likely a mistake in matrix.yaml."""
    reasons = {
        row.model: row.cells[-1].absent
        for row in report.rows
        if all(cell.judged is Verdict.ABSENT for cell in row.cells)
    }
    lines = [f"{model} is absent from all stacks: {why}" for model, why in reasons.items()]
    yield from _first(lines, _MAX_ABSENT, "model")


def _to_do(report: Report) -> Iterator[str]:
    """Yield what to do about the worst row: the remedy of its defect, or how to see it again."""
    cells = [cell for trouble in troubles(report) for cell in trouble.shared.cells if fails(cell)]
    for cell in cells:
        explaining = named([cell], report)
        for defect in advice([cell], report):
            if defect.code in explaining:
                yield f"To do: {defect.title}: {defect.remedy}"
                return
    commands = [cell.reproduce for cell in cells if cell.reproduce]
    if commands:
        yield f"To see the worst again: {commands[0]}"
