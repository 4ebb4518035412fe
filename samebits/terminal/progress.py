"""What the user sees while cells run: live on a terminal, whole lines everywhere else.

Without a terminal there is a line at least every half minute, whatever runs: a thread of its own
writes it, because comparing keeps the event loop busy and a stack is resolved by another program.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from samebits.text.numbers import duration, plural
from samebits.text.terminal import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Self, TextIO

    from samebits.records.ids import CellId
    from samebits.stacks.costs import Estimate
    from samebits.text.terminal import Spoken

MOST_RUNNING = 6
"""Running cells that are named; of more, only the number is shown."""
QUIET = 25.0
"""Seconds after which a log gets a line that says how far the run is; a tick later it is written."""
TICK = 1.0
"""Seconds between two looks at the clock."""
_ENOUGH = 0.1
"""Part of the cells' expected cost from which on their pace says something of what follows."""
_LAST_LINE = 2.0
"""Seconds that a line has to be written when all ends; a reader that is stuck holds it up."""
LONG = 10.0
"""Seconds from which on the end of a phase is worth a line."""


class Progress(Protocol):
    """Someone who is told how the run goes."""

    def stack(self, id: str, state: str) -> None:
        """Say what is being done with a stack: ``resolving``, ``building``, ``ready``, ``failed``."""

    def begin(self, phase: str, total: int, what: str) -> None:
        """Say that a phase of ``total`` jobs has begun, and what is done in it.

        '' for one that is hardly ever long enough for a line.
        """

    def expect(self, estimate: Estimate) -> None:
        """Take what the run will take, by the costs of earlier ones."""

    def advance(self, phase: str) -> None:
        """Count one job of a phase as ended."""

    def end(self, phase: str) -> None:
        """Say that a phase has ended."""

    def start(self, cell: CellId) -> None:
        """Say that a cell has begun."""

    def step(self, job: str, phase: str, step: int, of: int) -> None:
        """Say how far a running job is in a phase of its own; ``of`` is 0 if it counts no steps."""

    def done(self, cell: CellId, outcome: str) -> None:
        """Count a cell as ended: ``complete``, ``absent``, ``failed`` or ``unfinished``."""

    def failure(self, text: str) -> None:
        """Say in one line what failed, and where."""

    def note(self, text: str) -> None:
        """Say something else in one line."""

    def close(self) -> None:
        """Say that nothing follows."""


class Phases:
    """Tells of the phases of a run, and remembers how long each took."""

    def __init__(self, progress: Progress, clock: Callable[[], float] = time.monotonic) -> None:
        self.taken: dict[str, float] = {}
        """Phase -> seconds of wall clock."""
        self._progress = progress
        self._clock = clock
        self._began: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str, total: int, what: str) -> Iterator[Callable[[], None]]:
        """Tell of a phase from its beginning to its end; call what is given as each job ends.

        A phase without a job is none.
        """
        if total:
            self.begin(name, total, what)
        try:
            yield partial(self._progress.advance, name)
        finally:
            if total:
                self.end(name)

    def begin(self, name: str, total: int, what: str) -> None:
        """Tell that a phase begins."""
        self._began[name] = self._clock()
        self._progress.begin(name, total, what)

    def end(self, name: str) -> None:
        """Tell that it has ended."""
        took = self._clock() - self._began.pop(name)
        self.taken[name] = self.taken.get(name, 0.0) + took
        self._progress.end(name)


@dataclass
class Phase:
    """One phase of a run: n of m jobs."""

    total: int
    started: float
    done: int = 0
    last: float = 0.0
    """When the last job ended."""


@dataclass
class Tally:
    """What is known so far, and how long it took."""

    total: int
    clock: Callable[[], float]
    started: float = field(init=False)
    first_cell: float | None = None
    stacks: dict[str, str] = field(default_factory=dict)
    running: dict[str, str] = field(default_factory=dict)
    """Cell or job -> how far it is, '' if it does not say."""
    outcomes: dict[str, int] = field(default_factory=dict)
    open: dict[str, Phase] = field(default_factory=dict)
    taken: dict[str, float] = field(default_factory=dict)
    """Phase that has ended -> seconds."""
    estimate: Estimate | None = None
    n_ran: int = 0
    """Cells that started and ended."""
    weight_done: float = 0.0
    """What these were expected to cost."""
    weight_left_out: float = 0.0
    """What cells were expected to cost that never started."""

    def __post_init__(self) -> None:
        self.started = self.clock()

    def begin(self, phase: str, total: int) -> None:
        """Open a phase."""
        self.open[phase] = Phase(total, self.clock())

    def end(self, phase: str) -> float:
        """Close a phase and return how long it took; it may have been open before."""
        found = self.open.pop(phase, None)
        took = 0.0 if found is None else self.clock() - found.started
        self.taken[phase] = self.taken.get(phase, 0.0) + took
        if not self.open:
            self.running.clear()
        return took

    def start(self, cell: str) -> None:
        """Count a cell as running."""
        if self.first_cell is None:
            self.first_cell = self.clock()
        self.running[cell] = ""

    def step(self, job: str, phase: str, step: int, of: int) -> None:
        """Note how far a running job is; without a phase it runs no longer."""
        if phase:
            self.running[job] = f"{phase}, {step:,} of {of:,}" if of else phase
        else:
            self.running.pop(job, None)

    def advance(self, phase: str) -> None:
        """Count a job of a phase as ended."""
        if (found := self.open.get(phase)) is not None:
            found.done += 1
            found.last = self.clock()

    def done(self, cell: str, outcome: str) -> None:
        """Count a cell as ended; one whose stack failed, or that has captures, never started."""
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
        """Cells that ended."""
        return sum(self.outcomes.values())

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.clock() - self.started

    def _weights(self, phase: str) -> Mapping[str, float]:
        return self.estimate.weights if self.estimate is not None and phase == "cells" else {}

    def remaining_of(self, phase: str) -> float | None:
        """Return the seconds that the rest of a phase takes; None if nothing tells it.

        By the pace so far, which for cells is that of their costs in earlier runs. The pace of cells
        begins with the first of them that ran, as those with captures take no time.
        """
        found = self.open[phase]
        began = found.started
        if phase == "cells":
            if self.first_cell is None:
                return self._expected(phase)
            began = max(began, self.first_cell)
        took = self.clock() - began
        done, soon = self._shares(found) if phase == "cells" else (0.0, 0.0)
        if not done:
            n = self.n_ran if phase == "cells" else found.done
            left = max(found.total - found.done, 0)
            done, soon = n / (n + left or 1), (n + 1) / (n + left or 1)
        if done:
            # as when the last job ended, less the time since; but what runs takes until now at least
            later = (found.last - began) / done - took
            return max(later, took / min(soon, 1.0) - took, 0.0)
        expected = self._expected(phase)
        return None if expected is None else max(expected - took, 0.0)

    def _shares(self, cells: Phase) -> tuple[float, float]:
        """Return how much of the cells' expected cost is done, and with those that run; 0: unknown."""
        weights = self._weights("cells")
        whole = sum(weights.values()) - self.weight_left_out
        if whole <= 0.0 or not self.n_ran:
            return 0.0, 0.0
        if cells.done >= cells.total:
            return 1.0, 1.0
        soon = self.weight_done + sum(weights.get(job, 0.0) for job in self.running)
        return min(1.0, self.weight_done / whole), min(1.0, soon / whole)

    def _expected(self, phase: str) -> float | None:
        return None if self.estimate is None else self.estimate.phases.get(phase)

    @property
    def remaining(self) -> tuple[float, bool] | None:
        """Seconds that are left, and whether that is of the whole run; None if nothing tells it.

        Without an earlier run nothing tells what follows the phases that are open.
        """
        left = [self.remaining_of(phase) for phase in self.open]
        here = [seconds for seconds in left if seconds is not None]
        if not here:
            return None
        if self.estimate is None:
            return max(here), False
        seen = self.open.keys() | self.taken.keys()
        later = sum(s for name, s in self.estimate.phases.items() if name not in seen)
        return max(here) + later * self._slower, True

    @property
    def _slower(self) -> float:
        """How the cells' pace compares with the estimate: what follows is likely to be the same."""
        cells = self.open.get("cells")
        share = 1.0 if cells is None else self._shares(cells)[0]
        expected = (self._expected("cells") or 0.0) * share
        if self.first_cell is None or share < _ENOUGH or expected <= 0.0:
            return 1.0
        took = self.taken["cells"] if cells is None else cells.last - self.first_cell
        return min(10.0, max(0.1, took / expected))

    def where(self) -> str:
        """Return ``cells: 3 of 12``, with every phase that is open and has jobs left."""
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
        """Return what runs now, at most a few by name; '' if nothing that has one."""
        if "stacks" in self.open and not self.running:
            states = (f"{id} {state}" for id, state in self.stacks.items() if _is_busy(state))
            return ", ".join(states)
        jobs = [f"{job}: {said}" if said else job for job, said in self.running.items()]
        named = "; ".join(jobs[:MOST_RUNNING])
        rest = len(jobs) - MOST_RUNNING
        return f"{named} and {rest} more" if rest > 0 else named

    def ending(self) -> str:
        """Return ``about 4 min left``; '' if nothing tells it."""
        remaining = self.remaining
        if remaining is None or remaining[0] < 1.0:  # what runs takes longer than was likely
            return ""
        seconds, whole = remaining
        return f"about {duration(seconds)} left{'' if whole else ' in this phase'}"

    def status(self) -> str:
        """Return how far the run is in one line."""
        said = [f"[{duration(self.elapsed)}] {self.where()}", self.ending()]
        if busy := self.busy():
            said.append(f"running {busy}" if self.running else busy)
        return "; ".join(filter(None, said))

    def summary(self) -> str:
        """Return ``330 complete, 9 absent, 5 failed``."""
        return ", ".join(f"{n:,} {outcome}" for outcome, n in self.outcomes.items())


def _is_busy(state: str) -> bool:
    return state != "failed" and not state.startswith("transformers ")


class Ticker:
    """Looks at the clock for a log, in a thread that nothing which runs can hold up."""

    def __init__(
        self, tick: Callable[[], None], wait: Callable[[float], bool] | None = None
    ) -> None:
        """Take what is called every second; ``wait`` returns True when there is to be no more."""
        self._tick = tick
        self._ended = Event()
        self._wait = wait or self._ended.wait
        self._thread = Thread(target=self.run, name="samebits progress", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def run(self) -> None:
        """Call it until the end; a log that is gone ends it, too."""
        with suppress(OSError, ValueError):
            while not self._wait(TICK):
                self._tick()

    def end(self) -> None:
        """Call it no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(_LAST_LINE)


class Plain:
    """Whole lines without control codes, for logs and pipes; cells that succeed stay silent."""

    def __init__(
        self, stream: TextIO, total: int, clock: Callable[[], float], spoken: Spoken = NOBODY
    ) -> None:
        self._stream = stream
        self._spoken = spoken
        self._tally = Tally(total, clock)
        self._lock = Lock()
        self._last = clock()
        self._ticker = Ticker(self.tick)
        if total:  # what is asked before the plan is known has none
            self._line(f"samebits: {plural(total, 'cell')} to run")

    def ticking(self) -> Self:
        """Begin to write how far the run is, until :meth:`close`; return this."""
        self._ticker.start()
        return self

    def stack(self, id: str, state: str) -> None:
        """Write one line for each new state of a stack."""
        with self._lock:
            if self._tally.stacks.get(id) != state:
                self._tally.stacks[id] = state
                self._line(f"stack {id}: {state}")

    def begin(self, phase: str, total: int, what: str) -> None:
        """Write what begins."""
        with self._lock:
            first = not self._tally.open
            self._tally.begin(phase, total)
            if what:
                if first:
                    self._fold(phase)
                self._line(f"{phase}: {what}")
                self._last = self._tally.clock()

    def expect(self, estimate: Estimate) -> None:
        """Write nothing: the lines that follow say how long it will take."""
        with self._lock:
            self._tally.estimate = estimate

    def advance(self, phase: str) -> None:
        """Write nothing: the next line says how many there are."""
        with self._lock:
            self._tally.advance(phase)

    def end(self, phase: str) -> None:
        """Write how long the phase took, if that was long."""
        with self._lock:
            if phase not in self._tally.open:
                return
            took = self._tally.end(phase)
            if not self._tally.open:
                self._unfold()
            if took >= LONG:
                self._line(f"{phase}: done in {duration(took)}")
                self._last = self._tally.clock()

    def start(self, cell: CellId) -> None:
        """Write nothing: a log has no use for what is about to be known."""
        with self._lock:
            self._tally.start(str(cell))

    def step(self, job: str, phase: str, step: int, of: int) -> None:
        """Write nothing: the next line says how far it is."""
        with self._lock:
            self._tally.step(job, phase, step, of)

    def done(self, cell: CellId, outcome: str) -> None:
        """Write nothing: the next line says how many there are."""
        with self._lock:
            self._tally.done(str(cell), outcome)

    def failure(self, text: str) -> None:
        """Write the line."""
        self.note(text)

    def note(self, text: str) -> None:
        """Write the line."""
        with self._lock:
            self._line(text)

    def tick(self) -> None:
        """Write how far the run is, if no line has said so for long."""
        with self._lock:
            now = self._tally.clock()
            if now - self._last >= QUIET:
                self._last = now
                self._line(self._tally.status())

    def close(self) -> None:
        """Write what came of the cells, and how long it took."""
        self._ticker.end()
        with self._lock:
            if self._tally.open:
                self._tally.open.clear()
                self._unfold()
            if self._tally.total:
                self._line(_closing(self._tally))

    def _fold(self, title: str) -> None:
        """Begin lines that belong together, where a log can fold them."""

    def _unfold(self) -> None:
        """End them."""

    def _line(self, text: str) -> None:
        self._write(self._spoken.text(text))

    def _write(self, text: str) -> None:
        encoding = self._stream.encoding or "utf-8"
        # A log in the C locale must not end a run for want of a character.
        line = text.encode(encoding, "backslashreplace").decode(encoding)
        self._stream.write(f"{line}\n")
        self._stream.flush()


class GitHub(Plain):
    """The same lines for a log of GitHub Actions: folded by phase, failures as annotations.

    A failure is a warning and no error: whether it fails the run is known when all is compared, and
    the last lines and the exit code say it.
    """

    _is_folded = False

    def failure(self, text: str) -> None:
        """Write the line as a warning, which also stands on the page of the workflow's run."""
        with self._lock:
            said = self._spoken.text(text).replace("%", "%25")
            self._write(f"::warning title=samebits::{said}")

    def _fold(self, title: str) -> None:
        self._is_folded = True
        self._write(f"::group::{self._spoken.text(title)}")

    def _unfold(self) -> None:
        if self._is_folded:
            self._is_folded = False
            self._write("::endgroup::")

    def _line(self, text: str) -> None:
        # what a model's exception says must not be taken for a command of the log
        said = self._spoken.text(text).replace("##[", "## [")
        self._write(f" {said}" if said.lstrip().startswith("::") else said)


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

    def begin(self, phase: str, total: int, what: str) -> None:
        """Show the phase, and leave a line above that says what is done in it."""
        with self._lock:
            self._tally.begin(phase, total)
        if what:
            self.note(f"{phase}: {what}")

    def expect(self, estimate: Estimate) -> None:
        """Take it for the time that is left."""
        with self._lock:
            self._tally.estimate = estimate

    def advance(self, phase: str) -> None:
        """Move the phase's bar."""
        with self._lock:
            self._tally.advance(phase)

    def end(self, phase: str) -> None:
        """Take the phase away; leave a line above if it was long."""
        with self._lock:
            if phase not in self._tally.open:
                return
            took = self._tally.end(phase)
        if took >= LONG:
            self.note(f"{phase}: done in {duration(took)}")

    def start(self, cell: CellId) -> None:
        """Show the cell among those that run."""
        with self._lock:
            self._tally.start(str(cell))

    def step(self, job: str, phase: str, step: int, of: int) -> None:
        """Show it behind the job that runs."""
        with self._lock:
            self._tally.step(job, phase, step, of)

    def done(self, cell: CellId, outcome: str) -> None:
        """Count the cell."""
        with self._lock:
            self._tally.done(str(cell), outcome)

    def failure(self, text: str) -> None:
        """Leave a line above."""
        self.note(text)

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
            parts = (self._stacks(), self._phases(), self._running())
            return Group(*(part for part in parts if part is not None))

    def _stacks(self) -> Text | None:
        states = [f"{id} {state}" for id, state in self._tally.stacks.items()]
        return self._one_line("stacks   ", ", ".join(states)) if states else None

    def _phases(self) -> Table:
        """Return a bar for the phase that began last and is open; the time is that of the run."""
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
        told = f"{label}{self._spoken.text(text)}"
        return Text(told, no_wrap=True, overflow="ellipsis")


def _times(tally: Tally) -> Text:
    failed = tally.outcomes.get("failed", 0)
    counted = f"{failed:,} failed" if failed else ""
    said = ", ".join(filter(None, (duration(tally.elapsed), tally.ending(), counted)))
    return Text(said, no_wrap=True)


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
    if environment.get("GITHUB_ACTIONS") == "true":
        return GitHub(stream, total, clock, spoken).ticking()
    if not stream.isatty() or environment.get("CI") or environment.get("TERM") == "dumb":
        return Plain(stream, total, clock, spoken).ticking()
    return Terminal(Console(file=stream), total, clock, spoken)
