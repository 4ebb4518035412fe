"""Functions of transformers that a process and its children entered, and the parts of them that ran.

samebits compares the sources of two releases and says which changed functions no check ran. A function is
named by its file and its first line, decorators included, and a part of it by its own first line
(``samebits_wire.regions``). What the import of transformers entered does not count. Of a user's package, of
which the run has one commit, the same is recorded (``samebits_probe.process.marks``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from samebits_probe.process.marks import MARKS

Table = dict[str, list[int]]
"""File, from the folder of transformers on -> first lines of functions and of their parts, in order."""


class Calls:
    """What this process and its children ran of transformers."""

    def __init__(self) -> None:
        self._is_wanted = False
        self._of_children: set[tuple[str, int]] = set()
        self._left_out: set[str] = set()

    def begin(self) -> None:
        """Say in :meth:`table` what runs from now on, until this process ends."""
        MARKS.clear()
        self._left_out.clear()
        self._is_wanted = True

    def leave_out(self, folder: str) -> None:
        """Leave out what runs from now on in a folder such as ``models/llama/``, unless some of it ran before.

        A question may make a model of its own, which is not the model that is asked.
        """
        if not any(file.startswith(folder) for file, _ in self._ran()):
            self._left_out.add(folder)

    def add_table(self, table: Mapping[str, Iterable[int]]) -> None:
        """Add what a child recorded."""
        self._of_children.update((file, line) for file, lines in table.items() for line in lines)

    def table(self) -> Table:
        """Return what was recorded so far; empty if nothing is."""
        if not self._is_wanted:
            return {}
        table: Table = {}
        left_out = tuple(self._left_out)
        for file, line in sorted(self._ran()):
            if not file.startswith(left_out):
                table.setdefault(file, []).append(line)
        return table

    def _ran(self) -> set[tuple[str, int]]:
        return {*MARKS.ran(), *self._of_children}


CALLS = Calls()
"""Those of this process."""


def are_wanted(job: Mapping[str, Any]) -> bool:
    """Return True if the functions that a job enters are to be recorded.

    Run b adds none, and what explains a difference checks nothing new: only cells and questions, whose
    kinds have a dot, check something.
    """
    kind = job["kind"]
    return (kind == "cell" or "." in kind) and job.get("run") != "b"
