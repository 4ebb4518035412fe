"""What ``samebits bisect`` found, as its JSON has it."""

from __future__ import annotations

from typing import Literal

from samebits.records.record import Record


class Hunk(Record):
    """A definition that a commit changed and the model ran."""

    commit: str
    file: str
    name: str
    diff: str


class Untried(Record):
    """A commit that could not be tried."""

    sha: str
    title: str
    reason: str


class Culprit(Record):
    """A change of what the model computes, and the commit that made it."""

    sha: str
    date: str
    title: str
    pull: str = ""
    """Number of the pull request; '' if the title names none."""
    before: str
    """The commit before it, which does what the reference does."""
    skipped: tuple[Untried, ...] = ()
    """Commits in between, the oldest first: the change may be in one of them."""
    verdict: str = ""
    """Of the commit, compared with the one before it."""
    headline: str = ""
    cause: str = ""
    hunks: tuple[Hunk, ...] = ()

    @property
    def is_proven(self) -> bool:
        """True if the commit and its parent were both tried."""
        return not self.skipped


class Bisection(Record):
    """The commits at which a model's state changes between two ends."""

    format: Literal["samebits-bisection"] = "samebits-bisection"
    format_version: Literal[2] = 2
    model: str
    first: str
    """The reference as it was named."""
    last: str
    commits: tuple[str, str]
    """The commits that stand for both."""
    culprits: tuple[Culprit, ...]
    n_commits: int
    """Commits between them."""
    n_suspected: int
    """Those that change code that the model ran."""
    n_tried: int
    seconds: float
    environment: str = ""
    """The packages in which the candidate's commit ran."""
    notes: tuple[str, ...] = ()
    same: bool = False
    """True if both ends do the same."""
    failure: str = ""
    """Why nothing was searched; '' if it was."""
