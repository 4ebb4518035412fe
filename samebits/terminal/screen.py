"""The answer of ``samebits check``: one screen about one model, the verdict and its remedy last.

What a terminal of 24 rows still shows when the run has ended is the end of what was printed.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from samebits.diagnose.everywhere import is_everywhere
from samebits.diagnose.exit_code import INCOMPLETE, PASS, UNASKED
from samebits.findings.rule import COMPUTED
from samebits.findings.rulebook import plain_title
from samebits.questions.registry import codes_explaining
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import Report, StackReport
from samebits.reports.answer import Answer, answers, nothing, passing, same
from samebits.reports.answer.releases import distinct
from samebits.reports.beside import Defect, alone, defects, raising_uses
from samebits.reports.head import briefs
from samebits.reports.plain import Place, advice, explaining_codes
from samebits.reports.sections.environment import code_line, steps_lines
from samebits.reports.sections.state import left_line
from samebits.reports.sections.unrun import media_line, unrun_line
from samebits.reports.stories import EVERY_RELEASE, is_reference, verdict_word
from samebits.terminal.summary import to_paste
from samebits.text.lists import grouped
from samebits.text.markdown import visible
from samebits.text.names import CAPSULES, spanned
from samebits.text.terminal import Mark, Marked

WIDTH = 110
"""Most columns of a line, however wide the terminal is."""
INPUTS_FILE = "inputs.yaml"
"""Where the lines for a model that cannot be fed are to be written."""
MAX_BESIDE = 3
MAX_REASONS = 3
MAX_ALSO = 2
_MAX_NAMED = 4
"""Releases that the headline names one by one."""
_MAX_REMARK_LINES = 5
_MAX_DO_LINES = 10
"""Room for the remedies of several defects, which a user has to follow all."""
_LABEL = 10
"""Columns of the labels of the answer."""
_MARKS = {
    Verdict.ROUNDING: Mark.CLOSE,
    Verdict.IDENTICAL: Mark.SAME,
    Verdict.EXPECTED: Mark.CLOSE,
    Verdict.REFERENCE: Mark.SAME,
}


def columns() -> int:
    """Return the width of the terminal that standard output is, at most :data:`WIDTH`."""
    return columns_of_terminal() or WIDTH


def columns_of_terminal() -> int:
    """Return the width of the terminal, at most :data:`WIDTH`; 0 if standard output is none."""
    if not sys.stdout.isatty():
        return 0
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns)


def screen(
    report: Report,
    paths: Sequence[Path],
    places: Mapping[str, Place],
    width: int = WIDTH,
    last: Collection[str] = (),
) -> list[str]:
    """Return the lines to print, the verdict and what to do last.

    ``paths`` are the files to open, one per format; ``places`` maps the code of a finding to the line of the model's
    code that shows it; ``last`` are those of them that the last release has.
    """
    details = list(_details(report, places, width))
    lines = [*details, ""] if details else []
    hidden = {code: place for code, place in places.items() if code in last}
    lines += _answer(report, paths, places, hidden, width)
    return [_visible(line) for line in lines]


def _visible(line: str) -> str:
    return Marked(visible(line), line.mark) if isinstance(line, Marked) else visible(line)


def _details(report: Report, places: Mapping[str, Place], width: int) -> Iterator[str]:
    """Yield what stands before the answer: releases, findings beside the verdict, what was not asked."""
    is_incomplete = any(stack.failure for stack in report.stacks) or any(
        cell.verdict is Verdict.ABSENT for cell in report.cells
    )
    if len(report.cells) > 2 or is_incomplete:
        yield from _releases(report, width)
    for line in _beside(report, places):
        yield from _wrapped(line, "", "  ", 2, width)
    notes = (
        *_quick(report),
        unrun_line(report),
        media_line(report),
        *briefs(report),
        left_line(report),
        code_line(report),
        *steps_lines(report),
    )
    for line in filter(None, notes):
        yield from _wrapped(line, "", "  ", 3, width)
    yield from to_paste(report, INPUTS_FILE)


def _quick(report: Report) -> Iterator[str]:
    """Yield what a quick run left out."""
    if report.level == "quick":
        yield (
            "--quick left out: consistency checks, training, saving and loading between releases, eager "
            "attention, API checks, second loads, the cause. Without --quick, more findings may be named, or a more "
            "exact one, and more remedies."
        )


class _Field(NamedTuple):
    """One line of the answer."""

    label: str
    text: str


def _answer(
    report: Report,
    paths: Sequence[Path],
    places: Mapping[str, Place],
    hidden: Mapping[str, Place],
    width: int,
) -> Iterator[str]:
    """Yield the answer: the verdict, and below it aligned fields."""
    all_answers = answers(report)
    worst = all_answers[0] if all_answers else None
    headline = _headline(report, worst)
    mark = _mark(report, worst)
    start = f"{mark} "  # a terminal has room for it
    first, *rest = _wrapped(f"{start}{headline}", "", "  ", 3, width)
    yield from (Marked(first.removeprefix(start), mark), *rest)
    fields = [*_fields(report, all_answers, places)] if all_answers else [*_quiet(report)]
    fields += [*_hidden(worst.cell, report, hidden)] if worst is not None else []
    fields += [_Field("also", _also(further)) for further in all_answers[1 : 1 + MAX_ALSO]]
    fields += [_Field("why", reason) for reason in _reasons(report, worst)]
    fields += [_Field("next", worst.command)] if worst is not None and worst.command else []
    fields += _capsules(report.cells, paths[0])
    fields += _paths(paths, width)
    for field in fields:
        yield from _shown(field, width)


def _headline(report: Report, worst: Answer | None) -> str:
    """Return the model, the releases and the change."""
    if worst is None:
        return _same(report)
    releases = f"{worst.before} → {worst.after}" if worst.before else _all_of(worst, report)
    variant = f" {', '.join(worst.variants)}" if len(report.rows) > 1 else ""
    suffix = " (known: listed as expected)" if worst.is_known else ""
    line = f"{worst.model}{variant}  {releases}: {worst.change}{suffix}"
    return "; ".join((line, *passing(report)))


def _all_of(worst: Answer, report: Report) -> str:
    """Return the releases of a difference that has none before it."""
    if is_everywhere(worst.cell):
        return EVERY_RELEASE
    named = [distinct(stack, report) for stack in worst.stacks]
    return ", ".join(named) if len(named) <= _MAX_NAMED else f"{named[0]} … {named[-1]}"


def _same(report: Report) -> str:
    compared = [cell for cell in report.cells if not is_reference(cell)]
    compared = [cell for cell in compared if cell.verdict is not Verdict.ABSENT]
    if report.exit_code == INCOMPLETE:
        return f"{report.matrix}  incomplete: nothing that was compared differs, but not everything was"
    if not compared or report.exit_code not in (PASS, UNASKED):
        return f"{report.matrix}  nothing could be compared"
    versions = [distinct(stack.id, report) for stack in report.stacks]
    line = f"{report.matrix}  {' → '.join(versions)}: {same(report)}"
    return "; ".join((line, *passing(report)))


def _mark(report: Report, worst: Answer | None) -> Mark:
    if worst is None:
        return Mark.SAME if report.exit_code in (PASS, UNASKED) else Mark.WORSE
    if worst.cell.judged in (Verdict.NOT_FINISHED, Verdict.NOT_OBSERVED):
        return Mark.CLOSE
    return _MARKS.get(worst.cell.verdict, Mark.WORSE)


def _fields(
    report: Report, ranked: Sequence[Answer], places: Mapping[str, Place]
) -> Iterator[_Field]:
    """Yield the fields of the worst answer, with the advice of the next one that has any if it has none."""
    worst = ranked[0]
    do = next((answer.do for answer in ranked[: 1 + MAX_ALSO] if answer.do), "")
    since = worst.start if len(report.cells) > 2 else ""
    where = "; ".join(filter(None, (worst.where, *_own_lines(worst.cell, report, places))))
    named = (("since", since), ("where", where), ("right", worst.side.why), ("do", do))
    yield from (_Field(label, text.replace("`", "")) for label, text in named if text)


def _quiet(report: Report) -> Iterator[_Field]:
    """Yield what to do although the bits are the same: a candidate has a defect that no verdict counts."""
    if report.exit_code in (PASS, UNASKED) and (do := nothing(report)):
        yield _Field("do", do)


def _hidden(cell: CellResult, report: Report, places: Mapping[str, Place]) -> Iterator[_Field]:
    """Yield what the code of a model shows of its last release beside what explains the verdict.

    A cell that raises or is unstable may hide it. Where numbers differ, decoding is wrong for more than one reason if
    a finding confirms it.
    """
    judged = (Verdict.FAILED, Verdict.UNSTABLE, Verdict.DIVERGED)
    if cell.cell.stack != report.stacks[-1].id or cell.judged not in judged:
        return
    cell_codes, explaining = {f.code for f in cell.findings}, explaining_codes([cell])
    if cell.judged is not Verdict.DIVERGED:
        codes = places.keys() - cell_codes - explaining
        why = "seen in the code, where the above may hide it"
    else:
        codes = (places.keys() & cell_codes & codes_explaining(COMPUTED)) - explaining
        why = "another cause, of what is computed later"
    if codes:
        named = [f"{code} ({place})" for code, place in places.items() if code in codes]
        yield _Field("then", f"{', '.join(named)}: {why}")


def _own_lines(cell: CellResult, report: Report, places: Mapping[str, Place]) -> Iterator[str]:
    """Yield the lines of the model's own code that show what explains the verdict, each once.

    The line that raises is the first of what is named already.
    """
    explaining = {defect.code for defect in advice([cell], report)}
    frame = cell.failure.place if cell.failure is not None else None
    shown = {(frame.file.rpartition("/")[2], frame.line)} if frame is not None else set()
    for code, place in places.items():
        if code in explaining and (place.file, place.line) not in shown:
            shown.add((place.file, place.line))
            yield str(place)


def _also(answer: Answer) -> str:
    codes = f" ({', '.join(answer.side.codes)})" if answer.side.codes else ""
    where = EVERY_RELEASE if is_everywhere(answer.cell) else spanned(answer.stacks)
    return f"{where}: {answer.change}{codes}"


def _reasons(report: Report, worst: Answer | None) -> Sequence[str]:
    """Return why the run does not pass, where the answer does not say it."""
    if report.exit_code in (PASS, UNASKED) or (worst is not None and not worst.cell.verdict.passes):
        return ()
    return report.reasons[:MAX_REASONS]


def _capsules(cells: list[CellResult], path: Path) -> Iterator[_Field]:
    if any(cell.capsule and cell.capsule.path for cell in cells):
        yield _Field("scripts", f"{path.parent / CAPSULES} (show it without samebits)")


def _paths(paths: Sequence[Path], width: int) -> Iterator[_Field]:
    """Yield the files to open, on one line if it has room for them."""
    names = [*map(str, paths)]
    joined = ", ".join(names)
    lines = [joined] if _LABEL + len(joined) <= width else names
    yield from (_Field("" if i else "report", line) for i, line in enumerate(lines))


def _shown(field: _Field, width: int) -> list[str]:
    """Return the lines of a field; a command or a path is not broken, so that it can be copied."""
    start = f"  {field.label:<{_LABEL - 2}}"
    if field.label in ("next", "report", ""):
        return [f"{start}{field.text}"]
    most = _MAX_DO_LINES if field.label == "do" else 3
    return _wrapped(field.text, start, " " * _LABEL, most, width)


def _label(cell: CellResult, report: Report) -> str:
    """Return the release of a cell, with its variant where there are several."""
    return f"{cell.cell.variant}@{cell.cell.stack}" if len(report.rows) > 1 else cell.cell.stack


def _releases(report: Report, width: int) -> Iterator[str]:
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
    name_width = max((len(name) for name, _, _ in lines), default=0)
    verdict_width = max((len(word) for _, word, _ in lines), default=0)
    for name, word, remark in lines:
        start = f"  {name:<{name_width}}  {word:<{verdict_width}}  "
        yield from _wrapped(remark, start, " " * 8, _MAX_REMARK_LINES, width) or [start.rstrip()]


def _release(stack: StackReport, cell: CellResult, report: Report) -> str:
    label = _label(cell, report)
    release = f"transformers {stack.transformers}"
    return f"{label:<6} {release}"


def _remark(cell: CellResult) -> str:
    if cell.verdict == Verdict.ABSENT:
        return cell.absent or cell.headline
    return ""


def _beside(report: Report, places: Mapping[str, Place]) -> Iterator[str]:
    """Yield the known defects that explain no verdict: those of a candidate in one line each.

    ``places`` maps the code of a finding to the line of the model's code that shows it. What has such a line can be
    repaired there, and others may follow from it, so it comes first.
    """
    by_since = grouped(defects(report), lambda defect: defect.since)
    changed = sorted(by_since.get("changed", []), key=lambda each: each.text.code not in places)
    alike = by_since.get("alike", [])
    repaired = by_since.get("repaired", [])
    for defect in changed[:MAX_BESIDE]:
        yield f"Beside the verdict: {_heading(defect, places)}"
    if changed[MAX_BESIDE:]:
        yield f"Beside the verdict, too: {_codes(changed[MAX_BESIDE:])} (the report has them)"
    for text, finding in raising_uses(report):
        yield f"Beside the verdict: {plain_title(text)} ({finding.where})"
    if alike:
        yield f"In every release alike: {_named(alike, places)}"
    if repaired:
        stacks = ", ".join(dict.fromkeys(stack for defect in repaired for stack in defect.stacks))
        only = alone(report, repaired)
        yield f"Beside the verdict, in {stacks}{only}: {_named(repaired, places)}"


def _named(listed: list[Defect], places: Mapping[str, Place]) -> str:
    return _codes(listed) if listed[1:] else _heading(listed[0], places)


def _codes(listed: list[Defect]) -> str:
    return ", ".join(defect.text.code for defect in listed)


def _heading(defect: Defect, places: Mapping[str, Place]) -> str:
    place = places.get(defect.text.code)
    if place is None:
        return defect.heading
    is_same = defect.where == f"{place.file}:{place.line}"
    named = filter(None, ("" if is_same else defect.where, str(place)))
    return defect._replace(where=", ".join(named)).heading


def _wrapped(text: str, first: str, rest: str, most: int, width: int) -> list[str]:
    """Return a text in at most ``most`` lines."""
    return textwrap.wrap(
        " ".join(text.split()) if first else text,
        width,
        initial_indent=first,
        subsequent_indent=rest,
        max_lines=most,
        placeholder=" …",
        break_on_hyphens=False,
    )
