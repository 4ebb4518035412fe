"""Estimate of how long a run will take, from the costs of jobs in earlier runs.

Each run writes the costs of its jobs to one small file in the work folder. The next run adds up the
costs of the cells that have no captures. The file is used only for the estimate: if it is missing,
damaged or in another format, there is no estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from samebits.records.ids import Level
from samebits.records.kinds import kinds as all_kinds
from samebits.records.record import Record, read_record
from samebits_wire import seal
from samebits_wire.atomic import replace

FILE = "costs.json"
"""Name of the file in the work folder."""

MAX_CELLS = 20_000
"""Maximum number of cells in the file; those that ran longest ago are dropped first."""

BY_CELLS = ("comparing", "findings")
"""Phases of the host process, whose time grows with the number of new cells."""

_MIN_JOB_SECONDS = 10.0
"""Minimum seconds of jobs for a run to update ``stretch``."""


class Cost(Record):
    """The cost of one cell's jobs of one kind."""

    jobs: PositiveInt
    seconds: NonNegativeFloat
    """Wall clock times the slots that the job took, summed over the jobs."""
    cpu: NonNegativeFloat
    level: Level = "default"
    """The level of the run."""


class Costs(Record):
    """The costs of earlier runs, as stored on disk."""

    format: Literal["samebits-costs"] = "samebits-costs"
    format_version: Literal[2] = 2
    new: NonNegativeInt = 0
    """Number of cells without captures in the last finished run that had any."""
    phases: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """Phase -> its wall clock seconds in that run."""
    stretch: float = Field(default=1.0, ge=1.0, le=10.0)
    """Wall clock of the phases that wait for jobs, divided by (seconds of jobs / slots)."""
    of: dict[str, dict[str, Cost]] = Field(default_factory=dict)
    """Cell -> kind of job -> cost in the last run that had such a job."""


class Spending(NamedTuple):
    """One job of this run."""

    cell: str
    """'' for a job without a cell, such as one that makes a checkpoint."""
    kind: str
    seconds: float
    """Wall clock times the slots that it took."""
    cpu: float


class Estimate(NamedTuple):
    """The expected duration of a run."""

    phases: Mapping[str, float]
    """Phase -> wall clock seconds."""
    weights: Mapping[str, float]
    """Cell to run -> seconds of its jobs, so that progress weighs cells by their cost."""

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return sum(self.phases.values())


def read(root: Path) -> Costs | None:
    """Return the costs of earlier runs; None if the file is missing or damaged."""
    return read_record(root / FILE, Costs)


def phases_of_kinds() -> dict[str, str]:
    """Return kind of job -> the phase of a run in which most jobs of the kind run."""
    return {kind.name: kind.phase for kind in all_kinds() if kind.phase}


def estimate(
    costs: Costs | None, needed: Collection[str], slots: int, level: Level = "default"
) -> Estimate | None:
    """Return the expected duration of ``needed`` cells and of later phases; None without costs.

    A cell without costs is expected to cost the average of its model's cells, or else the average
    of all cells. Costs of runs at another level do not count.
    """
    if costs is None or not needed or not (of := _of_level(costs, level)):
        return None
    by_model: dict[str, list[dict[str, Cost]]] = defaultdict(list)
    for cell, kinds in of.items():
        by_model[_model(cell)].append(kinds)
    overall = _average(of.values())
    averages = {model: _average(cells) for model, cells in by_model.items()}
    jobs: dict[str, float] = defaultdict(float)
    phase_of = phases_of_kinds()
    weights: dict[str, float] = {}
    for cell in needed:
        measured = of.get(cell)
        expected = _average([measured]) if measured else averages.get(_model(cell), overall)
        weights[cell] = expected.get("cell", 0.0)
        for kind, seconds in expected.items():
            if kind in phase_of:
                jobs[phase_of[kind]] += seconds
    phases = {phase: seconds / slots * costs.stretch for phase, seconds in jobs.items()}
    new_share = len(needed) / costs.new if costs.new else 0.0
    phases |= {name: costs.phases[name] * new_share for name in BY_CELLS if name in costs.phases}
    if "capsules" in costs.phases:  # the number of capsules is limited
        phases["capsules"] = costs.phases["capsules"] * min(1.0, new_share)
    return Estimate(phases, weights)


def _of_level(costs: Costs, level: Level) -> dict[str, dict[str, Cost]]:
    """Return the costs of the cells that the last run at ``level`` had jobs of."""
    by_cell = {
        cell: {kind: cost for kind, cost in kinds.items() if cost.level == level}
        for cell, kinds in costs.of.items()
    }
    return {cell: kinds for cell, kinds in by_cell.items() if kinds}


def _model(cell: str) -> str:
    return cell.partition("/")[0]


def _average(cells: Collection[Mapping[str, Cost]]) -> dict[str, float]:
    """Return kind -> average seconds per cell; a cell without a job of the kind counts as 0."""
    total: dict[str, float] = defaultdict(float)
    for kinds in cells:
        for kind, cost in kinds.items():
            total[kind] += cost.seconds
    return {kind: seconds / len(cells) for kind, seconds in total.items()}


def merged(
    before: Costs | None,
    spent: Iterable[Spending],
    phases: Mapping[str, float],
    slots: int,
    *,
    new: int,
    finished: bool,
    level: Level = "default",
) -> Costs:
    """Return the costs of earlier runs updated with those of this run.

    ``finished`` is False for an interrupted run, whose jobs count all the same.
    """
    before = before or Costs()
    jobs_of: dict[str, dict[str, list[Spending]]] = defaultdict(lambda: defaultdict(list))
    for job in spent:
        jobs_of[job.cell][job.kind].append(job)
    phase_of = phases_of_kinds()
    job_seconds = sum(
        job.seconds
        for kinds in jobs_of.values()
        for kind, jobs in kinds.items()
        if kind in phase_of
        for job in jobs
    )
    jobs_of.pop("", None)
    cell_costs = dict(before.of)
    for cell, kinds in jobs_of.items():
        # moves the cell to the end, so that the first cells are those that ran longest ago
        cell_costs[cell] = cell_costs.pop(cell, {}) | {
            kind: _cost(jobs, level) for kind, jobs in kinds.items()
        }
    for cell in list(cell_costs)[: max(0, len(cell_costs) - MAX_CELLS)]:
        del cell_costs[cell]
    update: dict[str, object] = {"of": cell_costs}
    if finished:
        # a run without new cells does not show the host's time per new cell
        if new:
            update |= {"new": new, "phases": {n: round(s, 1) for n, s in phases.items()}}
        if job_seconds >= _MIN_JOB_SECONDS:
            phase_seconds = sum(phases.get(name, 0.0) for name in {*phase_of.values()})
            update["stretch"] = round(min(10.0, max(1.0, phase_seconds * slots / job_seconds)), 2)
    return before.model_copy(update=update)


def _cost(jobs: Collection[Spending], level: Level) -> Cost:
    seconds = sum(job.seconds for job in jobs)
    cpu = sum(job.cpu for job in jobs)
    return Cost(jobs=len(jobs), seconds=round(seconds, 2), cpu=round(cpu, 2), level=level)


def write(root: Path, costs: Costs) -> None:
    """Write the costs for the next run."""
    replace(root / FILE, seal.sealed(costs.model_dump_json(indent=1)), lasting=False)
