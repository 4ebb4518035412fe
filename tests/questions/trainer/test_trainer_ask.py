"""Which cells Trainer trains in float64, and when."""

import asyncio

import numpy as np
import pytest

from samebits.pipeline.trainer import with_trainer
from samebits.records.capture import Failure
from samebits.records.training import TrainingComparison, TrainingReport
from tests.support.builders import Memory, cell_id
from tests.training.test_trainer_compare import file, run

REF, CELL, LATER = cell_id("4.48"), cell_id("5.2"), cell_id("5.x")
LOST = Failure(phase="trainer", type="Killed", message="", traceback="")


class Scheduler:
    """Answers for cells with a shift of their weights, by name of the stack."""

    def __init__(self, shifts, *, lost=()):
        self.memory = Memory()
        self.shifts = shifts
        self.lost = lost
        """Stacks whose run in float64 ends the process."""
        self.trained = []

    async def train_by_trainer(self, cells, *, values=False):
        self.trained += [(cell.stack, values) for cell in cells]
        return {cell: self._file(cell.stack, values) for cell in cells}

    def _file(self, stack, values):
        if values and stack in self.lost:
            return file(stack, None, failure=LOST)
        own = run(self.memory, shift=self.shifts.get(stack, 0.0))
        return file(stack, own, run(self.memory, np.float64) if values else None)


def step(standing="identical"):
    comparison = TrainingComparison(reference="4.48", standing=standing, counts={standing: 1})
    return TrainingReport(losses={"padded": 2.0}, comparison=comparison)


def trained(scheduler, later):
    steps = {REF: TrainingReport(losses={"padded": 2.0}), CELL: step(), LATER: later}
    pairs = {CELL: REF, LATER: REF}
    return asyncio.run(with_trainer(steps, pairs, scheduler, scheduler.memory))


def test_cells_whose_steps_are_equal_are_trained_once_without_float64():
    scheduler = Scheduler({})
    reports = trained(scheduler, step())
    assert scheduler.trained == [("4.48", False), ("5.2", False), ("5.x", False)]
    assert reports[LATER].trainer.comparison.standing == "identical"


def test_a_pair_whose_step_differs_is_trained_once_with_float64():
    scheduler = Scheduler({"5.x": 1e-7})
    reports = trained(scheduler, step("rounding"))
    assert scheduler.trained == [("4.48", True), ("5.x", True), ("5.2", False)]
    assert reports[LATER].trainer.comparison.standing == "rounding"
    assert reports[CELL].trainer.comparison.standing == "identical"


def test_a_pair_whose_step_is_equal_and_trainer_is_not_is_trained_again():
    scheduler = Scheduler({"5.x": 1e-7})
    reports = trained(scheduler, step())
    assert scheduler.trained[3:] == [("4.48", True), ("5.x", True)]
    assert reports[LATER].trainer.comparison.standing == "rounding"


@pytest.mark.parametrize("later", [step("rounding"), step()], ids=["at once", "again"])
def test_a_process_lost_in_float64_leaves_the_plain_run(later):
    scheduler = Scheduler({"5.x": 1e-7}, lost=["5.x"])
    report = trained(scheduler, later)[LATER].trainer
    assert ("5.x", False) in scheduler.trained
    assert report.failure is None
    assert report.comparison.standing == "undecided"


def test_a_cell_without_a_step_is_not_trained():
    scheduler = Scheduler({})
    reports = trained(scheduler, TrainingReport(reason="no loss"))
    assert scheduler.trained == [("4.48", False), ("5.2", False)]
    assert reports[LATER].trainer is None
