"""Which cells are trained for one step in float64, and when."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from samebits.matrix.plan import Plan, PlannedRow
from samebits.pipeline.training import trained
from samebits.records.capture import Failure
from samebits.records.ids import Verdict
from samebits.records.trainer_file import TrainerFile
from tests.support.builders import Memory, cell_id
from tests.training.test_training_compare import file, step

REF, CELL, LATER = cell_id("4.48"), cell_id("5.2"), cell_id("5.x")
LOST = Failure(phase="training", type="Killed", message="", traceback="")
PLAN = Plan(
    rows=(
        PlannedRow(model="llama", variant=REF.variant, cells=(REF, CELL, LATER), reference="4.48"),
    ),
    stacks=("4.48", "5.2", "5.x"),
)
MATRIX = SimpleNamespace(model=lambda _: SimpleNamespace(training=True))


class Scheduler:
    """Trains cells, whose gradients have a shift by name of the stack."""

    def __init__(self, shifts, *, lost=()):
        self.memory = Memory()
        self.shifts = shifts
        self.lost = lost
        """Stacks whose step in float64 ends the process."""
        self.trained = []

    async def train(self, cells, *, values=False, relations=True):
        self.trained += [(cell.stack, values, relations) for cell in cells]
        return {cell: self._file(cell.stack, values, relations) for cell in cells}

    def _file(self, stack, values, relations):
        if values and stack in self.lost:
            return file(stack, None, failure=LOST)
        own = step(self.memory, gradients={"a": self.shifts.get(stack, 0.0)})
        high = step(self.memory, dtype=np.float64) if values else None
        return file(stack, own, high, relations={} if relations else None)

    async def step_origins(self, questions):
        return dict.fromkeys(questions, "")

    async def step_grafts(self, questions):
        return dict.fromkeys(questions, "")

    async def train_by_trainer(self, cells, *, values=False):
        return {cell: TrainerFile(cell=cell, reason="not here") for cell in cells}


def train(scheduler, later):
    """Return what is reported of a row whose last cell has this verdict."""
    verdicts = {REF: Verdict.REFERENCE, CELL: Verdict.IDENTICAL, LATER: later}
    results = [
        SimpleNamespace(cell=cell, judged=verdict, reference=None if cell == REF else REF)
        for cell, verdict in verdicts.items()
    ]
    return asyncio.run(trained(MATRIX, PLAN, scheduler, results, scheduler.memory))


def test_cells_whose_forwards_are_equal_are_trained_once_without_float64():
    scheduler = Scheduler({})
    reports = train(scheduler, Verdict.IDENTICAL)
    assert scheduler.trained == [(stack, False, True) for stack in PLAN.stacks]
    assert reports[LATER].comparison.standing == "identical"


def test_a_pair_whose_forward_differs_is_trained_once_with_float64():
    scheduler = Scheduler({"5.x": 1e-7})
    reports = train(scheduler, Verdict.ROUNDING)
    assert scheduler.trained == [("4.48", True, True), ("5.x", True, True), ("5.2", False, True)]
    assert reports[LATER].comparison.standing == "rounding"
    assert all(report.relations is not None for report in reports.values())


def test_a_pair_whose_step_alone_differs_is_trained_again_without_the_relations():
    scheduler = Scheduler({"5.x": 1e-7})
    reports = train(scheduler, Verdict.IDENTICAL)
    assert scheduler.trained[3:] == [("4.48", True, False), ("5.x", True, False)]
    assert reports[LATER].comparison.standing == "rounding"
    assert all(report.relations is not None for report in reports.values())


@pytest.mark.parametrize("later", [Verdict.ROUNDING, Verdict.IDENTICAL])
def test_a_process_lost_in_float64_leaves_the_plain_step(later):
    scheduler = Scheduler({"5.x": 1e-7}, lost=["5.x"])
    report = train(scheduler, later)[LATER]
    assert ("5.x", False, True) in scheduler.trained
    assert report.failure is None
    assert report.comparison.standing == "undecided"


@pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.ABSENT, Verdict.NOT_FINISHED])
def test_a_cell_without_a_model_is_not_trained(verdict):
    scheduler = Scheduler({})
    assert LATER not in train(scheduler, verdict)
    assert [stack for stack, *_ in scheduler.trained] == ["4.48", "5.2"]
