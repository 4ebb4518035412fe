"""What GitHub shows of a run: the summary of a job, and annotations on lines of files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

from samebits.base.workflow import Level, annotation
from samebits.diagnose.exit_code import fails
from samebits.findings.rulebook import plain_title, short_advice
from samebits.records.comparison import CellResult
from samebits.records.report import Report
from samebits.reports.answer import of_cell
from samebits.reports.head import notes
from samebits.reports.plain import Place, advice, beginning, explaining_codes, on_one_line
from samebits.reports.sections.at_a_glance import glance
from samebits.reports.sections.overview import title
from samebits.reports.sections.the_worst import the_worst
from samebits.reports.sections.what_changed import in_short
from samebits.reports.stories import Story, Trouble, places, stories, troubles, verdict_word
from samebits.text.blocks import bullets, heading, page
from samebits.text.markdown import Markdown, fill, prose, shorten
from samebits.text.numbers import count

PATH = "job-summary.md"
MAX_BYTES = 1_000_000
"""Bytes of a job summary. GitHub refuses one of more than 1,024 KiB, and then shows none."""
MAX_ANNOTATIONS = 10
"""GitHub shows ten annotations of a level for each step, and drops the others."""
_MAX_ROWS = 500
_MAX_MESSAGE = 3000
_NOTE_BYTES = 200
"""Bytes that remain for the line about what was cut."""

_LINK = re.compile(
    r"""
      (?P<code>(?P<fence>`+)(?!`).*?(?<!`)(?P=fence)(?!`))   # a code span, which stays
    | (?P<escaped>\\.)
    | \[(?P<label>(?:\\.|`[^`\n]*`|[^\[\]\\\n])*)\]\((?!https?:)[^()\s]*\)
    """,
    re.VERBOSE,
)


def render(report: Report) -> dict[str, str]:
    """Return the text of the job summary by its path."""
    return {PATH: summary(report)}


def summary(report: Report, limit: int = MAX_BYTES) -> str:
    """Return the summary of a job in at most ``limit`` bytes; what is less severe is cut first.

    Links to other files of the report are plain text, because GitHub shows the summary without them.
    """
    blocks = [unlinked(block) for block in _blocks(report) if block]
    return f"{page(_fitting(blocks, limit - 1))}\n" if limit > _NOTE_BYTES else ""


def _blocks(report: Report) -> Iterator[Markdown]:
    """Yield the parts of the summary, the most important first."""
    yield title(report)
    yield bullets(map(prose, notes(report)))
    yield the_worst(report, _MAX_ROWS)
    yield glance(report)
    yield from _remedies(report)
    failing = sorted(
        (story for story in stories(report.rows) if not story.passes), key=lambda s: s.severity
    )
    if failing:
        yield heading(2, "What changed")
    for story in failing:
        yield _details(story, report)


def _remedies(report: Report) -> Iterator[Markdown]:
    """Yield the defects that explain why cells fail, each with its cause and remedy."""
    cells = list(filter(fails, report.cells))
    codes = explaining_codes(cells)
    texts = [text for text in report.rules if text.code in codes and text.scope == "model"]
    if texts:
        yield heading(2, "What to do")
    for text in texts:
        yield page([heading(3, plain_title(text)), short_advice(text)])


def _details(story: Story, report: Report) -> Markdown:
    cells = [cell for row in story.rows for cell in row.cells if not cell.verdict.passes]
    commands = [fill("To reproduce: {}", c.reproduce) for c in cells[:1] if c.reproduce]
    return page([heading(3, story.name), *in_short(cells, story, report.expected), *commands])


def _fitting(blocks: list[Markdown], limit: int) -> list[Markdown]:
    """Return the first blocks that fit, and how many were cut."""
    sizes = [len(block.encode("utf-8", "replace")) + 2 for block in blocks]
    if sum(sizes) <= limit:
        return blocks
    n_kept, size = 0, 0
    while size + sizes[n_kept] <= limit - _NOTE_BYTES:
        size += sizes[n_kept]
        n_kept += 1
    note = "{} more parts are cut, as GitHub shows no longer summary. The report has all of them."
    return [*blocks[:n_kept], fill(note, count(len(blocks) - n_kept))]


def unlinked(text: Markdown) -> Markdown:
    """Return Markdown whose links to other files of the report are their labels."""
    return Markdown(_LINK.sub(_label, text))


def _label(match: re.Match[str]) -> str:
    return match[0] if match["label"] is None else match["label"]


class _Remark(NamedTuple):
    """One annotation before it is placed."""

    level: Level
    title: str
    message: str
    file: str = ""
    line: int = 0


def workflow_commands(
    report: Report,
    code: Mapping[str, Place] | None = None,
    is_file: Callable[[str], bool] = lambda _: False,
    prefix: str = "",
) -> list[str]:
    """Return the workflow commands that show the worst of a run beside the files, at most ten.

    ``code`` maps the code of a finding to the line of the model's code that shows it; ``is_file``
    says whether a path below the current folder exists. ``prefix`` leads from the root of the
    repository, from which GitHub reads paths, to the current folder.
    """
    remarks = list(_remarks(report, code or {}, is_file))
    n_more = len(remarks) - MAX_ANNOTATIONS + 1
    if len(remarks) > MAX_ANNOTATIONS:
        remarks[MAX_ANNOTATIONS - 1 :] = [_more(n_more, remarks[MAX_ANNOTATIONS - 1].level)]
    return [_command(remark, prefix) for remark in remarks]


def _more(n: int, level: Level) -> _Remark:
    return _Remark(level, "samebits", f"and {count(n)} more; the job summary lists them")


def _remarks(
    report: Report, code: Mapping[str, Place], is_file: Callable[[str], bool]
) -> Iterator[_Remark]:
    """Yield what keeps the run from passing, the worst first."""
    for stack in report.stacks:
        if stack.failure:
            name = f"samebits: environment {stack.id} could not be built"
            yield _Remark("error", name, stack.failure, report.matrix_path)
    pending = []
    for trouble in troubles(report):
        if any(map(fails, trouble.cells)):
            yield _trouble(trouble, report, code, is_file)
        else:
            pending.append(trouble)
    for entry in report.expected:
        if entry.fixed:
            message = f"no longer occurs: {', '.join(entry.fixed)}. Remove the entry."
            name = "samebits: an expected difference is gone"
            yield _Remark("error", name, message, report.matrix_path, entry.line)
    for trouble in pending:
        yield _trouble(trouble, report, code, is_file)


def _trouble(
    trouble: Trouble, report: Report, code: Mapping[str, Place], is_file: Callable[[str], bool]
) -> _Remark:
    cells = trouble.cells
    cell = trouble.shared.first
    name = f"samebits: {trouble.story.name} on {places(trouble.shared)}: {verdict_word(cell)}"
    lines = [*of_cell(cell, report).lines, *beginning(cell).lines]
    lines += [line for defect in advice(cells, report) for line in defect.lines]
    level: Level = "error" if any(map(fails, cells)) else "warning"
    file, line = _place(cell, report, code, is_file)
    return _Remark(level, name, "\n".join(lines), file, line)


def _place(
    cell: CellResult, report: Report, code: Mapping[str, Place], is_file: Callable[[str], bool]
) -> tuple[str, int]:
    """Return file and line of the model's own code, else of its entry in the matrix file."""
    model = cell.cell.model
    folder = next((c.folder for c in report.checkpoints if c.model == model), "")
    spots = [
        (PurePosixPath(frame.file).name, frame.line)
        for frame in reversed(cell.failure.frames if cell.failure else ())
        if frame.own
    ]
    spots += [
        (code[finding.code].file, code[finding.code].line)
        for finding in cell.findings
        if finding.code in code
    ]
    for name, line in spots:
        path = str(PurePosixPath(folder) / name)
        if folder and is_file(path):
            return path, line
    line = next((row.line for row in report.rows if row.model == model), 0)
    return (report.matrix_path, line) if line else ("", 0)


def _command(remark: _Remark, prefix: str) -> str:
    file = str(PurePosixPath(prefix) / remark.file) if remark.file else ""
    properties = {"file": file, "line": remark.line, "title": on_one_line(remark.title)}
    return annotation(remark.level, shorten(remark.message, _MAX_MESSAGE), properties)
