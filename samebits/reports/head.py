"""The result of a run in ten lines: the head of report.md, and the last lines on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.diagnose.exit_code import PASS, UNASKED
from samebits.questions import questions
from samebits.records.ids import Verdict
from samebits.reports.answer import answers, is_quiet, result
from samebits.reports.plain import on_one_line
from samebits.reports.sections.at_a_glance import moves
from samebits.reports.sections.environment import code_line, steps_lines
from samebits.reports.sections.overview import headline
from samebits.reports.sections.state import left_line
from samebits.reports.sections.unrun import media_line, unrun_line
from samebits.text.markdown import clip, visible
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from samebits.records.report import Report
    from samebits.reports.answer import Answer

MAX_LINES = 10
MAX_WIDTH = 200
"""Characters of a line, the first two excepted; the report has the whole text."""
_MAX_REASONS = 3
_MAX_NOTES = 2
_MAX_ANSWERS = 3
_MAX_ABSENT = 2
_MAX_STEPS = 4


def head(report: Report) -> list[str]:
    """Return at most ten lines: the result, its extent, the worst models, and what to do."""
    found = [answer for answer in answers(report) if not is_quiet(answer)]
    worst = _first([_in_short(answer) for answer in found], _MAX_ANSWERS, "difference")
    end = list(_to_do(found))
    rest = [*_first(report.notes, _MAX_NOTES, "note"), *worst, *_notes(report)]
    lines = [f"{report.matrix}: {result(report)}.", clip(headline(report), 2 * MAX_WIDTH)]
    return list(map(visible, [*lines, *map(_short, [*rest[: MAX_LINES - 2 - len(end)], *end])]))


def notes(report: Report) -> list[str]:
    """Return the lines below the heading of report.md, which has the worst models in a table."""
    lines = [headline(report), *_first(report.notes, _MAX_NOTES, "note"), *_notes(report)]
    return list(map(visible, map(_short, lines[:MAX_LINES])))


def _notes(report: Report) -> Iterator[str]:
    """Yield what else is to be said of a run: what is not about one model first."""
    yield from filter(None, [code_line(report)])
    yield from _reasons(report)
    yield from _absent(report)
    yield from filter(None, (*briefs(report), left_line(report)))
    yield from _first(moves(report), _MAX_STEPS, "step")
    yield from _first(steps_lines(report), _MAX_NOTES, "note")
    yield from filter(None, (unrun_line(report), media_line(report)))


def briefs(report: Report) -> list[str]:
    """Return the lines of the questions that have one for a first screen."""
    lines = (question.brief(report) for question in questions() if question.brief is not None)
    return list(filter(None, lines))


def _short(line: str) -> str:
    return clip(on_one_line(line), MAX_WIDTH)


def _reasons(report: Report) -> list[str]:
    """Return why the exit code is not 0, where no model says it."""
    if report.exit_code in (PASS, UNASKED):
        return []
    broken = [f"{s.id} could not be built: {s.failure}" for s in report.stacks if s.failure]
    gone = [
        f"Known difference in line {entry.line} no longer occurs: remove it ({entry.text})"
        for entry in report.expected
        if entry.fixed
    ]
    fails = any(not cell.verdict.passes for cell in report.cells)
    lines = [*broken, *gone] or ([] if fails else list(report.reasons))
    return _first(lines, _MAX_REASONS, "reason")


def _first(lines: Sequence[str], most: int, noun: str) -> list[str]:
    """Return the lines, or the first of them and how many were left out."""
    if len(lines) <= most:
        return list(lines)
    shown = most - 1
    return [*lines[:shown], f"… and {plural(len(lines) - shown, f'more {noun}')}"]


def _in_short(answer: Answer) -> str:
    known = "known: " if answer.is_known else ""
    line = f"{answer.model}: {known}{answer.change}"
    return "; ".join(filter(None, (line, answer.since, answer.side.why)))


def _absent(report: Report) -> Iterator[str]:
    """Yield the models that no stack has: most likely a mistake in matrix.yaml."""
    reasons = {
        row.model: row.cells[-1].absent
        for row in report.rows
        if all(cell.judged is Verdict.ABSENT for cell in row.cells)
    }
    lines = [f"{model} is absent from all environments: {why}" for model, why in reasons.items()]
    yield from _first(lines, _MAX_ABSENT, "model")


def _to_do(found: Sequence[Answer]) -> Iterator[str]:
    """Yield what to do about the worst model that fails the run, and what says more of it."""
    for answer in found[:1]:
        if answer.cell.verdict.passes:
            return
        if answer.do:
            yield f"To do ({answer.model}): {answer.do.replace('`', '')}"
        if command := answer.command or answer.cell.reproduce:
            yield f"Next: {command}"
