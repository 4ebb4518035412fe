"""How long will a run take, judged by what its jobs took before?

Each run leaves the costs of its jobs in one small file of the folder of work. The next run adds them
up over the cells of which it has no captures. Nothing but the estimate follows from that file, so a
file that is missing, damaged or of another format only means that there is no estimate.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from samebits.base import seal
from samebits.base.atomic import replace
from samebits.records.record import Record, read_record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

FILE = "costs.json"
"""In the folder of work."""

MOST_CELLS = 20_000
"""Cells whose costs stay in the file; those that ran longest ago go first."""

PHASE_OF = {
    "cell": "cells",
    "save": "crossings",
    "load": "crossings",
    "ladder": "third look",
    "trace": "causes",
    "graft": "grafts",
}
"""Kind of job -> the phase of a run in which most jobs of the kind run."""

BY_CELLS = ("comparing", "findings")
"""Phases of the host itself, which take longer the more cells are new."""

_ENOUGH = 10.0
"""Seconds of jobs from which on a run tells how far its wall clock is behind them."""


class Cost(Record):
    """What the jobs of one kind took for one cell."""

    jobs: PositiveInt
    seconds: NonNegativeFloat
    """Wall clock, summed over the jobs."""
    cpu: NonNegativeFloat


class Finished(Record):
    """One run that came to its end."""

    started: str
    """UTC, RFC 3339."""
    seconds: NonNegativeFloat
    """Wall clock."""
    cells: NonNegativeInt
    """Those with captures of earlier runs included."""


class Costs(Record):
    """What earlier runs took, as it lies on disk."""

    format: Literal["samebits-costs"] = "samebits-costs"
    format_version: Literal[1] = 1
    last: Finished | None = None
    """The last run that came to its end."""
    new: NonNegativeInt = 0
    """Cells without captures, in the last finished run that had any."""
    phases: dict[str, NonNegativeFloat] = Field(default_factory=dict)
    """Phase -> seconds of wall clock that it took in that run."""
    stretch: float = Field(default=1.0, ge=1.0, le=10.0)
    """Wall clock of the phases that wait for jobs, over the jobs' seconds shared by the slots."""
    of: dict[str, dict[str, Cost]] = Field(default_factory=dict)
    """Cell -> kind of job -> its cost in the last run in which there was such a job."""


class Spending(NamedTuple):
    """One job that ran in this run."""

    cell: str
    """'' if it is of no cell, such as one that makes a checkpoint."""
    kind: str
    seconds: float
    cpu: float


class Estimate(NamedTuple):
    """What a run will take, by the costs of earlier ones."""

    phases: Mapping[str, float]
    """Phase -> seconds of wall clock."""
    weights: Mapping[str, float]
    """Cell that has to run -> seconds of its jobs, for a pace that knows large cells from small."""

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        return sum(self.phases.values())


def read(root: Path) -> Costs | None:
    """Return what earlier runs took; None if no run left it, or the file is damaged."""
    return read_record(root / FILE, Costs)


def estimate(costs: Costs | None, needed: Collection[str], slots: int) -> Estimate | None:
    """Return what the cells ``needed`` and what follows them will take; None if nothing tells it.

    A cell without costs is expected to cost what the others of its model do on average, else what
    all do.
    """
    if costs is None or not costs.of or not needed:
        return None
    by_model: dict[str, list[dict[str, Cost]]] = defaultdict(list)
    for cell, kinds in costs.of.items():
        by_model[_model(cell)].append(kinds)
    everything = _average(costs.of.values())
    averages = {model: _average(several) for model, several in by_model.items()}
    jobs: dict[str, float] = defaultdict(float)
    weights: dict[str, float] = {}
    for cell in needed:
        measured = costs.of.get(cell)
        taken = _average([measured]) if measured else averages.get(_model(cell), everything)
        weights[cell] = taken.get("cell", 0.0)
        for kind, seconds in taken.items():
            if kind in PHASE_OF:
                jobs[PHASE_OF[kind]] += seconds
    phases = {phase: seconds / slots * costs.stretch for phase, seconds in jobs.items()}
    share = len(needed) / costs.new if costs.new else 0.0
    phases |= {name: costs.phases[name] * share for name in BY_CELLS if name in costs.phases}
    if "capsules" in costs.phases:  # few are made, however many cells stand out
        phases["capsules"] = costs.phases["capsules"] * min(1.0, share)
    return Estimate(phases, weights)


def _model(cell: str) -> str:
    return cell.partition("/")[0]


def _average(several: Collection[Mapping[str, Cost]]) -> dict[str, float]:
    """Return kind -> seconds of an average cell; one without a job of the kind counts as 0."""
    total: dict[str, float] = defaultdict(float)
    for kinds in several:
        for kind, cost in kinds.items():
            total[kind] += cost.seconds
    return {kind: seconds / len(several) for kind, seconds in total.items()}


def merged(
    before: Costs | None,
    spent: Iterable[Spending],
    phases: Mapping[str, float],
    slots: int,
    *,
    new: int,
    finished: Finished | None,
) -> Costs:
    """Return the costs of this run with those that only earlier runs know.

    ``finished`` is None of a run that was interrupted: what its jobs took is true all the same.
    """
    before = before or Costs()
    found: dict[str, dict[str, list[Spending]]] = defaultdict(lambda: defaultdict(list))
    for job in spent:
        found[job.cell][job.kind].append(job)
    waited_for = sum(
        job.seconds
        for kinds in found.values()
        for kind, jobs in kinds.items()
        if kind in PHASE_OF
        for job in jobs
    )
    found.pop("", None)
    of = dict(before.of)
    for cell, kinds in found.items():
        # one that ran moves to the end: the first are those that ran longest ago
        of[cell] = of.pop(cell, {}) | {kind: _cost(jobs) for kind, jobs in kinds.items()}
    for cell in list(of)[: max(0, len(of) - MOST_CELLS)]:
        del of[cell]
    changed: dict[str, object] = {"of": of}
    if finished is not None:
        changed["last"] = finished
        # a run without a new cell does not show what the host takes for one
        if new:
            changed |= {"new": new, "phases": {n: round(s, 1) for n, s in phases.items()}}
        if waited_for >= _ENOUGH:
            waited = sum(phases.get(name, 0.0) for name in {*PHASE_OF.values()})
            changed["stretch"] = round(min(10.0, max(1.0, waited * slots / waited_for)), 2)
    return before.model_copy(update=changed)


def _cost(jobs: Collection[Spending]) -> Cost:
    seconds = sum(job.seconds for job in jobs)
    return Cost(
        jobs=len(jobs), seconds=round(seconds, 2), cpu=round(sum(job.cpu for job in jobs), 2)
    )


def write(root: Path, costs: Costs) -> None:
    """Leave the costs for the next run."""
    replace(root / FILE, seal.sealed(costs.model_dump_json(indent=1)), lasting=False)
