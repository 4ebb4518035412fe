"""The command ``samebits watch``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

from pydantic import ValidationError

from samebits.base.errors import SamebitsError, shown
from samebits.base.options import Option
from samebits.base.redaction import Redaction
from samebits.bisect import command as bisect
from samebits.bisect.history import History, HistoryError
from samebits.diagnose.exit_code import PASS
from samebits.records.record import Record
from samebits.records.report import Report
from samebits.reports import again
from samebits.watch import text
from samebits.watch.causes import Night, night_of
from samebits.watch.clone import Clone
from samebits.watch.nights import Changes, changes
from samebits.watch.records import KnownCause, WatchFile
from samebits.watch.text import Beside
from samebits_wire.atomic import replace

HELP = """\
Draft an issue for each new cause by which transformers' main differs from a release, and close those that are gone.

REPORT.json is that of a run whose last environment is a checkout of main. Models that differ by one cause are in one
issue. What only rounds is none, nor is a model that could not be run: all of those are in one issue about the watch.
What is open is read from the issues themselves, with --known, or from --state. Nothing is sent: a workflow, or you,
hand the files of --output to gh.

Example:
  samebits matrix --matrix watch.yaml --quick --causes --reports reports/watch
  samebits watch reports/watch/report.json --repo ../transformers --output issues

Files: open-ID.md and edit-NUMBER.md with a title, a blank line and a text, close-NUMBER.md with a comment. The exit
code is 0 whatever the report says; 2, a mistake on the command line.
"""


class WatchError(SamebitsError):
    """A file that the watch needs cannot be read."""


class Options(Record):
    """The options of ``samebits watch``."""

    report: Annotated[Path, Option("REPORT.json", "", type=Path)]
    """The report of the night. If it does not exist, the night said nothing, and the watch says so."""
    state: Annotated[Path, Option("FILE", type=Path)] = Path("watch.json")
    """What is open, and last night's commit: read, and written again (default: watch.json)."""
    known: Annotated[Path | None, Option("FILE", type=Path)] = None
    """The issues that exist, which then say what is open: what `gh issue list --state all --json
    number,state,stateReason,body` prints."""
    output: Annotated[Path, Option("DIR", type=Path)] = Path("issues")
    """The folder for the texts; those of an earlier night are removed (default: issues)."""
    repo: Annotated[Path | None, Option("DIR", type=Path)] = None
    """The clone of transformers that ran: commits since last night are listed."""
    bisect: Annotated[bool, Option()] = False
    """Search the commit of each new cause, in the clone; one model is run for each."""
    format: Annotated[Literal["text", "json"], Option("FORMAT")] = "text"
    """text, or json: the state."""


class Result(Record):
    """What the command prints."""

    summary: tuple[str, ...]
    """One line for each cause."""
    state: WatchFile


async def run(options: Options, environ: Mapping[str, str], say: Callable[[str], None]) -> Result:
    """Write the texts and the state; return what changed.

    Raises:
        ReportFileError: the report cannot be read.
        WatchError: the state or the issues cannot be read, or there is nothing to search in.
        HistoryError: the folder of --repo is no clone, and --bisect searches it.

    """
    if options.bisect:
        _require_clone(options.repo)
    report = again.read(options.report).report if options.report.exists() else None
    night = (
        night_of(report) if report else Night(blocked=(("all models", "the run left no report"),))
    )
    before = _before(options)
    changed = changes(before, night)
    redacted = Redaction(environ)
    clone = _clone(options, before, night, report, environ, say)
    files: dict[str, str] = {}
    for verb, causes in (("open", changed.opens), ("edit", changed.edits)):
        for cause, group in causes:
            beside = await clone.beside(cause, group) if clone and group else Beside()
            body = text.text_of(cause, group, night, report, beside)
            name = cause.id if verb == "open" or cause.number is None else cause.number
            files[f"{verb}-{name}.md"] = f"{text.title(cause, group)}\n\n{body}"
    for cause in changed.closes:
        files[f"close-{cause.number or cause.id}.md"] = text.closing(cause, night, before)
    _write(options.output, {name: redacted.text(content) for name, content in files.items()})
    state = redacted.record(changed.after)
    replace(options.state, state.model_dump_json(indent=1) + "\n")
    return Result(summary=tuple(_summary(night, changed)), state=state)


def _before(options: Options) -> WatchFile:
    """Return what was open: as the issues say if they are given, else as the file says."""
    try:
        text = options.state.read_bytes() if options.state.exists() else b"{}"
        state = WatchFile.model_validate_json(text)
    except (OSError, ValidationError) as error:
        msg = f"{shown(str(options.state))} is no state of the watch of this version: remove it"
        raise WatchError(msg) from error
    if options.known is None:
        return state
    return state.model_copy(update={"causes": tuple(_of_issues(options.known))})


def _of_issues(path: Path) -> Iterator[KnownCause]:
    """Yield the causes that issues are about: open ones, and those that somebody closed as not planned."""
    try:
        listed = json.loads(path.read_bytes())
        for item in listed:
            cause = text.marked(item["body"] or "")
            is_open = item["state"].upper() == "OPEN"
            decided = not is_open and (item["stateReason"] or "").upper() == "NOT_PLANNED"
            if cause is not None and (is_open or decided):
                yield cause.model_copy(update={"number": int(item["number"]), "decided": decided})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise WatchError(f"{shown(str(path))} does not hold issues, as gh prints them") from error


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the texts; those of an earlier night would be sent twice."""
    folder.mkdir(parents=True, exist_ok=True)
    for verb in ("open", "edit", "close"):
        for path in folder.glob(f"{verb}-*.md"):
            path.unlink()
    for name, content in files.items():
        replace(folder / name, content)


def _require_clone(repo: Path | None) -> None:
    if repo is None:
        raise WatchError("--bisect searches a clone of transformers: name its folder, --repo DIR")
    History(repo)


def _clone(
    options: Options,
    before: WatchFile,
    night: Night,
    report: Report | None,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> Clone | None:
    """Return the clone that ran; None if none is given, or the night has no report of it."""
    if options.repo is None or report is None:
        return None
    if not night.commit:
        say("the last environment of the report is no checkout of main: no commits are listed")
        return None
    try:
        _require_clone(options.repo)
    except HistoryError as error:
        # a checkout that failed is no reason to be silent about the night
        say(f"{error}; no commits are listed")
        return None
    search = partial(bisect.bisected, environ=environ, say=say, explains=False)
    return Clone(
        repo=options.repo,
        since=before.commit or night.reference,
        night=night,
        matrix=Path(report.matrix_path or report.matrix),
        search=search if options.bisect else None,
    )


def _summary(night: Night, changed: Changes) -> Iterator[str]:
    where = f"main {night.commit or '?'} against {night.reference or '?'}"
    looked = len(night.models.difference(dict(night.blocked)))
    yield f"{where}: {looked} of {len(night.models)} models looked at"
    yield from (text.summary(cause, "open") for cause, _ in changed.opens)
    yield from (text.summary(cause, "edit") for cause, _ in changed.edits)
    yield from (text.summary(cause, "close") for cause in changed.closes)
    touched = {cause.id for cause, _ in (*changed.opens, *changed.edits)}
    yield from (
        text.summary(cause, "quiet" if cause.decided else "still")
        for cause in changed.after.causes
        if cause.id not in touched
    )


def lines(result: Result) -> Iterable[str]:
    """Return what the terminal shows."""
    return result.summary


def exit_code(_result: Result) -> int:
    """Return how the command ends."""
    return PASS
