"""``samebits bump``: which of transformers, torch, tokenizers and accelerate a pull request moves.

Both versions of each file are read from git, and their pins compared. It runs no model: it says what to
run, and writes the comment about a run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from packaging.version import Version

from samebits.base import git
from samebits.base.errors import SamebitsError, shown
from samebits.base.options import Option
from samebits.check.pins import PACKAGES, SOURCE, Stated, UnreadableError, is_read, stated
from samebits.check.releases import NEWEST
from samebits.diagnose.exit_code import INCOMPLETE, PASS
from samebits.records.record import Record
from samebits.reports import again
from samebits.reports.formats import github
from samebits.text.blocks import bullets, heading, page, table
from samebits.text.markdown import Markdown, code, fill, join
from samebits_wire.atomic import replace

HELP = """\
Read from git which of transformers, torch, tokenizers and accelerate moves between two commits.

Read are requirements, constraints, pyproject.toml, setup.cfg, setup.py (which is not run), uv.lock, poetry.lock, pdm.lock,
pylock.toml, Pipfile, Pipfile.lock and environment.yml, as of both commits. A version follows from an exact pin (==) or a lock; of a
range or an address it is said that none does. No model runs. The exit code is 0 either way.
"""

MARK = "<!-- samebits bump of {} -->"
"""First line of a comment, with the job that writes it."""
AUTHOR = "github-actions[bot]"
"""Who writes by the token of a workflow: a comment of somebody else is never changed, whatever it holds."""
MAX_BYTES = 55_000
"""Bytes of the summary in a comment; GitHub refuses one of more than 65,536 characters."""
_MAX_CHARACTERS = 65_000
BEFORE, AFTER = "before", "after"
MATRIX = "samebits-bump.yaml"

_ONE_JOB = "one-job"
"""Name of a job that has none."""
_RELEASE = re.compile(r"\d+(\.\d+)*")
_UNSAFE = re.compile(r"[^\w./:]+")
"""What cannot stand in a comment of HTML: two dashes, or its end."""
_MENTION = re.compile(r"(?<![\w`])@(?=\w)|(?<!&)#(?=\d)")


class BumpError(SamebitsError):
    """The commits, or a file that is needed, cannot be read."""


class Options(Record):
    """The options of the command."""

    base: Annotated[str, Option("REV")] = "HEAD^"
    """The commit that the pull request starts from, or its branch (default: HEAD^)."""
    head: Annotated[str, Option("REV")] = "HEAD"
    """The newest commit of the pull request (default: HEAD)."""
    matrix: Annotated[Path | None, Option("FILE")] = None
    """A matrix file: a copy beside it, samebits-bump.yaml, gets the environments before and after. Without it,
    what `samebits check --from A --to B` can compare: transformers alone."""
    output: Annotated[Path | None, Option("FILE")] = None
    """Append what to run, in lines NAME=VALUE as $GITHUB_OUTPUT has them (default: print them)."""
    comment: Annotated[Path | None, Option("FILE")] = None
    """Write the comment for the pull request."""
    report: Annotated[Path | None, Option("REPORT.json")] = None
    """The report of the run, for the comment."""
    job: Annotated[str, Option("NAME")] = _ONE_JOB
    """Whose comment it is: jobs of other names write comments of their own."""
    known: Annotated[Path | None, Option("FILE")] = None
    """The comments that exist: what `gh api --paginate --slurp` prints; the id of the one to update is appended
    to the output, as comment."""


class Move(NamedTuple):
    """A package whose version is another one."""

    package: str
    before: str
    after: str
    files: tuple[str, ...]


Sides = tuple[frozenset[Stated], frozenset[Stated]]
"""What a file states before and after."""


class Statements(NamedTuple):
    """What two commits state."""

    moves: tuple[Move, ...] = ()
    problems: tuple[Markdown, ...] = ()
    """What moves and cannot be compared, and what to do."""
    notes: tuple[Markdown, ...] = ()
    pins: Mapping[str, str] = {}
    """Package that does not move -> its version."""


def write_bump(options: Options) -> list[str]:
    """Say what moves; return the lines to print.

    Raises:
        BumpError: the commits, the matrix or the comments cannot be read.
        ReportFileError: the report cannot be read.

    """
    comparison = compare(Path(), options.base, options.head)
    to_run, comparison = _to_run(comparison, options.matrix)
    outputs = {"moved": _moved(comparison), "run": str(bool(to_run)).lower(), **to_run}
    if not to_run:
        outputs["exit-code"] = str(INCOMPLETE if comparison.problems else PASS)
    if options.comment:
        has_run = bool(to_run) and options.known is not None
        replace(options.comment, comment(comparison, options.report, options.job, has_run=has_run))
    if options.known:
        outputs["comment"] = own_comment(options.known, options.job)
    lines = [f"{name}={value}" for name, value in outputs.items()]
    moved = [
        f"{m.package} {m.before} -> {m.after} ({', '.join(m.files)})" for m in comparison.moves
    ]
    summary = [
        *moved,
        *(text.replace("`", "") for text in (*comparison.problems, *comparison.notes)),
    ]
    summary = summary or [f"none of {', '.join(PACKAGES)} moves"]
    if options.output is None:
        return [*summary, *lines]
    with options.output.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    return summary


def compare(folder: Path, base: str, head: str) -> Statements:
    """Return what moves from where ``head`` left ``base``. Raises BumpError."""
    after = _commit(folder, head)
    starts = git.words(folder, "merge-base", _commit(folder, base), after)
    if not starts:
        raise BumpError(f"{shown(base)} and {shown(head)} have no commit in common here: {_FETCH}")
    old, new = (_files(folder, commit) for commit in (starts[0], after))
    contents = dict(git.blobs(folder, [*old.values(), *new.values()]))
    unread: dict[str, Markdown] = {}

    def read(files: Mapping[str, str], path: str) -> frozenset[Stated]:
        if path not in files:
            return frozenset()
        try:
            return stated(path, contents[files[path]])
        except (UnreadableError, KeyError):
            text = "{} cannot be read, so what it moves is not known."
            if old.get(path) != new.get(path):
                unread[path] = fill(text, code(path))
            return frozenset()

    at_head = {path: read(new, path) for path in new}
    changed = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
    changes = {path: (read(old, path), at_head.get(path, frozenset())) for path in changed}
    return judged(changes, at_head, unread.values())


_FETCH = "check out with fetch-depth: 0, so that the history is there"


def _commit(folder: Path, revision: str) -> str:
    if revision.startswith("-"):
        raise BumpError(f"{shown(revision)} is no commit")
    words = git.words(folder, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
    if not words:
        if not git.words(folder, "rev-parse", "--git-dir"):
            msg = f"{folder.absolute()} is in no repository of git, or git is not there: bump reads two commits"
            raise BumpError(msg)
        if not git.words(folder, "rev-parse", "--verify", "--quiet", "HEAD"):
            raise BumpError("this repository has no commit yet: bump reads two of them")
        raise BumpError(f"{shown(revision)} is no commit of this repository: {_FETCH}")
    return words[0]


def _files(folder: Path, commit: str) -> dict[str, str]:
    return {path: blob for path, blob in git.tree(folder, commit, "").items() if is_read(path)}


def judged(
    changes: Mapping[str, Sides],
    at_head: Mapping[str, frozenset[Stated]],
    unread: Iterable[Markdown] = (),
) -> Statements:
    """Return what moves, by what each changed file states before and after, and by all files after."""
    moves: list[Move] = []
    problems, notes, pins = list(unread), list[Markdown](), dict[str, str]()
    for package in PACKAGES:
        moved: dict[tuple[str, str], list[str]] = {}
        unclear: list[Markdown] = []
        for paths, old, new in _pairs(changes, package):
            before, after = _versions(old) - _versions(new), _versions(new) - _versions(old)
            if len(_plain(before)) == len(_plain(after)) == 1:
                moved.setdefault(_ends(before, after), []).extend(paths)
            elif not (old and new):
                notes.append(_appears(package, paths, new))
            elif before or after or _unversioned(old, new):
                unclear.append(_unclear(package, paths, old, new))
        now = _plain(
            _versions(s for side in at_head.values() for s in side if s.package == package)
        )
        if len(moved) == 1:
            ((ends, files),) = moved.items()
            moves.append(Move(package, *ends, tuple(files)))
            notes += _others(package, ends[1], at_head)
        elif moved:
            problems.append(_disagree(package, moved))
        elif unclear:
            problems += unclear
        elif len(now) == 1:
            pins[package] = now.pop()
    return Statements(tuple(moves), tuple(problems), tuple(notes), pins)


def _pairs(
    changes: Mapping[str, Sides], package: str
) -> Iterator[tuple[list[str], set[Stated], set[Stated]]]:
    """Yield what files state of a package before and after; a pin may have gone to another file."""
    apart: tuple[list[str], set[Stated], set[Stated]] = ([], set(), set())
    for path, sides in changes.items():
        old, new = ({s for s in side if s.package == package} for side in sides)
        if old and new:
            yield [path], old, new
        elif old or new:
            apart[0].append(path)
            apart[1].update(old)
            apart[2].update(new)
    if apart[0]:
        yield apart


def _disagree(package: str, moves: Mapping[tuple[str, str], list[str]]) -> Markdown:
    each = (f"{old} → {new} in {', '.join(paths)}" for (old, new), paths in moves.items())
    text = "The files disagree about {}: {}. Let them state one version."
    return fill(text, package, join(each, "; "))


def _versions(side: Iterable[Stated]) -> set[str]:
    return {statement.version for statement in side if statement.version}


def _plain(versions: Iterable[str]) -> set[str]:
    """Return versions without their builds: a lock has torch 2.6.0 and 2.6.0+cpu for two systems."""
    return {version.partition("+")[0] for version in versions}


def _ends(before: set[str], after: set[str]) -> tuple[str, str]:
    """Return both versions, without their builds unless only these differ."""
    sides = (before, after)
    ends = [*map(_plain, sides)]
    first, last = (min(side) for side in (sides if ends[0] == ends[1] else ends))
    return first, last


def _unversioned(old: set[Stated], new: set[Stated]) -> bool:
    """Return True if something moves that has no version: ranges where nothing else is stated, or an address."""
    addresses = [
        {statement.text for statement in side if SOURCE in statement.text} for side in (old, new)
    ]
    return old != new and (not _versions(old) or addresses[0] != addresses[1])


def _appears(package: str, paths: Iterable[str], new: set[Stated]) -> Markdown:
    files = join(map(code, paths))
    if new:
        return fill("{} is new in {}: there is no earlier version to compare with.", package, files)
    return fill("{} is no longer stated in {}.", package, files)


def _unclear(package: str, paths: Iterable[str], old: set[Stated], new: set[Stated]) -> Markdown:
    return fill(
        "{} moves in {} from {} to {}, and from a range or an address no version follows: state one with == or commit "
        "a lock file (uv.lock, poetry.lock, pdm.lock), or run the action with from and to in place of bump.",
        package,
        join(map(code, paths)),
        *(join(sorted(map(_shown, side)), " and ") for side in (old, new)),
    )


def _shown(statement: Stated) -> Markdown:
    if SOURCE in statement.text:
        return Markdown("an address")
    return code(statement.text or "any version")


def _others(
    package: str, version: str, at_head: Mapping[str, frozenset[Stated]]
) -> Iterator[Markdown]:
    for path, side in at_head.items():
        others = _plain(_versions(s for s in side if s.package == package)) - _plain([version])
        if others:
            text = "{} still states {} {}."
            yield fill(text, code(path), package, " and ".join(sorted(others)))


def _to_run(statements: Statements, matrix: Path | None) -> tuple[dict[str, str], Statements]:
    """Return the inputs of the run, {} if there is none, and what else is to be said."""
    problems, moves = list(statements.problems), []
    for move in statements.moves:
        before, after = (version.partition("+")[0] for version in (move.before, move.after))
        if not (_RELEASE.fullmatch(before) and _RELEASE.fullmatch(after)):
            text = "{} moves from {} to {}, and one of them is no release: name a checkout in matrix.yaml."
            problems.append(fill(text, move.package, before, after))
        elif before == after:
            text = "Only the build of {} moves, from {} to {}: samebits takes the build of its index for both."
            problems.append(fill(text, move.package, move.before, move.after))
        elif matrix is None and move.package != "transformers":
            text = (
                "{} is the same on both sides of this run: `samebits check` compares releases of transformers. "
                "To compare {} and {}, write a matrix.yaml (`samebits init MODEL`) and give the action matrix."
            )
            problems.append(fill(text, move.package, before, after))
        else:
            moves.append(move._replace(before=before, after=after))
    notes = list(statements.notes)
    statements = statements._replace(problems=tuple(problems))
    if not moves:
        return {}, statements
    by_package = {move.package: move for move in moves}
    own = by_package.get("transformers")
    if own and Version(own.before) > Version(own.after):
        notes.append(Markdown("transformers goes back: the older release is the reference."))
    if matrix is None:
        ends = sorted((moves[0].before, moves[0].after), key=Version)
        return {"from": ends[0], "to": ends[1]}, statements._replace(notes=tuple(notes))
    if own is None and "transformers" not in statements.pins:
        notes.append(fill("No file pins transformers: both sides have {}, the newest.", NEWEST))
    sides = [_environment(id_, by_package, statements.pins) for id_ in (BEFORE, AFTER)]
    file = with_environments(matrix, sides)
    return {"from": BEFORE, "to": AFTER, "matrix": str(file)}, statements._replace(
        notes=tuple(notes)
    )


def _environment(id_: str, moves: Mapping[str, Move], pins: Mapping[str, str]) -> dict[str, Any]:
    """Return an environment with all that the project pins on one side."""
    of_side = {name: move.before if id_ == BEFORE else move.after for name, move in moves.items()}
    pinned = {name: version.partition("+")[0] for name, version in pins.items()}
    usable = {name: version for name, version in pinned.items() if _RELEASE.fullmatch(version)}
    versions = usable | of_side
    entry: dict[str, Any] = {"id": id_, "transformers": versions.pop("transformers", NEWEST)}
    if torch := versions.pop("torch", ""):
        entry["torch"] = torch
    packages = [f"{name}=={versions[name]}" for name in sorted(versions)]
    return entry | ({"packages": packages} if packages else {})


def with_environments(path: Path, entries: list[dict[str, Any]]) -> Path:
    """Write a copy of a matrix file with further environments beside it; return its path.

    The text stays as it is around them. Raises BumpError.
    """
    try:
        text = path.read_text("utf-8")
        root = yaml.compose(text, yaml.SafeLoader)
        pairs = root.value if isinstance(root, yaml.MappingNode) else []
        listed = next((v for k, v in pairs if k.value == "environments"), None)
        flow = [json.dumps(entry) for entry in entries]
        if listed is None:
            changed = f"{text.rstrip()}\nenvironments: [{', '.join(flow)}]\n"
        elif not isinstance(listed, yaml.SequenceNode) or not listed.value:
            raise BumpError(f"{shown(str(path))}: environments is no list")
        else:
            at = listed.start_mark.index
            indent = " " * listed.start_mark.column
            added = "".join(f"{e}, " for e in flow) if listed.flow_style else ""
            added = added or "".join(f"- {e}\n{indent}" for e in flow)
            at += 1 if listed.flow_style else 0
            changed = text[:at] + added + text[at:]
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise BumpError(f"{shown(str(path))} cannot be read as a matrix file") from error
    file = path.with_name(MATRIX)
    replace(file, changed)
    return file


def _moved(statements: Statements) -> str:
    if statements.moves:
        return "true"
    return "unknown" if statements.problems else "false"


def _mark(job: str) -> str:
    """Return the first line of a job's comment, by which it is found again."""
    return MARK.format(_UNSAFE.sub("-", job).strip("-") or _ONE_JOB)


def comment(statements: Statements, report: Path | None, job: str, *, has_run: bool) -> str:
    """Return the text of the comment; its first line is the mark of the job."""
    names = ", ".join(f"{m.package} {m.before} → {m.after}" for m in statements.moves)
    title = names or ("moved, and not compared" if statements.problems else "no version moves")
    rows = [[m.package, m.before, m.after, join(map(code, m.files))] for m in statements.moves]
    blocks = [
        heading(2, f"samebits: {title}"),
        table(["package", "before", "after", "stated in"], rows),
        bullets([*statements.problems, *statements.notes]),
    ]
    text = page(blocks)
    if report:
        text = Markdown(f"{text}\n\n{github.summary(again.read(report).report, MAX_BYTES)}")
    elif has_run:
        text = page([text, Markdown("The run ended without a report: its log says why.")])
    # nobody is notified, and no issue of another number gets a reference
    quiet = _MENTION.sub(lambda match: f"{match[0]}\u200b", text)
    return f"{_mark(job)}\n{quiet.rstrip()[:_MAX_CHARACTERS]}\n"


def own_comment(path: Path, job: str) -> str:
    """Return the id of the comment of an earlier run of a job; '' if there is none. Raises BumpError."""
    mark = [_mark(job)]
    try:
        pages = json.loads(path.read_bytes())
        listed = [entry for page in pages for entry in (page if isinstance(page, list) else [page])]
        own = [
            entry["id"]
            for entry in listed
            if entry["user"]["login"] == AUTHOR and (entry["body"] or "").splitlines()[:1] == mark
        ]
        return str(int(own[0])) if own else ""
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise BumpError(f"{shown(str(path))} is no list of comments, as gh prints it") from error
