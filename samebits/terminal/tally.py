"""The state of a run, as progress shows it: what is done, what runs, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from samebits.stacks.costs import Estimate
from samebits.text.numbers import duration, plural

MAX_RUNNING = 6
"""Maximum number of running cells, and of environments, shown by name."""
_MIN_SHARE = 0.1
"""Minimum share of the cells' expected cost after which their pace adjusts later phases."""


SHOWN = {
    "stacks": "environments",
    "cells": "runs",
    "second look": "fetching values that differ",
    "grafts": "swap test",
    "step grafts": "swap test of the loss",
    "crossings": "save and load",
    "capsules": "reproducers",
}
"""Phase -> its name for a reader, where that is another one."""


def shown(phase: str) -> str:
    """Return the name of a phase for a reader."""
    return SHOWN.get(phase, phase)


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
        """Return the open phases that have jobs left, such as ``runs: 3 of 12``."""
        parts = [
            f"{shown(name)}: {phase.done:,} of {phase.total:,}" if phase.total else shown(name)
            for name, phase in self.open.items()
            if phase.done < phase.total or not phase.total or len(self.open) == 1
        ]
        if parts:
            return ", ".join(parts)
        last = next(reversed(self.taken), "")
        return f"after {shown(last)}" if last else "starting"

    def busy(self) -> str:
        """Return the names of what runs now, at most ``MAX_RUNNING``; '' if there is none."""
        if "stacks" in self.open and not self.running:
            busy = (item for item in self.stacks.items() if item[0] not in self.idle_stacks)
            return _first([f"{id} {state}" for id, state in busy], ", ")
        jobs = [f"{job}: {progress}" if progress else job for job, progress in self.running.items()]
        return _first(jobs, "; ")

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

    def closing(self) -> str:
        """Return the last line of a run: how many cells ended, and how."""
        counts = f"{self.n_done:,} of {plural(self.total, 'run')} in {duration(self.elapsed)}"
        return f"{counts}: {self.summary()}" if self.outcomes else counts


def _first(names: list[str], between: str) -> str:
    """Join the first ``MAX_RUNNING`` names, and count the others."""
    n_more = len(names) - MAX_RUNNING
    shown_names = between.join(names[:MAX_RUNNING])
    return f"{shown_names} and {n_more:,} more" if n_more > 0 else shown_names
