"""Progress of a run: live on a terminal, whole lines elsewhere.

Without a terminal, a line is written at least every half minute. A separate thread writes it,
because comparing keeps the event loop busy and resolving a stack waits for another program.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from samebits.base import streams
from samebits.base.workflow import annotation, inert
from samebits.text.numbers import duration, plural
from samebits.text.terminal import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Self, TextIO

    from samebits.records.ids import CellId
    from samebits.stacks.costs import Estimate
    from samebits.text.terminal import TerminalText

MAX_RUNNING = 6
"""Maximum number of running cells shown by name."""
QUIET = 25.0
"""Seconds without a line after which a log gets a status line, at the next tick."""
TICK = 1.0
"""Seconds between two checks of the clock."""
_MIN_SHARE = 0.1
"""Minimum share of the cells' expected cost after which their pace adjusts later phases."""
_MAX_LAST_LINE = 2.0
"""Seconds to wait for the last line when a run ends; a stuck reader may block it."""
LONG = 10.0
"""Minimum seconds of a phase whose end gets a line."""


class Progress(Protocol):
    """Receiver of the events of a run."""

    def stack(self, id: str, state: str, *, is_busy: bool = True) -> None:
        """Set the state of a stack, such as ``resolving and building`` or ``failed``.

        ``is_busy`` is False if nothing is done for the stack in that state.
        """

    def begin(self, phase: str, total: int, what: str) -> None:
        """Begin a phase of ``total`` jobs; ``what`` describes it.

        ``what`` is '' for a phase that is usually too short for a line.
        """

    def expect(self, estimate: Estimate) -> None:
        """Set the estimated duration of the run, from the costs of earlier runs."""

    def advance(self, phase: str) -> None:
        """Count one ended job of a phase."""

    def end(self, phase: str) -> None:
        """End a phase."""

    def start(self, cell: CellId) -> None:
        """Begin a cell."""

    def step(self, job: str, phase: str, step: int, of: int) -> None:
        """Set a running job's phase and step; ``of`` is 0 if the phase counts no steps."""

    def done(self, cell: CellId, outcome: str) -> None:
        """End a cell, with outcome ``complete``, ``absent``, ``failed`` or ``unfinished``."""

    def failure(self, text: str) -> None:
        """Show one line on what failed and where."""

    def note(self, text: str) -> None:
        """Show any other line."""

    def close(self) -> None:
        """End all output."""


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


@dataclass
class Phase:
    """One open phase of a run, with its count of jobs."""

    total: int
    started: float
    done: int = 0
    last: float = 0.0
    """Time at which the last job ended."""


@dataclass
class Tally:
    """The state of a run so far: phases, cells, times and the estimate of what is left."""

    total: int
    clock: Callable[[], float]
    started: float = field(init=False)
    first_cell: float | None = None
    stacks: dict[str, str] = field(default_factory=dict)
    idle_stacks: set[str] = field(default_factory=set)
    running: dict[str, str] = field(default_factory=dict)
    """Cell or job -> its progress; '' if it has not reported any."""
    outcomes: dict[str, int] = field(default_factory=dict)
    open: dict[str, Phase] = field(default_factory=dict)
    taken: dict[str, float] = field(default_factory=dict)
    """Ended phase -> seconds."""
    estimate: Estimate | None = None
    n_ran: int = 0
    """Number of cells that started and ended."""
    weight_done: float = 0.0
    """Expected cost of these cells."""
    weight_left_out: float = 0.0
    """Expected cost of cells that ended without a start."""

    def __post_init__(self) -> None:
        self.started = self.clock()

    def begin(self, phase: str, total: int) -> None:
        """Open a phase."""
        self.open[phase] = Phase(total, self.clock())

    def end(self, phase: str) -> float:
        """Close a phase and return its seconds; a phase may be opened more than once."""
        closed = self.open.pop(phase, None)
        seconds = 0.0 if closed is None else self.clock() - closed.started
        self.taken[phase] = self.taken.get(phase, 0.0) + seconds
        if not self.open:
            self.running.clear()
        return seconds

    def start(self, cell: str) -> None:
        """Count a cell as running."""
        if self.first_cell is None:
            self.first_cell = self.clock()
        self.running[cell] = ""

    def step(self, job: str, phase: str, step: int, of: int) -> None:
        """Set the progress of a running job; an empty phase removes it."""
        if phase:
            self.running[job] = f"{phase}, {step:,} of {of:,}" if of else phase
        else:
            self.running.pop(job, None)

    def advance(self, phase: str) -> None:
        """Count an ended job of a phase."""
        if (open_phase := self.open.get(phase)) is not None:
            open_phase.done += 1
            open_phase.last = self.clock()

    def done(self, cell: str, outcome: str) -> None:
        """Count a cell as ended.

        A cell whose stack failed, or that has cached captures, never started.
        """
        self.advance("cells")
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        weight = self._weights("cells").get(cell, 0.0)
        if self.running.pop(cell, None) is None:
            self.weight_left_out += weight
        else:
            self.n_ran += 1
            self.weight_done += weight

    @property
    def n_done(self) -> int:
        """Number of cells that ended."""
        return sum(self.outcomes.values())

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self.clock() - self.started

    def _weights(self, phase: str) -> Mapping[str, float]:
        return self.estimate.weights if self.estimate is not None and phase == "cells" else {}

    def remaining_of(self, phase: str) -> float | None:
        """Return the remaining seconds of a phase; None if they cannot be estimated.

        The estimate uses the pace so far, which for cells is weighted by their costs in earlier
        runs. The pace of cells starts with the first cell that ran, as cached cells take no time.
        """
        open_phase = self.open[phase]
        start = open_phase.started
        if phase == "cells":
            if self.first_cell is None:
                return self._expected(phase)
            start = max(start, self.first_cell)
        elapsed = self.clock() - start
        done_share, running_share = self._shares(open_phase) if phase == "cells" else (0.0, 0.0)
        if not done_share:
            n = self.n_ran if phase == "cells" else open_phase.done
            n_left = max(open_phase.total - open_phase.done, 0)
            done_share, running_share = n / (n + n_left or 1), (n + 1) / (n + n_left or 1)
        if done_share:
            # as estimated at the end of the last job, but running jobs take at least until now
            estimate = (open_phase.last - start) / done_share - elapsed
            return max(estimate, elapsed / min(running_share, 1.0) - elapsed, 0.0)
        expected = self._expected(phase)
        return None if expected is None else max(expected - elapsed, 0.0)

    def _shares(self, cells: Phase) -> tuple[float, float]:
        """Return the done share of the cells' expected cost, without and with running cells.

        Both are 0 if the costs are unknown.
        """
        weights = self._weights("cells")
        total_weight = sum(weights.values()) - self.weight_left_out
        if total_weight <= 0.0 or not self.n_ran:
            return 0.0, 0.0
        if cells.done >= cells.total:
            return 1.0, 1.0
        running_weight = self.weight_done + sum(weights.get(job, 0.0) for job in self.running)
        return min(1.0, self.weight_done / total_weight), min(1.0, running_weight / total_weight)

    def _expected(self, phase: str) -> float | None:
        return None if self.estimate is None else self.estimate.phases.get(phase)

    @property
    def remaining(self) -> tuple[float, bool] | None:
        """Remaining seconds, and whether they are of the whole run; None if they are unknown.

        Without costs of an earlier run they cover only the open phases.
        """
        seconds_left = [self.remaining_of(phase) for phase in self.open]
        known_seconds = [seconds for seconds in seconds_left if seconds is not None]
        if not known_seconds:
            return None
        if self.estimate is None:
            return max(known_seconds), False
        started_phases = self.open.keys() | self.taken.keys()
        later_seconds = sum(
            phase_seconds
            for name, phase_seconds in self.estimate.phases.items()
            if name not in started_phases
        )
        return max(known_seconds) + later_seconds * self._pace_ratio, True

    @property
    def _pace_ratio(self) -> float:
        """Ratio of the cells' time to their estimate, which scales the estimate of later phases."""
        cells = self.open.get("cells")
        share = 1.0 if cells is None else self._shares(cells)[0]
        expected = (self._expected("cells") or 0.0) * share
        if self.first_cell is None or share < _MIN_SHARE or expected <= 0.0:
            return 1.0
        seconds = self.taken["cells"] if cells is None else cells.last - self.first_cell
        return min(10.0, max(0.1, seconds / expected))

    def where(self) -> str:
        """Return the open phases that have jobs left, such as ``cells: 3 of 12``."""
        parts = [
            f"{name}: {phase.done:,} of {phase.total:,}" if phase.total else name
            for name, phase in self.open.items()
            if phase.done < phase.total or not phase.total or len(self.open) == 1
        ]
        if parts:
            return ", ".join(parts)
        last = next(reversed(self.taken), "")
        return f"after {last}" if last else "starting"

    def busy(self) -> str:
        """Return the names of what runs now, at most ``MAX_RUNNING``; '' if there is none."""
        if "stacks" in self.open and not self.running:
            states = (
                f"{id} {state}" for id, state in self.stacks.items() if id not in self.idle_stacks
            )
            return ", ".join(states)
        jobs = [f"{job}: {progress}" if progress else job for job, progress in self.running.items()]
        names = "; ".join(jobs[:MAX_RUNNING])
        n_more = len(jobs) - MAX_RUNNING
        return f"{names} and {n_more} more" if n_more > 0 else names

    def ending(self) -> str:
        """Return the remaining time, such as ``about 4 min left``; '' if it is unknown."""
        remaining = self.remaining
        if remaining is None or remaining[0] < 1.0:  # the running jobs take longer than estimated
            return ""
        seconds, is_whole_run = remaining
        return f"about {duration(seconds)} left{'' if is_whole_run else ' in this phase'}"

    def status(self) -> str:
        """Return the status of the run in one line."""
        parts = [f"[{duration(self.elapsed)}] {self.where()}", self.ending()]
        if busy := self.busy():
            parts.append(f"running {busy}" if self.running else busy)
        return "; ".join(filter(None, parts))

    def set_stack(self, id: str, state: str, *, is_busy: bool) -> None:
        """Set the state of a stack, and whether something is done for it."""
        self.stacks[id] = state
        if is_busy:
            self.idle_stacks.discard(id)
        else:
            self.idle_stacks.add(id)

    def summary(self) -> str:
        """Return the counts of outcomes, such as ``330 complete, 9 absent, 5 failed``."""
        return ", ".join(f"{n:,} {outcome}" for outcome, n in self.outcomes.items())


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


class _Counted:
    """The part of a progress that only counts; what is shown of it follows from the tally."""

    def __init__(self, total: int, clock: Callable[[], float]) -> None:
        self._tally = Tally(total, clock)
        self._lock = Lock()

    def expect(self, estimate: Estimate) -> None:
        """Use the estimate for the remaining time."""
        with self._lock:
            self._tally.estimate = estimate

    def advance(self, phase: str) -> None:
        """Count one finished item of a phase."""
        with self._lock:
            self._tally.advance(phase)

    def start(self, cell: CellId) -> None:
        """Count the cell among the running ones."""
        with self._lock:
            self._tally.start(str(cell))

    def step(self, job: str, phase: str, step: int, of: int) -> None:
        """Record how far a running job is."""
        with self._lock:
            self._tally.step(job, phase, step, of)

    def done(self, cell: CellId, outcome: str) -> None:
        """Count the cell under its outcome."""
        with self._lock:
            self._tally.done(str(cell), outcome)


class Plain(_Counted):
    """Whole lines without control codes, for logs and pipes; successful cells write no line."""

    def __init__(
        self, stream: TextIO, total: int, clock: Callable[[], float], spoken: TerminalText = PLAIN
    ) -> None:
        self._stream = stream
        self._spoken = spoken
        super().__init__(total, clock)
        self._last = clock()
        self._ticker = Ticker(self.tick)
        if total:  # before the plan is known, the total is 0
            self._line(f"samebits: {plural(total, 'cell')} to run")

    def ticking(self) -> Self:
        """Start to write status lines, until :meth:`close`; return self."""
        self._ticker.start()
        return self

    def stack(self, id: str, state: str, *, is_busy: bool = True) -> None:
        """Write a line for each new state of a stack."""
        with self._lock:
            if self._tally.stacks.get(id) != state:
                self._tally.set_stack(id, state, is_busy=is_busy)
                self._line(f"stack {id}: {state}")

    def begin(self, phase: str, total: int, what: str) -> None:
        """Write a line on the phase."""
        with self._lock:
            first = not self._tally.open
            self._tally.begin(phase, total)
            if what:
                if first:
                    self._fold(phase)
                self._line(f"{phase}: {what}")
                self._last = self._tally.clock()

    def end(self, phase: str) -> None:
        """Write the time of the phase, if it was long."""
        with self._lock:
            if phase not in self._tally.open:
                return
            seconds = self._tally.end(phase)
            if not self._tally.open:
                self._unfold()
            if seconds >= LONG:
                self._line(f"{phase}: done in {duration(seconds)}")
                self._last = self._tally.clock()

    def failure(self, text: str) -> None:
        """Write the line."""
        self.note(text)

    def note(self, text: str) -> None:
        """Write the line."""
        with self._lock:
            self._line(text)

    def tick(self) -> None:
        """Write a status line if the last line is ``QUIET`` seconds old."""
        with self._lock:
            now = self._tally.clock()
            if now - self._last >= QUIET:
                self._last = now
                self._line(self._tally.status())

    def close(self) -> None:
        """Write the outcomes of the cells and the time of the run."""
        self._ticker.end()
        with self._lock:
            if self._tally.open:
                self._tally.open.clear()
                self._unfold()
            if self._tally.total:
                self._line(_closing_line(self._tally))

    def _fold(self, title: str) -> None:
        """Begin a group of lines, if the log can fold them."""

    def _unfold(self) -> None:
        """End the group."""

    def _line(self, text: str) -> None:
        self._write(self._spoken.text(text))

    def _write(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        # A log in the C locale must not end a run because of a character it cannot encode.
        line = text.encode(encoding, "backslashreplace").decode(encoding)
        streams.write(self._stream, f"{line}\n")


class GitHub(Plain):
    """The same lines for a log of GitHub Actions: folded by phase, failures as annotations.

    A failure is a warning, not an error: whether it fails the run is known only after the
    comparison, and then shown by the last lines and the exit code.
    """

    _is_folded = False

    def failure(self, text: str) -> None:
        """Write the line as a warning, which GitHub also shows on the page of the workflow run."""
        with self._lock:
            message = self._spoken.text(text)
            self._write(annotation("warning", message, {"title": "samebits"}))

    def _fold(self, title: str) -> None:
        self._is_folded = True
        self._write(f"::group::{self._spoken.text(title)}")

    def _unfold(self) -> None:
        if self._is_folded:
            self._is_folded = False
            self._write("::endgroup::")

    def _line(self, text: str) -> None:
        # the text of a model's exception must not be read as a workflow command
        self._write(inert(self._spoken.text(text)))


class Terminal(_Counted):
    """A few live lines at the bottom of a terminal."""

    def __init__(
        self, console: Console, total: int, clock: Callable[[], float], spoken: TerminalText = PLAIN
    ) -> None:
        self._spoken = spoken
        super().__init__(total, clock)
        self._live = Live(
            console=console,
            get_renderable=self.__rich__,
            refresh_per_second=4,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def stack(self, id: str, state: str, *, is_busy: bool = True) -> None:
        """Show the state next to the stack's name."""
        with self._lock:
            self._tally.set_stack(id, state, is_busy=is_busy)

    def begin(self, phase: str, total: int, what: str) -> None:
        """Show the phase, and print its description above the live lines."""
        with self._lock:
            self._tally.begin(phase, total)
        if what:
            self.note(f"{phase}: {what}")

    def end(self, phase: str) -> None:
        """Remove the phase; print a line above if it was long."""
        with self._lock:
            if phase not in self._tally.open:
                return
            seconds = self._tally.end(phase)
        if seconds >= LONG:
            self.note(f"{phase}: done in {duration(seconds)}")

    def failure(self, text: str) -> None:
        """Print the line above the live lines."""
        self.note(text)

    def note(self, text: str) -> None:
        """Print the line above the live lines."""
        self._live.console.print(Text(self._spoken.text(text)))

    def close(self) -> None:
        """Remove the live lines and print the outcomes of the cells."""
        self._live.stop()
        if self._tally.total:
            self.note(_closing_line(self._tally))

    def __rich__(self) -> Group:
        """Return the current live lines."""
        with self._lock:
            parts = (self._stacks(), self._phases(), self._running())
            return Group(*(part for part in parts if part is not None))

    def _stacks(self) -> Text | None:
        states = [f"{id} {state}" for id, state in self._tally.stacks.items()]
        return self._one_line("stacks   ", ", ".join(states)) if states else None

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
        line.add_row(f"{name or 'starting':<8}", bar, counted, _times(tally))
        return line

    def _running(self) -> Text | None:
        busy = self._tally.busy() if self._tally.running else ""
        return self._one_line("running  ", busy) if busy else None

    def _one_line(self, label: str, text: str) -> Text:
        line = f"{label}{self._spoken.text(text)}"
        return Text(line, no_wrap=True, overflow="ellipsis")


def _times(tally: Tally) -> Text:
    failed = tally.outcomes.get("failed", 0)
    failures = f"{failed:,} failed" if failed else ""
    times = ", ".join(filter(None, (duration(tally.elapsed), tally.ending(), failures)))
    return Text(times, no_wrap=True)


def _closing_line(tally: Tally) -> str:
    counts = f"{tally.n_done:,} of {plural(tally.total, 'cell')} in {duration(tally.elapsed)}"
    return f"{counts}: {tally.summary()}" if tally.outcomes else counts


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
        if words := _OUTCOMES.get(outcome):  # a failure has a line of its own
            self._progress.note(f"{cell.variant} under {self._stacks.get(cell.stack)}: {words}")


_OUTCOMES = {
    "complete": "runs to its end",
    "absent": "the release does not know the model",
    "unfinished": "not finished",
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
