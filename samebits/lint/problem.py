"""What a rule reports: a problem at a place, and the edits that repair it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from samebits.base.finding_pages import FindingPage, finding_page

if TYPE_CHECKING:
    from samebits.lint.project import Project
    from samebits.lint.releases import Releases

Level = Literal["error", "warning", "note"]


class Edit(NamedTuple):
    """Replace the characters from ``start`` to ``end`` of a file's text by ``text``."""

    start: int
    end: int
    text: str


class Problem(NamedTuple):
    """One place in the code that means something else in some release."""

    code: str
    """``SB101``, the id of a page in docs/findings/."""
    path: Path
    line: int
    column: int
    """Both from 1; the column counts characters."""
    end_line: int
    end_column: int
    message: str
    """What breaks."""
    releases: Releases
    """In which releases."""
    remedy: str
    """What to write instead."""
    edits: tuple[Edit, ...] = ()
    """Edits of this file that repair it and keep the meaning that 4.48 gives it; empty if none."""


class LintRule(NamedTuple):
    """One finding that code alone shows."""

    code: str
    level: Level
    """error: an exception. warning: wrong numbers, or another type. note: rounding."""
    check: Callable[[Project], Iterator[Problem]]

    def problems(self, project: Project) -> Iterator[Problem]:
        """Yield the places of its finding."""
        for problem in self.check(project):
            yield problem._replace(code=self.code)

    @property
    def page(self) -> FindingPage:
        """What docs/findings/ says of it."""
        return finding_page(self.code)
