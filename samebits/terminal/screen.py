"""The answer of ``samebits check``: one screen about one model."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from samebits.diagnose.exit_code import INCOMPLETE, PASS, UNASKED
from samebits.records.ids import Verdict
from samebits.reports.commands import compare_two
from samebits.reports.head import briefs, limits
from samebits.reports.plain import advice, beginning, beside, raised_beside, wrong_reference
from samebits.reports.sections.environment import code_line, steps_lines
from samebits.reports.sections.state import left_line
from samebits.reports.sections.unrun import media_line, unrun_line
from samebits.reports.stories import SEVERITY, is_reference, verdict_word
from samebits.terminal.summary import to_paste, where
from samebits.text.markdown import clip, visible
from samebits.text.names import CAPSULES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from samebits.records.comparison import CellResult
    from samebits.records.report import Report, StackReport
    from samebits.reports.plain import Place

WIDTH = 110
INPUTS_FILE = "inputs.yaml"
"""Where the lines for a model that cannot be fed are to be written."""
MAX_FINDINGS = 3
MAX_REASONS = 3
_MAX_REMEDY_LINES = 3
_MAX_REMARK_LINES = 5
_WORST_FIRST = (*SEVERITY, Verdict.ROUNDING, Verdict.EXPECTED)
_SAME = frozenset({Verdict.REFERENCE, Verdict.IDENTICAL, Verdict.ABSENT})


def screen(report: Report, paths: Sequence[Path], places: Mapping[str, Place]) -> list[str]:
    """Return the lines to print, the verdict first.

    ``paths`` are the files to open, one per format; ``places`` maps the code of a finding to the line of the model's
    code that shows it.
    """
    cells = report.cells
    worst = _worst(cells)
    lines = [_headline(report, cells), *_releases(report)]
    if worst is not None:
        lines += _difference(worst)
    lines += _findings(report, cells, places)
    notes = (
        unrun_line(report),
        *textwrap.wrap(media_line(report), WIDTH, subsequent_indent="  "),
        *briefs(report),
        left_line(report),
        code_line(report),
    )
    lines += filter(None, notes)
    for line in steps_lines(report):
        lines += _wrapped(line, "", "  ", 3)
    lines += [*_reasons(report, worst), *to_paste(report, INPUTS_FILE)]
    more = [*_next(report, worst), *_capsules(cells, paths[0]), where(paths)]
    return [*(clip(visible(line), WIDTH * 2) for line in lines), *map(visible, more)]


def _headline(report: Report, cells: list[CellResult]) -> str:
    model = report.matrix
    if report.exit_code == INCOMPLETE:
        return f"{model}: incomplete. Nothing that was compared fails, but not everything was."
    if report.exit_code not in (PASS, UNASKED):
        failing = [cell for cell in cells if not cell.verdict.passes]
        words = [
            f"{_label(cell, report)} {verdict_word(cell)}{_wrong_side(cell)}" for cell in failing
        ]
        stacks = ", ".join(dict.fromkeys(words)) or "nothing could be compared"
        return f"{model}: does not pass: {stacks}"
    compared = [cell for cell in cells if not is_reference(cell)]
    bits = "The bits differ by rounding only"
    if all(cell.verdict in _SAME for cell in compared):
        bits = "Every release that knows it computes the same bits"
    passes = (
        "passes" if report.exit_code == PASS else f"passes, but not in full (exit code {UNASKED})"
    )
    return f"{model}: {passes}. {'; '.join(filter(None, [bits, limits(report), raised_beside(report)]))}."


def _wrong_side(cell: CellResult) -> str:
    """Return which side has the defect, if it is the reference."""
    stack = wrong_reference(cell)
    return f" (the known defect is in {stack}, the reference)" if stack else ""


def _label(cell: CellResult, report: Report) -> str:
    """Return the release of a cell, with its variant where there are several."""
    return f"{cell.cell.variant}@{cell.cell.stack}" if len(report.rows) > 1 else cell.cell.stack


def _releases(report: Report) -> Iterator[str]:
    """Yield a line per release and variant."""
    stacks = {stack.id: stack for stack in report.stacks}
    lines: list[tuple[str, str, str]] = [
        (stack.id, "not built", " ".join((stack.failure or "").split()))
        for stack in report.stacks
        if stack.failure is not None
    ]
    for row in report.rows:
        for cell in row.cells:
            stack = stacks.get(cell.cell.stack)
            if stack is not None and stack.failure is None:
                figure = cell.figure or _remark(cell)
                lines.append((_release(stack, cell, report), verdict_word(cell), figure))
    width = max((len(name) for name, _, _ in lines), default=0)
    verdict_width = max((len(word) for _, word, _ in lines), default=0)
    for name, word, remark in lines:
        start = f"  {name:<{width}}  {word:<{verdict_width}}  "
        yield from _wrapped(remark, start, " " * 8, _MAX_REMARK_LINES) or [start.rstrip()]


def _release(stack: StackReport, cell: CellResult, report: Report) -> str:
    label = _label(cell, report)
    release = f"transformers {stack.transformers}"
    return f"{label:<6} {release}"


def _remark(cell: CellResult) -> str:
    if cell.verdict == Verdict.ABSENT:
        return cell.absent or cell.headline
    return ""


def _worst(cells: list[CellResult]) -> CellResult | None:
    """Return the cell with the most severe verdict, the oldest of several; None if none differs."""
    differing = [cell for cell in cells if cell.verdict in _WORST_FIRST]
    return min(differing, key=lambda cell: _WORST_FIRST.index(cell.verdict), default=None)


def _difference(cell: CellResult) -> Iterator[str]:
    """Yield where a cell begins to differ, with the module and the source lines."""
    first = beginning(cell)
    yield from _wrapped(f"{cell.cell.stack}: {first.statement}", "", "  ", 3)
    yield from _wrapped(first.first, "  ", "    ", 2)
    yield from _wrapped(first.cause, "  ", "    ", 2)
    yield from (f"  {place}" for place in first.places)


def _findings(
    report: Report, cells: list[CellResult], places: Mapping[str, Place]
) -> Iterator[str]:
    """Yield the known defects that explain the verdict, then those beside it, with their remedies."""
    explaining, others = advice(cells, report, places), beside(cells, report, places)
    for number, defect in enumerate([*explaining, *others][:MAX_FINDINGS]):
        if number == len(explaining) and _worst(cells) is not None:
            yield "Beside the verdict:"
        yield from _wrapped(defect.heading, "", "  ", 2)
        yield from _wrapped(f"remedy: {defect.remedy}", "  ", "    ", _MAX_REMEDY_LINES)
    if more := [defect.code for defect in [*explaining, *others][MAX_FINDINGS:]]:
        yield f"Also: {', '.join(more)}"


def _reasons(report: Report, worst: CellResult | None) -> Iterator[str]:
    """Yield why the run does not pass, where the lines above do not say it."""
    if report.exit_code in (PASS, UNASKED) or (worst is not None and not worst.verdict.passes):
        return
    for reason in report.reasons[:MAX_REASONS]:
        yield from _wrapped(f"- {reason}", "  ", "    ", 4)


def _next(report: Report, worst: CellResult | None) -> Iterator[str]:
    """Yield the command that says in which release the bits moved."""
    if worst is None or worst.reference in (None, worst.cell):
        return
    if any(stack.between for stack in report.stacks) or len(report.stacks) < 2:
        return
    assert worst.reference is not None
    command = compare_two(report, worst.reference.stack, worst.cell.stack, more="--releases")
    yield f"In which release: {command}"


def _capsules(cells: list[CellResult], path: Path) -> Iterator[str]:
    if any(cell.capsule and cell.capsule.path for cell in cells):
        yield f"Scripts that show it without samebits: {path.parent / CAPSULES}"


def _wrapped(text: str, first: str, rest: str, most: int) -> list[str]:
    """Return a text in at most ``most`` lines."""
    lines = textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        max_lines=most,
        placeholder=" …",
        break_on_hyphens=False,
    )
    return lines
