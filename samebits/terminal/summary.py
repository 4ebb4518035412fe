"""The last lines of a run: counts, differences, the path of the report, why the run fails."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from samebits.diagnose.everywhere import is_everywhere
from samebits.diagnose.exit_code import INCOMPLETE
from samebits.records.ids import Verdict
from samebits.reports.sections.findings import named
from samebits.reports.sections.overview import headline
from samebits.reports.sections.relations import broken_line
from samebits.reports.sections.state import left_line
from samebits.reports.stories import places, troubles, verdict_word
from samebits.text.markdown import clip, visible
from samebits.text.names import CAPSULES
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from pathlib import Path

    from samebits.records.report import Report
    from samebits.reports.stories import Trouble

MAX_LINES = 12
"""Maximum number of lines on differences; the report has all of them."""

MAX_WIDTH = 160
"""Maximum characters of a line; the report has the whole text."""

MAX_PASTES = 3
"""Models for which lines to write are printed; the report has those of all."""

WRAP_WIDTH = 100
"""Characters after which the headline is wrapped."""


def summary(report: Report, path: Path) -> list[str]:
    """Return the lines to print, with control characters made visible."""
    lines = [*_headline(report), *_attention(report), *_absent(report), *_relations(report)]
    lines += _reasons(report)
    lines += to_paste(report)
    written = [*_capsules(report, path), f"Report: {path}"]
    return [*(clip(visible(line), MAX_WIDTH) for line in lines), *map(visible, written)]


def to_paste(report: Report) -> list[str]:
    """Return the lines of matrix.yaml that let models be observed whose inputs samebits cannot make."""
    cells = [cell for row in report.rows for cell in row.cells]
    pastes = {
        skip.paste: cell.cell.model
        for cell in reversed(cells)
        if cell.judged is Verdict.NOT_OBSERVED
        for skip in cell.skips
        if skip.paste
    }
    lines = []
    for text, model in reversed([*pastes.items()][-MAX_PASTES:]):
        lines.append(f"Write below {model} in matrix.yaml, with its own shapes:")
        lines += [f"  {line}" for line in text.splitlines()]
    return lines


def _capsules(report: Report, path: Path) -> list[str]:
    """Return a line with the folder of the capsules; [] without capsules."""
    capsules = [c for row in report.rows for c in row.cells if c.capsule and c.capsule.path]
    if not capsules:
        return []
    return [f"{plural(len(capsules), 'capsule')} to reproduce it: {path.parent / CAPSULES}"]


def _headline(report: Report) -> list[str]:
    return wrap(headline(report), WRAP_WIDTH, subsequent_indent="  ")


def _attention(report: Report) -> list[str]:
    return _first([_line(trouble, report) for trouble in troubles(report)])


def _absent(report: Report) -> list[str]:
    """Return a line for each model that no stack has: most likely a mistake in matrix.yaml."""
    reasons = {
        row.model: row.cells[-1].absent
        for row in report.rows
        if all(cell.judged is Verdict.ABSENT for cell in row.cells)
    }
    return _first([f"  {model} is absent from all stacks: {why}" for model, why in reasons.items()])


def _first(lines: list[str]) -> list[str]:
    """Return the first lines, and how many more there are."""
    n_more = len(lines) - MAX_LINES
    return [*lines[:MAX_LINES], f"  … and {n_more:,} more"] if n_more > 0 else lines


def _relations(report: Report) -> list[str]:
    return [line for line in (broken_line(report), left_line(report)) if line]


def _line(trouble: Trouble, report: Report) -> str:
    story, shared = trouble
    cell = shared.first
    codes = ", ".join(sorted(named(shared.cells, report)))
    verdict = cell.verdict if is_everywhere(cell) else verdict_word(cell)
    words = " ".join(filter(None, [verdict, cell.figure, codes and f"({codes})"]))
    return f"  {story.name} on {places(shared)}: {words}"


def _reasons(report: Report) -> list[str]:
    if report.exit_code == 0:
        return ["The run passes."]
    reasons = plural(len(report.reasons), "reason")
    answer = "is incomplete" if report.exit_code == INCOMPLETE else "does not pass"
    start = f"The run {answer} (exit code {report.exit_code}, {reasons}):"
    return [start, *(f"  - {reason}" for reason in report.reasons)]
