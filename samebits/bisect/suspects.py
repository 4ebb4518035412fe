"""Which commits can have changed what a model computes: those that change code that it ran, or can reach.

This only decides what is tried first. What is found is proven by trying the commit and the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from samebits.base import git
from samebits.bisect.history import Commit
from samebits.questions.changes import source
from samebits.questions.changes.release import Release

Place = Callable[[str], str]
"""Path in the repository -> path in the folder of the code that runs; '' for a file that is no part of it."""


class Ran(NamedTuple):
    """What ran of the package in one of the two ends."""

    folder: Path
    """The folder of its code."""
    entered: Mapping[str, Iterable[int]]
    package: str = "transformers"
    """The package whose modules lie there; '' if all modules there are."""


class Changed(NamedTuple):
    """A definition that a commit changed, and that the model ran in the reference or the candidate."""

    path: str
    name: str
    old: str
    new: str
    """Ids of the file's contents before and after."""


class Suspects:
    """The code of both ends, and the commits between them."""

    def __init__(self, repo: Path, place: Place, ends: Sequence[Ran]) -> None:
        self._repo, self._place = repo, place
        self._ran: dict[str, set[str]] = {}
        self._reached: set[str] = set()
        for end in ends:
            release = Release(end.folder, package=end.package)
            self._reached |= release.closure(end.entered)
            for file, lines in end.entered.items():
                by_line = release.source(file).by_line
                self._ran.setdefault(file, set()).update(by_line[n] for n in lines if n in by_line)
        self._sources: dict[str, source.Source | None] = {"": source.Source({}, (), {})}

    def tiers(self, commits: Sequence[Commit]) -> tuple[list[int], ...]:
        """Return positions of commits by what they change, the most suspected first.

        These are functions that ran; what else stands in their files; what can be reached; anything of the package.
        """
        self._read(commits)
        entered, beside, reached, touching = [], [], [], []
        for position, commit in enumerate(commits):
            changes = [*self._changed(commit)]
            if any(change.name in self._ran.get(change.path, ()) for change in changes):
                entered.append(position)
            if any(self._has_run(change) for change in changes):
                beside.append(position)
            if changes:
                reached.append(position)
            if any(self._place(edit.path) for edit in commit.edits):
                touching.append(position)
        return entered, beside, reached, touching

    def changed(self, commit: Commit) -> list[Changed]:
        """Return the definitions that a commit changed and that ran, functions first."""
        self._read([commit])
        changes = [change for change in self._changed(commit) if self._has_run(change)]
        functions = [c for c in changes if c.name in self._ran.get(c.path, ())]
        return [*functions, *(c for c in changes if c not in functions)]

    def _has_run(self, change: Changed) -> bool:
        """Return True for a function that ran, and for any other definition of a file of which something ran."""
        ran = self._ran.get(change.path)
        if ran is None:
            return False
        read = (self._sources.get(change.old), self._sources.get(change.new))
        kinds = {
            s.definitions[change.name].kind for s in read if s and change.name in s.definitions
        }
        return change.name in ran or kinds != {"function"}

    def _changed(self, commit: Commit) -> Iterator[Changed]:
        for edit in commit.edits:
            path = self._place(edit.path)
            if path not in self._reached:
                continue
            # only files of which something ran are read: to read all takes half a minute
            old, new = self._sources.get(edit.old), self._sources.get(edit.new)
            if old is None or new is None:
                yield Changed(path, "", edit.old, edit.new)
                continue
            for name in {**old.definitions, **new.definitions}:
                before, after = old.definitions.get(name), new.definitions.get(name)
                if before is None or after is None or before.digest != after.digest:
                    yield Changed(path, name, edit.old, edit.new)
            if old.imports != new.imports:
                yield Changed(path, "", edit.old, edit.new)

    def _read(self, commits: Iterable[Commit]) -> None:
        """Read the definitions of the files that commits changed, and of which something ran."""
        wanted = {
            id: edit.path
            for commit in commits
            for edit in commit.edits
            if self._place(edit.path) in self._ran
            for id in (edit.old, edit.new)
            if id not in self._sources
        }
        for id, text in git.blobs(self._repo, wanted):
            try:
                self._sources[id] = source.read(text, wanted[id])
            except (SyntaxError, ValueError):
                self._sources[id] = None
