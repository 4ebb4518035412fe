"""Which cells are trained for one step in float64, and when."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from samebits.questions.training.ask import ask
from samebits.questions.training.records import STEP
from samebits.records.capture import Failure
from samebits.records.ids import Verdict
from tests.questions.training.test_training_compare import file, step
from tests.support.asked_run import CELL, LATER, PLAN, REF, AskedRun

LOST = Failure(phase="training", type="Killed", message="", traceback="")


class Scheduler:
    """Trains cells, whose gradients have a shift by name of the stack."""

    def __init__(self, shifts, *, lost=()):
        self.shifts = shifts
        self.lost = lost
        """Stacks whose step in float64 ends the process."""
        self.trained = []
        self.run = None

    def answer(self, kind, task, cell):
        assert kind is STEP
        self.trained.append((cell.stack, task.values, task.relations))
        return self._file(self.run.store, cell.stack, task.values, task.relations)

    def _file(self, memory, stack, values, relations):
        if values and stack in self.lost:
            return LOST
        own = step(memory, gradients={"a": self.shifts.get(stack, 0.0)})
        high = step(memory, dtype=np.float64) if values else None
        return file(stack, own, high, relations={} if relations else None)


def train(scheduler, later):
    """Return what is reported, by cell, of a row whose last cell has this verdict."""
    verdicts = {REF: Verdict.REFERENCE, CELL: Verdict.IDENTICAL, LATER: later}
    results = [
        SimpleNamespace(cell=cell, judged=verdict, reference=None if cell == REF else REF)
        for cell, verdict in verdicts.items()
    ]
    scheduler.run = AskedRun(scheduler.answer, PLAN, results)
    (answer,) = asyncio.run(ask(scheduler.run)).values()
    return {cell: answer.stacks[cell.stack] for cell in verdicts if cell.stack in answer.stacks}


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
