"""Which files of a reports folder may a report replace? None that its user put there.

A page of ours is known by its first lines, so that neither a lost report.json nor another end of line
makes it foreign. Locks and capsules are ours in a folder whose report.json or report.md is.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from samebits.base.errors import SamebitsError, shown
from samebits.text.names import PAGES, capsule_path, page_path

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from samebits.matrix.plan import Plan

REPORT, DATA, AROUND = "report.md", "report.json", "around-the-model.md"
_TITLE = "# samebits: "
_PART_OF = "Part of the [report]("
_FIRST_LINES = 4096
"""Bytes in which the first lines of a page stand."""
_MOST_NAMED = 5


class ReportsError(SamebitsError):
    """A report would replace a file of its user; nothing was written."""

    def __init__(self, folder: Path, names: list[str]) -> None:
        named = ", ".join(shown(name) for name in names[:_MOST_NAMED])
        more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
        it, they = ("it", "its name") if len(names) == 1 else ("them", "their names")
        super().__init__(
            f"{shown(str(folder))} holds {named}{more}, which samebits did not write: the report "
            f"needs {they}.\nMove {it}, or name another folder with --reports."
        )


def check(folder: Path, plan: Plan) -> None:
    """See that no file of the user has a name that the report of a plan may need.

    Raises:
        ReportsError: one has.

    """
    cells = {(cell.model, cell.stack) for cell in plan.cells}
    names = [REPORT, DATA, AROUND]
    names += [f"locks/{stack}.txt" for stack in plan.stacks]
    names += [page_path(model) for model in plan.models]
    for model, stack in sorted(cells):
        of = folder / capsule_path(model, stack)
        names += [path.relative_to(folder).as_posix() for path in of.rglob("*") if path.is_file()]
    refuse(folder, names)


def refuse(folder: Path, names: Iterable[str]) -> None:
    """See that none of these files is there by the user's hand.

    Raises:
        ReportsError: one is.

    """
    is_ours = bool(earlier(folder)) or _begins(folder / REPORT, _TITLE)
    foreign = [name for name in sorted(names) if not _may_go(folder / name, name, is_ours)]
    if foreign:
        raise ReportsError(folder, foreign)


def earlier(folder: Path) -> dict[str, str]:
    """Return the files of the report of before, with their digests; none if it cannot be read."""
    try:
        read = json.loads((folder / DATA).read_bytes())
        files = read["files"] if {"samebits", "schema_version"} <= read.keys() else {}
        return {name: str(digest) for name, digest in files.items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def _may_go(path: Path, name: str, is_ours: bool) -> bool:
    """Return True if a file is not there, or is one of ours; ``is_ours`` says it of its folder."""
    if not path.exists():
        return True
    if name == REPORT:
        return _begins(path, _TITLE)
    if name == AROUND or name.startswith(f"{PAGES}/"):
        return _begins(path, _PART_OF)
    return is_ours


def _begins(path: Path, mark: str) -> bool:
    """Return True if one of the first lines of a file begins with ``mark``."""
    try:
        with path.open("rb") as file:
            lines = file.read(_FIRST_LINES).decode("utf-8", "replace").splitlines()
    except OSError:
        return False
    return any(line.startswith(mark) for line in lines[:5])
