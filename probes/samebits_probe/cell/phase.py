"""A phase of a cell: one module of samebits_probe/cell/phases/ observes one or more signals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from samebits_probe.cell.session import Session

InFork = Callable[[Path, str], Any]
"""What runs in a child: from a folder for its files and an argument to the observations."""


class Phase(NamedTuple):
    """One step of a run after the load."""

    name: str
    """Name in the capture's seconds; the first word of what progress and failures say."""
    order: int
    """Phases run in ascending order: first those that verdicts depend on."""
    observe: Callable[[Session], None]
    untouched: Callable[[Session], InFork | None] | None = None
    """Returns what is to run in a child that is forked before the first prompt, and so has the
    model as it was loaded. ``observe`` then calls :meth:`Session.run_in_fork`."""
    without_fork: Callable[[Session, str], None] | None = None
    """Is called with the reason where this process cannot fork; None: the phase is skipped."""
    in_both_runs: bool = False
    """True if ``untouched`` is asked in run b, too."""
    needs_grad: bool = False
    """True if the phase controls gradients itself."""
    without_model: bool = False
    """True if it needs the files of a tokenizer or processor alone."""
    without_load: bool = False
    """True if it reads these files by itself, also where the model did not load."""
