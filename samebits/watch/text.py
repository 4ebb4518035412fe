"""The texts of issues: what a maintainer reads of a cause, and the mark by which the next night finds it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from pydantic import ValidationError

from samebits.records.comparison import CellResult
from samebits.records.report import Report
from samebits.reports.answer import of_cell
from samebits.reports.cell.cause import shown_cause
from samebits.reports.plain import advice, beginning, on_one_line
from samebits.text.blocks import bullets, fence, heading, page
from samebits.text.markdown import Markdown, code, fill, join, prose, shorten
from samebits.text.numbers import count, plural
from samebits.watch.causes import Group, Night
from samebits.watch.records import KnownCause, WatchFile

MAX_CHARACTERS = 60_000
"""Length of a text; GitHub refuses one of more than 65,536 characters."""
_MARK = re.compile(r"^<!-- samebits watch 1: (\{.*\}) -->$", re.MULTILINE)
_MAX_TITLE = 160
_MAX_MODELS = 6
_WORDS = {
    "differs": ("computes something else", "compute something else"),
    "raises": ("raises", "raise"),
    "absent": ("is not there any more", "are not there any more"),
}
_UNDECIDED = "differs, and float64 does not tell how", "differ, and float64 does not tell how"
_DONE = """\
Is it meant? Close this issue as *not planned*: then no other one is opened about this cause. Else it is closed by \
itself, after a night in which all of these models ran and none shows it. Closed in another way, it comes back as long \
as the cause is there."""


class Beside(NamedTuple):
    """What an issue says beside the report."""

    commits: tuple[str, ...] = ()
    """Commits since the last night that change a file which the cause names, one line each."""
    n_commits: int | None = None
    """All commits since then; None: the clone was not asked."""
    since: str = ""
    """The last night's commit, or the release."""
    suspects: tuple[str, ...] = ()
    """What a bisection names, one line each, if one was asked for."""
    script: str = ""
    """A matrix file that shows it, and its command."""


def mark(cause: KnownCause) -> str:
    """Return a comment that readers do not see; it cannot end early, whatever a message holds."""
    facts = cause.model_dump(mode="json", exclude={"number", "decided"})
    text = json.dumps(facts, sort_keys=True).replace("--", "-\\u002d").replace(">", "\\u003e")
    return f"<!-- samebits watch 1: {text} -->"


def marked(body: str) -> KnownCause | None:
    """Return the cause that an issue is about; None if it is about none."""
    match = _MARK.match(body.replace("\r\n", "\n"))
    if match is None:
        return None
    try:
        return KnownCause.model_validate_json(match[1])
    except ValidationError:
        return None


def title(cause: KnownCause, group: Group | None) -> str:
    """Return the title of an issue."""
    models = cause.models
    names = models[0] if len(models) == 1 else plural(len(models), "model")
    if group is None:
        return f"samebits watch: {names} could not be looked at"
    words = (_WORDS[cause.kind] if group.is_known else _UNDECIDED)[len(models) > 1]
    place = _place(group.cells[0])
    text = f"samebits watch: {names} {words} on transformers main{f': {place}' if place else ''}"
    return shorten(on_one_line(text), _MAX_TITLE)


def _place(cell: CellResult) -> str:
    if cell.failure is not None:
        return cell.failure.in_words
    first = shown_cause(cell)
    side = first and (first.candidate if first.candidate.source else first.reference)
    return side.function or side.tensor if side else ""


def text_of(
    cause: KnownCause, group: Group | None, night: Night, report: Report | None, beside: Beside
) -> str:
    """Return the text of an issue; its first line is the mark."""
    if group is None or report is None:
        return _trouble(cause, night)
    models = join(map(code, cause.models), ", ")
    compared = "main at {} against {}, {}."
    blocks = [
        Markdown(mark(cause)),
        fill(compared, code(night.commit or "?"), night.reference, models),
    ]
    blocks += [_of_model(model, group, report) for model in group.models[:_MAX_MODELS]]
    if diff := _diff(group.cells[0]):
        blocks += [heading(3, "Lines that changed there"), fence(diff, "diff")]
    blocks += [*_commits(beside)]
    if beside.script:
        blocks += [heading(3, "To see it again"), fence(beside.script, "bash")]
    blocks += [heading(3, "What to do"), Markdown(_DONE)]
    return f"{_fitting(blocks)}\n"


def _fitting(blocks: list[Markdown]) -> str:
    """Return the blocks without the longest ones of the middle, if they are too long."""
    while len(text := page(blocks)) > MAX_CHARACTERS and len(blocks) > 3:
        longest = max(blocks[2:-1], key=len)
        blocks = [block for block in blocks if block is not longest]
    return text[:MAX_CHARACTERS]


def _of_model(model: str, group: Group, report: Report) -> Markdown:
    """Return the report's lines about a model. Its messages are in a fence, so that GitHub sends no notification."""
    cells = [cell for cell in group.cells if cell.cell.model == model]
    lines = [*of_cell(cells[0], report).lines, *beginning(cells[0]).lines]
    lines += [line for defect in advice(cells[:1], report) for line in defect.lines]
    variants = ", ".join(str(cell.cell.variant) for cell in cells)
    title = fill("{}, {}", code(model), prose(variants))
    return page([heading(3, title), fence("\n".join(map(on_one_line, lines)))])


def _diff(cell: CellResult) -> str:
    first = shown_cause(cell)
    diffs = first.diffs if first else ()
    return "\n".join(f"{d.function}  {d.candidate}\n{d.diff}" for d in diffs[:2])


def _commits(beside: Beside) -> Iterator[Markdown]:
    """Yield the commits; in a fence no number becomes a reference to an issue of another project."""
    if beside.suspects:
        yield heading(3, "Found by bisection")
        yield fence("\n".join(map(on_one_line, beside.suspects)))
    if beside.n_commits is None:
        return
    yield heading(3, "Commits that change these files")
    yield fill(
        "{} of {} since {} change a file that the difference names.",
        plural(len(beside.commits), "commit"),
        count(beside.n_commits),
        code(beside.since),
    )
    if beside.commits:
        yield fence("\n".join(map(on_one_line, beside.commits)))


def _trouble(cause: KnownCause, night: Night) -> str:
    """Return the text about models that could not be looked at: nothing was closed or opened for them."""
    listed = (fill("{}: {}", code(model), code(why, limit=300)) for model, why in night.blocked)
    text = (
        "These models could not be looked at. That says nothing of main: no issue about them was opened or closed. This "
        "issue is closed by itself after a night in which all of them ran."
    )
    return page([Markdown(mark(cause)), Markdown(text), bullets(listed)])[:MAX_CHARACTERS] + "\n"


def closing(cause: KnownCause, night: Night, before: WatchFile) -> str:
    """Return the comment with which an issue is closed."""
    if cause.kind == "watch":
        return "All models ran again.\n"
    now = f"transformers main at `{night.commit}` does what {night.reference} does"
    models = ", ".join(f"`{model}`" for model in cause.models)
    if before.reference and cause.reference != night.reference:
        return (
            f"{now}, for {models}. The issue was opened against {cause.reference}, so the change may be a part of "
            f"{night.reference} now: `samebits check MODEL --from {cause.reference} --to {night.reference}` shows it.\n"
        )
    return f"Gone: {now}, for {models}.\n"


def summary(cause: KnownCause, verb: str) -> str:
    """Return one line for the terminal."""
    where = f" #{cause.number}" if cause.number else ""
    first = cause.signs[0] if cause.signs else ""
    return f"{verb:<8}{where} {cause.kind}: {', '.join(cause.models)}  {first}".rstrip()
