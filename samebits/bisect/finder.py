"""Finds the commits between two ends, tries them, and says what each change is."""

from __future__ import annotations

import ast
import difflib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from samebits.bisect.history import Commit, End, History
from samebits.bisect.records import Bisection, Culprit, Hunk, Untried
from samebits.bisect.search import Change, State, search
from samebits.bisect.suspects import Changed, Place, Suspects
from samebits.bisect.trials import Trials
from samebits.records.report import Report
from samebits.reports.plain import on_one_line

_MAX_LINES = 30
"""Lines of a hunk that are shown."""
_MAX_HUNKS = 3


class Request(NamedTuple):
    """What is searched."""

    model: str
    first: End
    last: End
    place: Place
    """Which files of the repository are the package's."""
    width: int
    """Commits that are tried at the same time."""
    explains: bool = True
    """Whether the verdict and the cause of each change are asked for."""
    package: str = "transformers"
    """What the commits are of."""


class Finder:
    """One search on one line of commits."""

    def __init__(
        self, history: History, trials: Trials, request: Request, say: Callable[[str], None]
    ) -> None:
        self._history, self._trials, self._request, self._say = history, trials, request, say
        line = history.line(request.first.sha, request.last.sha)
        self.notes = [line.note] if line.note else []
        self._commits = line.commits
        self._same_code = _same_code(line.commits, request.place)
        self._suspects: Suspects | None = None

    async def find(self) -> Bisection:
        """Search, and explain each change."""
        start, last = time.monotonic(), len(self._commits) - 1
        states = await self._ask([0, last])
        await self._compare_releases()
        suspected: tuple[list[int], ...] = ()
        if failure := self._failure(states, last):
            is_same = failure == self._same
            return self._result((), 0, start, failure).model_copy(update={"same": is_same})
        self._suspects = self._read_suspects(last)
        suspected = self._suspects.tiers(self._commits)
        self._say(
            f"{last:,} commits, {len(suspected[-1]):,} of them change the package, {len(suspected[0]):,} code that the model ran"
        )
        result = await search(last, suspected, self._ask, self._request.width)
        culprits = [await self._culprit(change) for change in result.changes]
        if result.open:
            ends = (
                self._commits[p].sha[:10] for p in (result.open[0].before, result.open[-1].after)
            )
            self.notes.append(
                "more changes were not searched: repeat with --from {} --to {}".format(*ends)
            )
        return self._result(tuple(culprits), len(suspected[0]), start)

    async def _ask(self, positions: Sequence[int]) -> Mapping[int, State | None]:
        """Return the states of positions; those without changed code have that of the commit before."""
        shas = {p: self._commits[self._same_code[p]].sha for p in positions}
        ends = (self._commits[0].sha, self._commits[self._same_code[len(self._commits) - 1]].sha)
        new = [sha for sha in dict.fromkeys(shas.values()) if sha not in self._trials.tried]
        if new:
            for sha in new:
                self._say(f"trying {sha[:10]} {self._title(sha)}".rstrip())
            await self._trials.run(
                ends[0], [*(e for e in self._extra() if not self._trials.tried), *new]
            )
        states: dict[int, State | None] = {}
        for position, sha in shas.items():
            tried = self._trials.tried[sha]
            known = {self._trials.tried[end].state for end in ends if end in self._trials.tried}
            # a commit that fails in its own way says nothing of the bits
            states[position] = tried.state if not tried.fails or tried.state in known else None
            if states[position] is None:
                self._say(f"skipped {sha[:10]}: {' '.join(tried.reason.split())[:200]}")
        return states

    def _extra(self) -> list[str]:
        """Return the releases whose commits stand for them, which are tried as well."""
        ends = (self._request.first, self._request.last)
        return [end.release for end in ends if end.release]

    async def _compare_releases(self) -> None:
        """Note a release that does not do what its commit does."""
        for end, position in (
            (self._request.first, 0),
            (self._request.last, len(self._commits) - 1),
        ):
            commit = self._trials.tried[self._commits[self._same_code[position]].sha]
            release = self._trials.tried.get(end.release)
            if release is not None and release.state != commit.state:
                self.notes.append(
                    f"transformers {end.release} itself does something else than {end.sha[:10]}, {end.how}: a part of "
                    "the change is not on this line of commits. Name commits to search elsewhere."
                )

    def _failure(self, states: Mapping[int, State | None], last: int) -> str:
        for position, named in ((0, self._request.first.named), (last, self._request.last.named)):
            if states[position] is None:
                tried = self._trials.tried[self._commits[self._same_code[position]].sha]
                return f"{named} cannot be tried: {tried.reason}"
        if states[0] != states[last]:
            return ""
        if reason := self._trials.tried[self._commits[0].sha].reason:
            return f"{self._same}: {reason}"
        if not any(ran.entered for ran in self._trials.ran.values()):
            return (
                f"{self._same}, and the model called no function of {self._request.package}: name the module that "
                "registers it (--import), or its class (--class)"
            )
        return self._same

    @property
    def _same(self) -> str:
        return f"{self._request.first.named} and {self._request.last.named} do the same"

    def _read_suspects(self, last: int) -> Suspects:
        ends = [self._commits[self._same_code[p]].sha for p in (0, last)]
        ran = [self._trials.ran[sha] for sha in ends if sha in self._trials.ran]
        return Suspects(self._history.repo, self._request.place, ran)

    async def _culprit(self, change: Change) -> Culprit:
        commit, before = self._commits[change.after], self._commits[change.before]
        culprit = Culprit(
            sha=commit.sha,
            date=commit.date,
            title=commit.title,
            pull=commit.pull,
            before=before.sha,
            skipped=tuple(self._untried(change)),
        )
        canonical = [self._commits[self._same_code[p]].sha for p in (change.before, change.after)]
        if not self._request.explains:
            return culprit
        report = await self._trials.explained(self._commits[0].sha, *canonical)
        assert self._suspects is not None
        changed = [
            (self._commits[p], definition)
            for p in (*change.skipped, change.after)
            for definition in self._suspects.changed(self._commits[p])
        ]
        explained = _explained(report)
        if (tried := self._trials.tried[canonical[0]]).fails and not self._trials.tried[
            canonical[1]
        ].fails:
            explained |= {
                "verdict": "no failure any more",
                "headline": f"before it, {tried.reason}",
            }
        return culprit.model_copy(update=explained | {"hunks": self._hunks(changed, report)})

    def _untried(self, change: Change) -> Iterator[Untried]:
        """Yield the commits between both sides that change the package."""
        for position in change.skipped:
            if self._same_code[position] == position:
                commit = self._commits[position]
                reason = self._trials.tried[commit.sha].reason
                yield Untried(sha=commit.sha, title=commit.title, reason=on_one_line(reason))

    def _hunks(self, changed: Sequence[tuple[Commit, Changed]], report: Report) -> tuple[Hunk, ...]:
        """Return the changed definitions that ran, those that the cause names first."""
        named = _named(report)
        ordered = sorted(changed, key=lambda entry: not _is_named(entry[1], named))
        hunks = (
            Hunk(commit=commit.sha, file=change.path, name=change.name, diff=text)
            for commit, change in ordered
            if change.name and (text := self._diff(change))
        )
        return tuple(hunk for hunk, _ in zip(hunks, range(_MAX_HUNKS), strict=False))

    def _diff(self, change: Changed) -> str:
        old, new = (
            list(_lines_of(self._history.text(blob).decode("utf-8", "replace"), change.name))
            for blob in (change.old, change.new)
        )
        lines = [*difflib.unified_diff(old, new, lineterm="", n=2)][2:]
        cut = [f"… {len(lines) - _MAX_LINES} more lines"] if len(lines) > _MAX_LINES else []
        return "\n".join([*lines[:_MAX_LINES], *cut])

    def _title(self, sha: str) -> str:
        return next((c.title for c in self._commits if c.sha == sha), "")[:80]

    def _result(
        self, culprits: tuple[Culprit, ...], n_suspected: int, start: float, failure: str = ""
    ) -> Bisection:
        first, last = self._request.first, self._request.last
        end = self._commits[self._same_code[-1]].sha
        for named in (first, last):
            if named.how:
                self.notes.append(f"{named.named} is {named.sha[:10]}: {named.how}")
        return Bisection(
            model=self._request.model,
            first=first.named,
            last=last.named,
            commits=(self._commits[0].sha, self._commits[-1].sha),
            culprits=culprits,
            n_commits=len(self._commits) - 1,
            n_suspected=n_suspected,
            n_tried=len(self._trials.tried),
            seconds=round(time.monotonic() - start, 1),
            environment=self._trials.environments.get(end, ""),
            notes=tuple(self.notes),
            failure=failure,
        )


def _same_code(commits: Sequence[Commit], place: Place) -> list[int]:
    """Return for each position the last one, up to it, whose commit changed the package."""
    places: list[int] = []
    for position, commit in enumerate(commits):
        touches = any(place(edit.path) for edit in commit.edits)
        places.append(position if touches or not places else places[-1])
    return places


def _explained(report: Report) -> dict[str, str]:
    """Return what the report says of the worst cell: verdict, where it begins, and why."""
    cells = [
        cell for row in report.rows for cell in row.cells if cell.reference not in {None, cell.cell}
    ]
    cells = cells or [cell for row in report.rows for cell in row.cells]
    differing = [cell for cell in cells if cell.judged not in ("identical", "reference")] or cells
    cell = differing[0]
    cause = next((c.cause.headline for c in differing if c.cause is not None), "")
    return {"verdict": str(cell.judged), "headline": cell.headline, "cause": cause}


def _named(report: Report) -> set[str]:
    """Return the functions that causes name."""
    names: set[str] = set()
    for row in report.rows:
        for cell in row.cells:
            if (cause := cell.cause) is not None:
                sides = [side for side in (cause.candidate, cause.reference) if side is not None]
                names |= {side.function for side in sides} | {diff.function for diff in cause.diffs}
    return {name.rpartition(":")[2].strip() for name in names if name}


def _is_named(change: Changed, named: set[str]) -> bool:
    short = change.name.rpartition(".")[2]
    return any(change.name in name or name.rpartition(".")[2] == short for name in named)


def _lines_of(text: str, name: str) -> Iterator[str]:
    """Yield the lines of a definition, by its qualified name; none if there is no such one."""
    try:
        body: list[ast.stmt] = ast.parse(text).body
    except (SyntaxError, ValueError):
        return
    node: ast.AST | None = None
    for part in name.split("."):
        node = next((n for n in body if _binds(n, part)), None)
        body = getattr(node, "body", [])
    if isinstance(node, ast.stmt):
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(d.lineno for d in decorators)])
        yield from text.splitlines()[first - 1 : node.end_lineno]


def _binds(node: ast.stmt, name: str) -> bool:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return node.name == name
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)
