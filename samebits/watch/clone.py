"""What the clone that ran adds to the text of a cause: commits since last night, a search, a script."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from samebits.base import git
from samebits.base.errors import SamebitsError
from samebits.bisect import command as bisect
from samebits.bisect.history import History, HistoryError
from samebits.bisect.records import Bisection
from samebits.matrix import load
from samebits.stacks.source import FOLDER, PACKAGE
from samebits.watch.causes import Group, Night
from samebits.watch.records import KnownCause
from samebits.watch.text import Beside

_MAX_COMMITS = 20
_SHORT = 10


class Clone(NamedTuple):
    """A clone of transformers with the commit of a night."""

    repo: Path
    since: str
    """The last night's commit, or the release."""
    night: Night
    matrix: Path
    """The matrix file that ran."""
    search: Callable[..., Awaitable[Bisection]] | None
    """Searches the commit of a cause; None: nothing is searched."""

    async def beside(self, cause: KnownCause, group: Group) -> Beside:
        """Return the commits that touch what a cause names, and a script; of a new cause the commits found."""
        beside = self._commits(set(_files(group)))
        full = git.words(
            self.repo, "rev-parse", "--verify", "--quiet", f"{self.night.commit}^{{commit}}"
        )
        if not full or not self.matrix.exists():
            return beside
        model = group.models[0]
        beside = beside._replace(script=_script(self.matrix, model, self.night.reference, full[0]))
        if self.search is None or cause.number or cause.kind == "absent":
            return beside
        return beside._replace(suspects=await self._suspects(model, full[0]))

    def _commits(self, files: set[str]) -> Beside:
        """Return the commits since last night that change one of these files of transformers."""
        history = History(self.repo)
        try:
            line = history.line(
                history.end(self.since).sha, history.end(self.night.commit, releases=False).sha
            )
        except HistoryError:
            return Beside()
        inside = {
            f"{FOLDER}/{f.removeprefix(f'{PACKAGE}/')}" for f in files if f.startswith(PACKAGE)
        }
        touching = [c for c in line.commits[1:] if inside & {edit.path for edit in c.edits}]
        commits = [f"{c.sha[:_SHORT]} {c.date} {c.title}" for c in touching[-_MAX_COMMITS:]]
        return Beside(tuple(commits), len(line.commits) - 1, self.since[:_SHORT])

    async def _suspects(self, model: str, last: str) -> tuple[str, ...]:
        """Return the commits that a bisection between last night and this names for one model."""
        assert self.search is not None
        whole = load.load(self.matrix)
        models = tuple(each for each in whole.models if each.name == model)
        reduced = whole.model_copy(update={"models": models, "expected": ()})
        options = bisect.Options(model=model, first=self.since, last=last, repo=self.repo)
        try:
            bisection = await self.search(reduced, options)
        except SamebitsError as error:
            return (f"not found: {error}",)
        unproven = " (or one before it, which could not be tried)"
        commits = [
            f"{c.sha[:_SHORT]} {c.date} {c.title}{'' if c.is_proven else unproven}"
            for c in bisection.culprits
        ]
        return (
            *(commits or (bisection.failure,)),
            f"tried {bisection.n_tried} of {bisection.n_commits} commits",
        )


def _files(group: Group) -> Iterator[str]:
    """Yield the files of the repository that a cause names."""
    for cell in group.cells:
        for frame in cell.failure.frames if cell.failure else ():
            yield frame.file
        for cause in filter(None, (cell.cause, cell.cause.beyond if cell.cause else None)):
            sides = [side.source for side in (cause.candidate, cause.reference) if side]
            changed = [diff.candidate or diff.reference for diff in cause.diffs]
            yield from (place.rpartition(":")[0] for place in (*sides, *changed))


def _script(path: Path, model: str, release: str, commit: str) -> str:
    """Return a matrix file with one model, and how to run it: it needs no file of this project."""
    content: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    settings: dict[str, Any] = {
        k: content[k] for k in ("torch", "python", "defaults") if k in content
    }
    if model not in content.get("models", {}):
        return ""
    main = {"id": "main", "transformers": f"./transformers@{commit}"}
    written = {"version": 1, "environments": [release, main], **settings}
    written["models"] = {model: content["models"][model]}
    text = yaml.safe_dump(written, sort_keys=False, width=100, default_flow_style=None)
    address = f"https://github.com/huggingface/{PACKAGE}"
    commands = (f"git clone {address}", "cat > watch.yaml <<'EOF'", text.rstrip(), "EOF")
    return "\n".join((*commands, "samebits matrix --matrix watch.yaml --quick --causes"))
