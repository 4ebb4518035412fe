"""Which cells Trainer trains in float64, and when."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from samebits.questions.question import RowName
from samebits.questions.trainer.ask import ask
from samebits.questions.trainer.records import RUN
from samebits.questions.trainer.tasks import RunTask
from samebits.questions.training.records import TrainingComparison, TrainingOfRow, TrainingReport
from samebits.records.capture import Failure
from tests.questions.trainer.test_trainer_compare import file, run
from tests.support.asked_run import CELL, LATER, PLAN, REF, AskedRun

LOST = Failure(phase="trainer", type="Killed", message="", traceback="")


class Scheduler:
    """Answers for cells with a shift of their weights, by name of the stack."""

    def __init__(self, shifts, *, lost=()):
        self.shifts = shifts
        self.lost = lost
        """Stacks whose run in float64 ends the process."""
        self.trained = []
        self.run = None

    def answer(self, kind, task, cell):
        assert (kind, task.folder) == (RUN, "/with/accelerate")
        self.trained.append((cell.stack, task.values))
        return self._file(self.run.store, cell.stack, task.values)

    def _file(self, memory, stack, values):
        if values and stack in self.lost:
            return LOST
        own = run(memory, shift=self.shifts.get(stack, 0.0))
        return file(stack, own, run(memory, np.float64) if values else None)


def step(standing="identical"):
    comparison = TrainingComparison(reference="4.48", standing=standing, counts={standing: 1})
    return TrainingReport(losses={"padded": 2.0}, comparison=comparison)


def trained(scheduler, later):
    """Return what Trainer does, by cell, in a row whose last cell has this step."""
    steps = {REF: TrainingReport(losses={"padded": 2.0}), CELL: step(), LATER: later}
    name = RowName(PLAN.rows[0].model, str(PLAN.rows[0].variant))
    asked = TrainingOfRow(stacks={cell.stack: of for cell, of in steps.items()})
    results = [SimpleNamespace(cell=c, reference=None if c == REF else REF) for c in steps]
    answers = {"training": {name: asked}}
    scheduler.run = AskedRun(scheduler.answer, PLAN, results, answers)
    (answer,) = asyncio.run(ask(scheduler.run)).values()
    return {cell: answer.stacks.get(cell.stack) for cell in steps}


def test_cells_whose_steps_are_equal_are_trained_once_without_float64():
    scheduler = Scheduler({})
    reports = trained(scheduler, step())
    assert scheduler.trained == [("4.48", False), ("5.2", False), ("5.x", False)]
    assert reports[LATER].comparison.standing == "identical"


def test_a_pair_whose_step_differs_is_trained_once_with_float64():
    scheduler = Scheduler({"5.x": 1e-7})
    reports = trained(scheduler, step("rounding"))
    assert scheduler.trained == [("4.48", True), ("5.x", True), ("5.2", False)]
    assert reports[LATER].comparison.standing == "rounding"
    assert reports[CELL].comparison.standing == "identical"


def test_a_pair_whose_step_is_equal_and_trainer_is_not_is_trained_again():
    scheduler = Scheduler({"5.x": 1e-7})
    reports = trained(scheduler, step())
    assert scheduler.trained[3:] == [("4.48", True), ("5.x", True)]
    assert reports[LATER].comparison.standing == "rounding"


@pytest.mark.parametrize("later", [step("rounding"), step()], ids=["at once", "again"])
def test_a_process_lost_in_float64_leaves_the_plain_run(later):
    scheduler = Scheduler({"5.x": 1e-7}, lost=["5.x"])
    report = trained(scheduler, later)[LATER]
    assert ("5.x", False) in scheduler.trained
    assert report.failure is None
    assert report.comparison.standing == "undecided"


def test_a_cell_without_a_step_is_not_trained():
    scheduler = Scheduler({})
    reports = trained(scheduler, TrainingReport(reason="no loss"))
    assert scheduler.trained == [("4.48", False), ("5.2", False)]
    assert reports[LATER] is None


def test_without_a_training_step_trainer_is_not_asked():
    run = AskedRun(lambda *_: pytest.fail("nothing is asked"), PLAN)
    assert asyncio.run(ask(run)) == {}


def test_an_answer_follows_from_the_stack_and_not_from_the_folder_of_accelerate():
    facts = RunTask(folder="/with/accelerate", values=False, large=False).facts()
    assert facts == {"values": False, "large": False}
