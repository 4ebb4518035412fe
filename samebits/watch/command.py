"""The command ``samebits watch``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import ValidationError

from samebits.base import git
from samebits.base.errors import SamebitsError, shown
from samebits.base.options import Option
from samebits.base.redaction import Redaction
from samebits.bisect import command as bisect
from samebits.bisect.history import History, HistoryError
from samebits.diagnose.exit_code import PASS
from samebits.matrix import load
from samebits.records.record import Record
from samebits.reports import again
from samebits.stacks.source import FOLDER, PACKAGE
from samebits.watch import text
from samebits.watch.causes import Night, night_of
from samebits.watch.nights import changes
from samebits.watch.records import KnownCause, WatchFile
from samebits.watch.text import Beside
from samebits_wire.atomic import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from samebits.records.report import Report
    from samebits.watch.causes import Group
    from samebits.watch.nights import Changes

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

_MAX_COMMITS = 20
_SHORT = 10


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
        WatchError: the state or the issues cannot be read.

    """
    report = again.read(options.report).report if options.report.exists() else None
    night = (
        night_of(report) if report else Night(blocked=(("all models", "the run left no report"),))
    )
    before = _before(options)
    changed = changes(before, night)
    redacted = Redaction(environ)
    files: dict[str, str] = {}
    for verb, causes in (("open", changed.opens), ("edit", changed.edits)):
        for cause, group in causes:
            beside = await _beside(cause, group, before, night, report, options, environ, say)
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
        msg = f"{shown(str(path))} does not hold issues, as gh prints them"
        raise WatchError(msg) from error


def _write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the texts; those of an earlier night would be sent twice."""
    folder.mkdir(parents=True, exist_ok=True)
    for verb in ("open", "edit", "close"):
        for path in folder.glob(f"{verb}-*.md"):
            path.unlink()
    for name, content in files.items():
        replace(folder / name, content)


async def _beside(
    cause: KnownCause,
    group: Group | None,
    before: WatchFile,
    night: Night,
    report: Report | None,
    options: Options,
    environ: Mapping[str, str],
    say: Callable[[str], None],
) -> Beside:
    """Return what the clone and the matrix file add to the text of a cause."""
    if group is None or report is None or options.repo is None or not night.commit:
        return Beside()
    repo = options.repo
    since = before.commit or night.reference
    beside = _commits(repo, since, night.commit, set(_files(group)))
    full = git.words(repo, "rev-parse", "--verify", "--quiet", f"{night.commit}^{{commit}}")
    path = Path(report.matrix_path or report.matrix)
    if full and path.exists():
        script = _script(path, group.models[0], night.reference, full[0])
        beside = beside._replace(script=script)
        if options.bisect and not cause.number and cause.kind != "absent":
            asked = bisect.Options(model=group.models[0], first=since, last=full[0], repo=repo)
            suspects = await _suspects(path, asked, environ, say)
            beside = beside._replace(suspects=suspects)
    return beside


def _files(group: Group) -> Iterator[str]:
    """Yield the files of the repository that a cause names."""
    for cell in group.cells:
        for frame in cell.failure.frames if cell.failure else ():
            yield frame.file
        for cause in filter(None, (cell.cause, cell.cause.beyond if cell.cause else None)):
            sides = [side.source for side in (cause.candidate, cause.reference) if side]
            changed = [diff.candidate or diff.reference for diff in cause.diffs]
            yield from (place.rpartition(":")[0] for place in (*sides, *changed))


def _commits(repo: Path, since: str, last: str, files: set[str]) -> Beside:
    """Return the commits since last night that change one of these files of transformers."""
    history = History(repo)
    try:
        line = history.line(history.end(since).sha, history.end(last, releases=False).sha)
    except HistoryError:
        return Beside()
    inside = {f"{FOLDER}/{f.removeprefix(f'{PACKAGE}/')}" for f in files if f.startswith(PACKAGE)}
    touching = [c for c in line.commits[1:] if inside & {edit.path for edit in c.edits}]
    commits = [f"{c.sha[:_SHORT]} {c.date} {c.title}" for c in touching[-_MAX_COMMITS:]]
    return Beside(tuple(commits), len(line.commits) - 1, since[:_SHORT])


async def _suspects(
    matrix: Path, asked: bisect.Options, environ: Mapping[str, str], say: Callable[[str], None]
) -> tuple[str, ...]:
    """Return the commits that a bisection between last night and this names for one model."""
    whole = load.load(matrix)
    models = tuple(model for model in whole.models if model.name == asked.model)
    one = whole.model_copy(update={"models": models, "expected": ()})
    try:
        found = await bisect.bisected(one, asked, environ, say, explains=False)
    except SamebitsError as error:
        return (f"not found: {error}",)
    unproven = " (or one before it, which could not be tried)"
    commits = [
        f"{c.sha[:_SHORT]} {c.date} {c.title}{'' if c.is_proven else unproven}"
        for c in found.culprits
    ]
    return (*(commits or (found.failure,)), f"tried {found.n_tried} of {found.n_commits} commits")


def _script(path: Path, model: str, release: str, commit: str) -> str:
    """Return a matrix file with one model, and how to run it: it needs no file of this project."""
    content: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    kept: dict[str, Any] = {k: content[k] for k in ("torch", "python", "defaults") if k in content}
    if model not in content.get("models", {}):
        return ""
    main = {"id": "main", "transformers": f"./transformers@{commit}"}
    one = {"version": 1, "environments": [release, main], **kept}
    one["models"] = {model: content["models"][model]}
    text = yaml.safe_dump(one, sort_keys=False, width=100, default_flow_style=None)
    address = f"https://github.com/huggingface/{PACKAGE}"
    commands = (f"git clone {address}", "cat > watch.yaml <<'EOF'", text.rstrip(), "EOF")
    return "\n".join((*commands, "samebits matrix --matrix watch.yaml --quick --causes"))


def _summary(night: Night, changed: Changes) -> Iterator[str]:
    where = f"main {night.commit or '?'} against {night.reference or '?'}"
    looked = len(night.models) - len(night.blocked)
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
