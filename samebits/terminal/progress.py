"""Progress of a run: live on a terminal, whole lines elsewhere.

Without a terminal, a line is written at least every half minute. A separate thread writes it,
because comparing keeps the event loop busy and resolving a stack waits for another program.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event, RLock, Thread
from typing import Any, Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from samebits.base import streams
from samebits.base.workflow import annotation, inert
from samebits.records.ids import CellId
from samebits.stacks.costs import Estimate
from samebits.terminal.tally import Phase, Tally, shown
from samebits.text.numbers import duration, plural
from samebits.text.terminal import PLAIN, TerminalText

QUIET = 25.0
"""Seconds without a line after which a log gets a status line, at the next tick."""
TICK = 1.0
"""Seconds between two checks of the clock."""
_MAX_LAST_LINE = 2.0
"""Seconds to wait for the last line when a run ends; a stuck reader may block it."""
LONG = 10.0
"""Minimum seconds of a phase whose end gets a line."""


class Progress:
    """Receiver of the events of a run. It counts them, and says what a reader wants to know in a line."""

    def __init__(self, total: int, clock: Callable[[], float], spoken: TerminalText) -> None:
        self._tally = Tally(total, clock)
        self._lock = RLock()
        self._spoken = spoken

    def stack(self, id: str, state: str, *, is_busy: bool = True) -> None:
        """Set the state of a stack, such as ``resolving and building`` or ``failed``.

        ``is_busy`` is False if nothing is done for the stack in that state.
        """
        with self._lock:
            self._tally.set_stack(id, state, is_busy=is_busy)

    def expect(self, estimate: Estimate) -> None:
        """Set the estimated duration of the run, from the costs of earlier runs."""
        with self._lock:
            self._tally.estimate = estimate

    def advance(self, phase: str) -> None:
        """Count one ended job of a phase."""
        with self._lock:
            self._tally.advance(phase)

    def start(self, cell: CellId) -> None:
        """Begin a cell."""
        with self._lock:
            self._tally.start(str(cell))

    def step(self, job: str, phase: str, step: int, of: int) -> None:
        """Set a running job's phase and step; ``of`` is 0 if the phase counts no steps."""
        with self._lock:
            self._tally.step(job, phase, step, of)

    def done(self, cell: CellId, outcome: str) -> None:
        """End a cell, with outcome ``complete``, ``absent``, ``failed`` or ``unfinished``."""
        with self._lock:
            self._tally.done(str(cell), outcome)

    # nothing is said under the lock: what draws the live lines has the console, and waits for the lock

    def begin(self, phase: str, total: int, what: str) -> None:
        """Begin a phase of ``total`` jobs; ``what`` describes it.

        ``what`` is '' for a phase that is usually too short for a line.
        """
        with self._lock:
            is_first = not self._tally.open
            self._tally.begin(phase, total)
        if what and is_first:
            self._fold(shown(phase))
        if what:
            self._report(f"{shown(phase)}: {what}")

    def end(self, phase: str) -> None:
        """End a phase; say so if it was long."""
        with self._lock:
            if phase not in self._tally.open:
                return
            seconds = self._tally.end(phase)
            is_last = not self._tally.open
        if is_last:
            self._unfold()
        if seconds >= LONG:
            self._report(f"{shown(phase)}: done in {duration(seconds)}")

    def failure(self, text: str) -> None:
        """Show one line on what failed and where."""
        self.note(text)

    def note(self, text: str) -> None:
        """Show any other line."""
        raise NotImplementedError

    def close(self) -> None:
        """End all output with the outcomes of the cells."""
        if self._tally.total:
            self.note(self._tally.closing())

    def _report(self, text: str) -> None:
        """Say where the run is."""
        self.note(text)

    def _fold(self, title: str) -> None:
        """Begin a group of lines, if they can be folded."""

    def _unfold(self) -> None:
        """End the group."""


class Phases:
    """Reports the phases of a run to its progress, and measures their time."""

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self.taken: dict[str, float] = {}
        """Phase -> seconds of wall clock."""
        self._progress = progress
        self._clock = clock
        self._began: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str, total: int, what: str) -> Iterator[Callable[[], None]]:
        """Report a phase around a block; the block calls the yielded function as each job ends.

        A phase without jobs is not reported.
        """
        if total:
            self.begin(name, total, what)
        try:
            yield partial(self._progress.advance, name)
        finally:
            if total:
                self.end(name)

    def begin(self, name: str, total: int, what: str) -> None:
        """Begin a phase."""
        self._began[name] = self._clock()
        self._progress.begin(name, total, what)

    def end(self, name: str) -> None:
        """End a phase and add to its time."""
        seconds = self._clock() - self._began.pop(name)
        self.taken[name] = self.taken.get(name, 0.0) + seconds
        self._progress.end(name)


class Ticker:
    """Calls a function every second, in a separate thread that a busy event loop cannot block."""

    def __init__(
        self, tick: Callable[[], None], wait: Callable[[float], bool] | None = None
    ) -> None:
        """Take the function to call; ``wait`` waits for some seconds and returns True to stop."""
        self._tick = tick
        self._ended = Event()
        self._wait = wait or self._ended.wait
        self._thread = Thread(target=self.run, name="samebits progress", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def run(self) -> None:
        """Call the function until the end, or until the log cannot be written."""
        with suppress(OSError, ValueError):
            while not self._wait(TICK):
                self._tick()

    def end(self) -> None:
        """Stop the calls and wait briefly for the thread."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_MAX_LAST_LINE)


class Silent(Progress):
    """Writes nothing: the command has many short runs, and lines of its own."""

    def note(self, text: str) -> None:
        """Leave a line out."""


def silent(total: int) -> Progress:
    """Return progress that nobody sees."""
    return Silent(total, time.monotonic, PLAIN)


class Plain(Progress):
    """Whole lines without control codes, for logs and pipes; successful cells write no line."""

    def __init__(
        self, stream: TextIO, total: int, clock: Callable[[], float], spoken: TerminalText = PLAIN
    ) -> None:
        super().__init__(total, clock, spoken)
        self._stream = stream
        self._last = clock()
        self._ticker = Ticker(self.tick)
        if total:  # before the plan is known, the total is 0
            self.note(f"samebits: {plural(total, 'run')} to do")

    def ticking(self) -> Self:
        """Start to write status lines, until :meth:`close`; return self."""
        self._ticker.start()
        return self

    def stack(self, id: str, state: str, *, is_busy: bool = True) -> None:
        """Write a line for a stack that is ready, or that cannot be built; status lines name the others."""
        with self._lock:
            is_new = self._tally.stacks.get(id) != state
            super().stack(id, state, is_busy=is_busy)
            if is_new and not is_busy:
                self.note(f"environment {id}: {state}")

    def note(self, text: str) -> None:
        """Write the line."""
        self._write(self._spoken.text(text))

    def tick(self) -> None:
        """Write a status line if the last line on the run is ``QUIET`` seconds old."""
        with self._lock:
            if self._tally.clock() - self._last >= QUIET:
                self._report(self._tally.status())

    def close(self) -> None:
        """Write the outcomes of the cells and the time of the run."""
        self._ticker.end()
        if self._tally.open:
            self._tally.open.clear()
            self._unfold()
        super().close()

    def _report(self, text: str) -> None:
        with self._lock:
            self._last = self._tally.clock()
            self.note(text)

    def _write(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        # A log in the C locale must not end a run because of a character it cannot encode.
        line = text.encode(encoding, "backslashreplace").decode(encoding)
        with self._lock:
            streams.write(self._stream, f"{line}\n")


class GitHub(Plain):
    """The same lines for a log of GitHub Actions: folded by phase, failures as annotations.

    A failure is a warning, not an error: whether it fails the run is known only after the
    comparison, and then shown by the last lines and the exit code.
    """

    _is_folded = False

    def failure(self, text: str) -> None:
        """Write the line as a warning, which GitHub also shows on the page of the workflow run."""
        self._write(annotation("warning", self._spoken.text(text), {"title": "samebits"}))

    def note(self, text: str) -> None:
        """Write the line, of which a model's exception must not be read as a workflow command."""
        self._write(inert(self._spoken.text(text)))

    def _fold(self, title: str) -> None:
        self._is_folded = True
        self._write(f"::group::{self._spoken.text(title)}")

    def _unfold(self) -> None:
        if self._is_folded:
            self._is_folded = False
            self._write("::endgroup::")


class Terminal(Progress):
    """A few live lines at the bottom of a terminal."""

    def __init__(
        self, console: Console, total: int, clock: Callable[[], float], spoken: TerminalText = PLAIN
    ) -> None:
        super().__init__(total, clock, spoken)
        self._live = Live(
            console=console,
            get_renderable=self.__rich__,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def note(self, text: str) -> None:
        """Print the line above the live lines."""
        self._live.console.print(Text(self._spoken.text(text)))

    def close(self) -> None:
        """Remove the live lines and print the outcomes of the cells."""
        self._live.stop()
        super().close()

    def __rich__(self) -> Group:
        """Return the current live lines."""
        with self._lock:
            parts = (self._stacks(), self._phases(), self._running())
            return Group(*(part for part in parts if part is not None))

    def _stacks(self) -> Text | None:
        states = [f"{id} {state}" for id, state in self._tally.stacks.items()]
        return self._one_line("environments  ", ", ".join(states)) if states else None

    def _phases(self) -> Table:
        """Return a bar for the cells if they run, otherwise for the last open phase.

        The time next to it is that of the run.
        """
        tally = self._tally
        line = Table.grid(padding=(0, 1))
        name, phase = next(reversed(tally.open.items()), ("", Phase(0, 0.0)))
        if tally.open and "cells" in tally.open:
            name, phase = "cells", tally.open["cells"]
        bar = ProgressBar(total=max(phase.total, 1), completed=phase.done, width=30)
        counted = f"{phase.done:,}/{phase.total:,}" if phase.total else ""
        line.add_row(f"{shown(name) or 'starting':<8}", bar, counted, _times(tally))
        return line

    def _running(self) -> Text | None:
        busy = self._tally.busy() if self._tally.running else ""
        return self._one_line("running       ", busy) if busy else None

    def _one_line(self, label: str, text: str) -> Text:
        line = f"{label}{self._spoken.text(text)}"
        return Text(line, no_wrap=True, overflow="ellipsis")


def _times(tally: Tally) -> Text:
    failed = tally.outcomes.get("failed", 0)
    failures = f"{failed:,} failed" if failed else ""
    times = ", ".join(filter(None, (duration(tally.elapsed), tally.ending(), failures)))
    return Text(times, no_wrap=True)


class CellLines:
    """Passes on all events, and writes a line for each cell that ends without a failure."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stacks: dict[str, str] = {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  the other events
        """Return a method of the progress that shows the events."""
        return getattr(self._progress, name)

    def stack(self, id: str, state: str, *, is_busy: bool = True) -> None:
        """Pass it on, and keep the release."""
        self._stacks[id] = state
        self._progress.stack(id, state, is_busy=is_busy)

    def done(self, cell: CellId, outcome: str) -> None:
        """Pass it on, with a line."""
        self._progress.done(cell, outcome)
        if words := _OUTCOMES.get(outcome):  # what failed or did not finish has a line of its own
            variant = "" if str(cell.variant) == _USUAL else f", {cell.variant}"
            self._progress.note(f"{self._stacks.get(cell.stack)}{variant}: {words}")


_USUAL = "float32-default"
"""The variant of a check that names none."""
_OUTCOMES = {
    "complete": "done",
    "absent": "the release does not know the model",
}
"""Outcome of a cell -> words."""


def choose(
    total: int,
    stream: TextIO | None = None,
    environment: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
    spoken: TerminalText = PLAIN,
) -> Progress:
    """Return live progress if ``stream`` (by default stderr) is an interactive terminal.

    Some CI logs claim to be terminals, and a dumb terminal cannot move its cursor.
    """
    stream = sys.stderr if stream is None else stream
    environment = os.environ if environment is None else environment
    if environment.get("GITHUB_ACTIONS") == "true":
        return GitHub(stream, total, clock, spoken).ticking()
    if not stream.isatty() or environment.get("CI") or environment.get("TERM") == "dumb":
        return Plain(stream, total, clock, spoken).ticking()
    return Terminal(Console(file=stream), total, clock, spoken)
