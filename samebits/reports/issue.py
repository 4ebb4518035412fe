"""``samebits issue``: the text of an issue about what fails in a report and is in no issue yet.

A scheduled run opens it. Its first line is a comment that readers do not see, with a key for each
difference, so that the next run knows what has an issue.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from samebits.base.digests import digest_of
from samebits.base.errors import SamebitsError
from samebits.base.options import Option
from samebits.diagnose.exit_code import fails
from samebits.records.comparison import CellResult
from samebits.records.record import Record
from samebits.records.report import Report
from samebits.reports import again
from samebits.reports.answer import of_cell
from samebits.reports.plain import advice, beginning, on_one_line
from samebits.reports.stories import Trouble, row_name, troubles, verdict_word
from samebits.text.blocks import fence, heading, page
from samebits.text.markdown import Markdown, code, fill, join, markdown, prose
from samebits.text.numbers import count, plural
from samebits_wire.atomic import replace

MAX_CHARACTERS = 60_000
"""Length of a text; GitHub refuses one of more than 65,536 characters."""

FORMAT_VERSION = 1
_MARK = re.compile(r"<!-- samebits differences 1:((?: [0-9a-f]{12}@[\w.+-]+)*) -->")
_KEY_DIGITS = 12
_MAX_KEYS = 1_000


class IssuesError(SamebitsError):
    """A file does not hold the issues of a repository."""


class Opened(NamedTuple):
    """An issue that exists."""

    is_open: bool
    keys: frozenset[str]
    """Key of each difference, with the release: ``0123456789ab@5.23.0``."""


class Issue(NamedTuple):
    """The issue to open."""

    title: str
    body: str


class Options(Record):
    """The options of the command."""

    report: Annotated[Path, Option("REPORT.json", "", type=Path)]
    """The report to read."""
    known: Annotated[Path | None, Option("FILE", type=Path)] = None
    """The issues that exist: what `gh issue list --state all --json state,body` prints (default: none)."""
    output: Annotated[Path, Option("FILE", type=Path)] = Path("issue.md")
    """The file to write: the title, a blank line, the text (default: issue.md)."""


def write_issue(options: Options) -> list[str]:
    """Write the issue, or remove an earlier one if nothing is new; return the lines to print.

    Raises:
        ReportFileError: the report cannot be read.
        IssuesError: the issues cannot be read.

    """
    report = again.read(options.report).report
    issue = new_issue(report, read_issues(options.known) if options.known else ())
    if issue is None:
        options.output.unlink(missing_ok=True)
        return ["nothing fails that is in no issue yet"]
    replace(options.output, f"{issue.title}\n\n{issue.body}\n")
    return [f"{options.output}: {issue.title}"]


def read_issues(path: Path) -> list[Opened]:
    """Return the issues that samebits wrote, from a list of all. Raises IssuesError."""
    try:
        listed = json.loads(path.read_bytes())
        return [_opened(item) for item in listed]
    except OSError as error:
        raise IssuesError(_unreadable(path, error.strerror or str(error))) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise IssuesError(_unreadable(path, "it is no list of issues")) from error


def _unreadable(path: Path, why: str) -> str:
    return (
        f"{path} cannot be read: {why}. It must hold what `gh issue list --state all --json "
        "state,body` prints"
    )


def _opened(item: dict[str, Any]) -> Opened:
    match = _MARK.search(item["body"] or "")
    return Opened(item["state"].upper() == "OPEN", frozenset(match[1].split() if match else ()))


def new_issue(report: Report, opened: Iterable[Opened] = ()) -> Issue | None:
    """Return the issue about what fails and is new; None if nothing is.

    A difference is not new if an open issue has it, for whatever release; nor if a closed one has it
    for this very release, because somebody has decided about it.
    """
    opened = list(opened)
    in_open = {key.partition("@")[0] for issue in opened if issue.is_open for key in issue.keys}
    decided = {key for issue in opened if not issue.is_open for key in issue.keys}
    releases = _releases(report)

    def is_new(cell: CellResult) -> bool:
        key = _key(cell, releases)
        return fails(cell) and key.partition("@")[0] not in in_open and key not in decided

    new = [
        (trouble, cells)
        for trouble in troubles(report)
        if (cells := [cell for cell in trouble.cells if is_new(cell)])
    ]
    if not new:
        return None
    all_cells = [cell for _, cells in new for cell in cells]
    return Issue(_title(all_cells, releases), _body(new, all_cells, report, releases))


def _releases(report: Report) -> dict[str, str]:
    """Return stack -> the release of transformers that it has."""
    return {stack.id: stack.transformers or stack.id for stack in report.stacks}


def _key(cell: CellResult, releases: dict[str, str]) -> str:
    """Return the key of a difference, and the release that shows it.

    Figures, causes and the release are no part of the key: they may change from run to run.
    """
    signal = cell.first.signal if cell.first else ""
    where = [cell.cell.model, str(cell.cell.variant), cell.cell.stack]
    digest = digest_of([*where, cell.verdict, signal])
    return f"{digest[:_KEY_DIGITS]}@{releases.get(cell.cell.stack, cell.cell.stack)}"


def _title(cells: list[CellResult], releases: dict[str, str]) -> str:
    models = list(dict.fromkeys(cell.cell.model for cell in cells))
    stacks = {cell.cell.stack for cell in cells}
    names = dict.fromkeys(release for stack, release in releases.items() if stack in stacks)
    under = f"under transformers {', '.join(names)}"
    if len(models) > 1:
        return f"samebits: {len(models)} models do not pass {under}"
    verdicts = dict.fromkeys(cell.verdict.value for cell in cells)
    return f"samebits: {models[0]} {', '.join(verdicts)} {under}"


def _body(
    new: list[tuple[Trouble, list[CellResult]]],
    cells: list[CellResult],
    report: Report,
    releases: dict[str, str],
) -> str:
    keys = list(dict.fromkeys(_key(cell, releases) for cell in cells))[:_MAX_KEYS]
    mark = f"<!-- samebits differences {FORMAT_VERSION}: {' '.join(keys)} -->"
    names = ", ".join(releases[stack] for stack in _compared(cells, report))
    fail = "1 cell fails" if len(cells) == 1 else f"{count(len(cells))} cells fail"
    text = f"{{}} under transformers {names}: {fail} that no issue names yet."
    intro = fill(text, code(report.matrix))
    blocks = [Markdown(mark), intro]
    size = sum(map(len, blocks))
    for number, (trouble, fresh) in enumerate(new):
        block = _details(trouble, fresh, report)
        if size + len(block) > MAX_CHARACTERS:
            left = len(new) - number
            blocks.append(
                markdown(f"{plural(left, 'more difference')}: the report has all of them.")
            )
            break
        blocks.append(block)
        size += len(block) + 2
    return page(blocks)


def _compared(cells: list[CellResult], report: Report) -> Iterator[str]:
    """Yield the stacks of some cells and the reference, in the order of the report."""
    ids = {cell.cell.stack for cell in cells} | {report.reference}
    return (stack.id for stack in report.stacks if stack.id in ids)


def _details(trouble: Trouble, cells: list[CellResult], report: Report) -> Markdown:
    """Return one difference; what the model wrote is in a fence, where GitHub notifies nobody."""
    names = dict.fromkeys(
        row_name(row) for row in trouble.story.rows for c in cells if c in row.cells
    )
    stacks = dict.fromkeys(cell.cell.stack for cell in cells)
    lines = [*of_cell(cells[0], report).lines, *beginning(cells[0]).lines]
    lines += [line for defect in advice(cells, report) for line in defect.lines]
    commands = [f"to reproduce: {cell.reproduce}" for cell in cells[:1] if cell.reproduce]
    title = fill(
        "{} on {}: {}",
        join(map(code, names), ", "),
        join(map(code, stacks), ", "),
        prose(verdict_word(cells[0])),
    )
    return page([heading(3, title), fence("\n".join(map(on_one_line, [*lines, *commands])))])
