"""The result of a run in ten lines: the head of report.md, and the last lines on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from samebits.diagnose.exit_code import PASS, UNASKED
from samebits.questions import questions
from samebits.records.ids import Verdict
from samebits.records.report import Report
from samebits.reports.answer import (
    Answer,
    answers,
    is_quiet,
    nothing,
    passing,
    result,
)
from samebits.reports.plain import on_one_line
from samebits.reports.sections.at_a_glance import moves
from samebits.reports.sections.environment import code_line, steps_lines
from samebits.reports.sections.overview import headline
from samebits.reports.sections.state import left_line
from samebits.reports.sections.unrun import media_line, unrun_line
from samebits.text.markdown import clip, visible
from samebits.text.numbers import plural

MAX_LINES = 10
MAX_WIDTH = 200
"""Characters of a line, the first two excepted; the report has the whole text."""
_MAX_REASONS = 3
_MAX_NOTES = 2
_MAX_ANSWERS = 6
_MAX_ABSENT = 2
_MAX_STEPS = 4


def head(report: Report) -> list[str]:
    """Return at most ten lines: the result, its extent, the worst models, and what to do."""
    return [*sentences(report), *next_command(report)]


def sentences(report: Report) -> list[str]:
    """Return the lines of the head but for its command."""
    worse = _worse(report)
    urgent = [*map(_short, _urgent(report))]
    room = MAX_LINES - 4  # three rows of a terminal for each line of them, and it has 24
    shown = max(2, min(room - len(urgent), _MAX_ANSWERS))
    in_short = [_in_short(answer, is_one=len(worse) == 1) for answer in worse]
    worst = _first(in_short, shown, "difference")
    lines = [f"{report.matrix}: {result(report)}.", clip(headline(report), 2 * MAX_WIDTH)]
    return list(map(visible, [*lines, *[*urgent, *worst, *map(_short, _notes(report))][:room]]))


def next_command(report: Report) -> list[str]:
    """Return the line with the command that says more of the worst model, if it fails the run."""
    for answer in _worse(report)[:1]:
        command = answer.command or answer.cell.reproduce
        if command and not answer.cell.verdict.passes:
            return [visible(_short(f"Next: {command}"))]
    return []


def _worse(report: Report) -> list[Answer]:
    return [answer for answer in answers(report) if not is_quiet(answer)]


def notes(report: Report) -> list[str]:
    """Return the lines below the heading of report.md, which has the worst models in a table."""
    lines = [headline(report), *_urgent(report), *_limits(report), *_notes(report)]
    return list(map(visible, map(_short, lines[:MAX_LINES])))


def _limits(report: Report) -> Iterator[str]:
    """Yield how far the result of several models holds; that of one has it in the heading."""
    limits = passing(report)
    if limits and len(report.models) > 1:
        yield f"How far this holds: {'; '.join(limits)}."


def _urgent(report: Report) -> Iterator[str]:
    """Yield what was left out of a run against the user's will."""
    yield from _first(report.notes, _MAX_NOTES, "note")
    yield from filter(None, [code_line(report)])
    yield from reasons(report)
    yield from _absent(report)


def _notes(report: Report) -> Iterator[str]:
    """Yield what else is to be said of a run: what is not about one model first."""
    if len(report.models) == 1 and not answers(report) and (do := nothing(report)):
        yield f"What to do: {do}"
    yield from filter(None, (of_another_reference(report), *briefs(report), left_line(report)))
    yield from _first(moves(report), _MAX_STEPS, "step")
    yield from _first(steps_lines(report), _MAX_NOTES, "note")
    yield from filter(None, (unrun_line(report), media_line(report)))


def of_another_reference(report: Report) -> str:
    """Return which models fail though the matrix file lists them, as a filter left out their reference."""
    untold = {cell for entry in report.expected for cell in entry.untold}
    fails = [c.cell for c in report.cells if not c.verdict.passes and str(c.cell) in untold]
    if not fails:
        return ""
    models = ", ".join(dict.fromkeys(cell.model for cell in fails))
    return f"{report.matrix} lists what differs in {models} for a run of all environments: in this one, of some, it counts as new"


def briefs(report: Report) -> list[str]:
    """Return the lines of the questions that have one for a first screen."""
    lines = (question.brief(report) for question in questions() if question.brief is not None)
    return list(filter(None, lines))


def _short(line: str) -> str:
    return clip(on_one_line(line), MAX_WIDTH)


def reasons(report: Report) -> list[str]:
    """Return why the exit code is not 0, where no answer about a model says it."""
    if report.exit_code in (PASS, UNASKED):
        return []
    broken = [f"{s.id} could not be built: {s.failure}" for s in report.stacks if s.failure]
    gone = [
        f"Known difference in line {entry.line} no longer occurs: remove it ({entry.text})"
        for entry in report.expected
        if entry.fixed
    ]
    fails = any(not cell.verdict.passes for cell in report.cells)
    first = result(report)  # that of one model may be a reason itself
    lines = [*broken, *gone] or [r for r in report.reasons if not fails and r != first]
    return _first(lines, _MAX_REASONS, "reason")


def _first(lines: Sequence[str], most: int, noun: str) -> list[str]:
    """Return the lines, or the first of them and how many were left out."""
    if len(lines) <= most:
        return list(lines)
    shown = most - 1
    return [*lines[:shown], f"… and {plural(len(lines) - shown, f'more {noun}')}"]


def _in_short(answer: Answer, *, is_one: bool) -> str:
    """Return the four answers about a model in one line; of two ways out the first, if it is one of several."""
    prefix = "known: " if answer.is_known else ""
    do = answer.do.replace("`", "")
    do = do if is_one else do.partition(". Or: ")[0]
    change = f"{answer.model}: {prefix}{answer.change}"
    since = answer.since.partition(" (")[0]
    room = MAX_WIDTH - len(since)
    change = clip(change, max(room - len(answer.side.why), room // 2))
    parts = (change, since, clip(answer.side.why, room - len(change)))
    line = "; ".join(filter(None, parts)).rstrip(".")
    return on_one_line(f"{line}{'' if line.endswith('…') else '.'} To do: {do}" if do else line)


def _absent(report: Report) -> Iterator[str]:
    """Yield the models that no stack has: most likely a mistake in matrix.yaml."""
    reasons = {
        row.model: row.cells[-1].absent
        for row in report.rows
        if all(cell.judged is Verdict.ABSENT for cell in row.cells)
    }
    lines = [f"{model} is absent from all environments: {why}" for model, why in reasons.items()]
    yield from _first(lines, _MAX_ABSENT, "model")
