"""What the user sees while cells run: live on a terminal, few plain lines everywhere else."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from samebits.reports.figures import duration, plural
from samebits.spoken import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TextIO

    from samebits.spoken import Spoken
    from samebits.words import CellId

MOST_RUNNING = 6
"""Running cells that are named; of more, only the number is shown."""


class Progress(Protocol):
    """Someone who is told how the run goes."""

    def stack(self, id: str, state: str) -> None:
        """Say what is being done with a stack: ``resolving``, ``building``, ``ready``, ``failed``."""

    def start(self, cell: CellId) -> None:
        """Say that a cell has begun."""

    def done(self, cell: CellId, outcome: str, detail: str = "") -> None:
        """Say how a cell ended: ``complete``, ``absent`` or ``failed``, and why it failed."""

    def note(self, text: str) -> None:
        """Say something else in one line."""

    def close(self) -> None:
        """Say that nothing follows."""


@dataclass
class Tally:
    """What is known so far, and how long it took."""

    total: int
    clock: Callable[[], float]
    started: float = field(init=False)
    first_cell: float | None = None
    stacks: dict[str, str] = field(default_factory=dict)
    running: dict[str, None] = field(default_factory=dict)
    outcomes: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def start(self, cell: str) -> None:
        """Count a cell as running."""
        if self.first_cell is None:
            self.first_cell = self.clock()
        self.running[cell] = None

    def done(self, cell: str, outcome: str) -> None:
        """Count a cell as ended; it need not have been started, as when its stack failed."""
        self.running.pop(cell, None)
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    @property
    def n_done(self) -> int:
        """Cells that ended."""
        return sum(self.outcomes.values())

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.clock() - self.started

    @property
    def remaining(self) -> float | None:
        """Seconds that the rest takes at the pace so far; None before the first cell ended.

        The pace is that of the cells alone, because building stacks says nothing about it.
        """
        if self.first_cell is None or not self.n_done:
            return None
        pace = (self.clock() - self.first_cell) / self.n_done
        return pace * max(self.total - self.n_done, 0)

    def summary(self) -> str:
        """Return ``330 complete, 9 absent, 5 failed``."""
        return ", ".join(f"{n:,} {outcome}" for outcome, n in self.outcomes.items())


class Plain:
    """Whole lines without control codes, for logs and pipes; cells that succeed stay silent."""

    def __init__(
        self, stream: TextIO, total: int, clock: Callable[[], float], spoken: Spoken = NOBODY
    ) -> None:
        self._stream = stream
        self._spoken = spoken
        self._tally = Tally(total, clock)
        self._lock = Lock()
        if total:  # what is asked before the plan is known has none
            self._line(f"samebits: {plural(total, 'cell')} to run")

    def stack(self, id: str, state: str) -> None:
        """Write one line for each new state of a stack."""
        with self._lock:
            if self._tally.stacks.get(id) != state:
                self._tally.stacks[id] = state
                self._line(f"stack {id}: {state}")

    def start(self, cell: CellId) -> None:
        """Write nothing: a log has no use for what is about to be known."""
        with self._lock:
            self._tally.start(str(cell))

    def done(self, cell: CellId, outcome: str, detail: str = "") -> None:
        """Write a line if the cell failed."""
        with self._lock:
            self._tally.done(str(cell), outcome)
            if outcome == "failed":
                self._line(_failure(cell, detail))

    def note(self, text: str) -> None:
        """Write the line."""
        with self._lock:
            self._line(text)

    def close(self) -> None:
        """Write what came of the cells, and how long it took."""
        with self._lock:
            if self._tally.total:
                self._line(_closing(self._tally))

    def _line(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        # A log in the C locale must not end a run for want of a character.
        line = self._spoken.text(text).encode(encoding, "backslashreplace").decode(encoding)
        self._stream.write(f"{line}\n")
        self._stream.flush()


class Terminal:
    """A few lines at the bottom of a terminal that keep themselves up to date."""

    def __init__(
        self, console: Console, total: int, clock: Callable[[], float], spoken: Spoken = NOBODY
    ) -> None:
        self._spoken = spoken
        self._tally = Tally(total, clock)
        self._lock = Lock()
        self._live = Live(
            console=console,
            get_renderable=self.__rich__,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def stack(self, id: str, state: str) -> None:
        """Show the state beside the stack's name."""
        with self._lock:
            self._tally.stacks[id] = state

    def start(self, cell: CellId) -> None:
        """Show the cell among those that run."""
        with self._lock:
            self._tally.start(str(cell))

    def done(self, cell: CellId, outcome: str, detail: str = "") -> None:
        """Count the cell; if it failed, leave a line above."""
        with self._lock:
            self._tally.done(str(cell), outcome)
        if outcome == "failed":
            self.note(_failure(cell, detail))

    def note(self, text: str) -> None:
        """Leave a line above."""
        self._live.console.print(Text(self._spoken.text(text)))

    def close(self) -> None:
        """Take the live lines away and leave one that says what came of the cells."""
        self._live.stop()
        if self._tally.total:
            self.note(_closing(self._tally))

    def __rich__(self) -> Group:
        """Return the live lines as they are now."""
        with self._lock:
            parts = (self._stacks(), self._cells(), self._running())
            return Group(*(part for part in parts if part is not None))

    def _stacks(self) -> Text | None:
        states = [f"{id} {state}" for id, state in self._tally.stacks.items()]
        return self._one_line("stacks   ", ", ".join(states)) if states else None

    def _cells(self) -> Table:
        tally = self._tally
        line = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(tally.total, 1), completed=tally.n_done, width=30)
        line.add_row("cells   ", bar, f"{tally.n_done:,}/{tally.total:,}", _times(tally))
        return line

    def _running(self) -> Text | None:
        cells = list(self._tally.running)
        if not cells:
            return None
        named = ", ".join(cells[:MOST_RUNNING])
        rest = len(cells) - MOST_RUNNING
        return self._one_line("running  ", f"{named} and {rest} more" if rest > 0 else named)

    def _one_line(self, label: str, text: str) -> Text:
        told = f"{label}{self._spoken.text(text)}"
        return Text(told, no_wrap=True, overflow="ellipsis")


def _times(tally: Tally) -> Text:
    remaining = tally.remaining
    left = "" if remaining is None else f", about {duration(remaining)} left"
    failed = tally.outcomes.get("failed", 0)
    counted = f", {failed:,} failed" if failed else ""
    return Text(f"{duration(tally.elapsed)}{left}{counted}", no_wrap=True)


def _failure(cell: CellId, detail: str) -> str:
    return f"failed: {cell}: {detail}" if detail else f"failed: {cell}"


def _closing(tally: Tally) -> str:
    ran = f"{tally.n_done:,} of {plural(tally.total, 'cell')} in {duration(tally.elapsed)}"
    return f"{ran}: {tally.summary()}" if tally.outcomes else ran


def choose(
    total: int,
    stream: TextIO | None = None,
    environment: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    spoken: Spoken = NOBODY,
) -> Progress:
    """Return live progress if ``stream`` (stderr, unless given) is a terminal that a person sees.

    A CI log claims to be a terminal now and then, and a dumb terminal cannot move its cursor.
    """
    stream = sys.stderr if stream is None else stream
    environment = os.environ if environment is None else environment
    if not stream.isatty() or environment.get("CI") or environment.get("TERM") == "dumb":
        return Plain(stream, total, clock, spoken)
    return Terminal(Console(file=stream), total, clock, spoken)
