"""A plain step and Trainer judge the same numbers and the same tensors alike."""

from math import inf, nan

import numpy as np
import pytest

from samebits.compare.standing import LEAKED, NOT_FINITE
from samebits.questions.trainer.compare import Pair
from samebits.questions.trainer.records import TrainerItem
from samebits.questions.training.compare import Steps
from samebits.questions.training.judge import NO_VALUES, Summary
from samebits.questions.training.records import TrainingItem
from tests.questions.trainer import test_trainer_compare as trainer
from tests.questions.training import test_training_compare as training
from tests.support.builders import Memory

ITEMS = (
    TrainingItem(signal="norm", outcome="identical"),
    TrainerItem(signal="norms", run="row by row", place="step 1", outcome="identical"),
)
LEAKS = ("aten::mm",)


def judges(memory, leaks=()):
    """Return both judges; the float64 of their candidates has these leaks."""
    step = training.step(memory)
    runs = {"runs": {}, "leaks": leaks}
    return (
        Steps(
            training.file("4.48", step, step),
            training.file("5.x", step, step | {"leaks": leaks}),
            memory,
        ),
        Pair(
            trainer.file("4.48", None, float64=runs),
            trainer.file("5.x", None, float64=runs),
            memory,
        ),
    )


DIFFERENCES = [
    ((1.0, 1.0), (1.0, 2.0), (), "identical", ""),
    ((nan, nan), (1.0, 2.0), (), "identical", ""),
    ((1.0, 1.1), (1.0, 1.0), (), "rounding", ""),
    ((1.0, 1.1), (1.0, 1.0), LEAKS, "rounding", ""),
    ((1.0, 1.1), (1.0, 1.1), (), "diverged", ""),
    ((1.0, 1.1), (1.0, 1.1), LEAKS, "undecided", LEAKED),
    ((1.0, 1.1), (1.0, 1.001), LEAKS, "undecided", LEAKED),
    ((1.0, 1.1), (None, 1.1), (), "undecided", NO_VALUES),
    ((1.0, nan), (1.0, 1.0), (), "diverged", NOT_FINITE),
    ((1.0, 1.1), (1.0, nan), LEAKS, "diverged", NOT_FINITE),
    ((inf, -inf), (1.0, 1.0), (), "diverged", NOT_FINITE),
]


@pytest.mark.parametrize(("own", "high", "leaks", "outcome", "note"), DIFFERENCES)
def test_a_step_and_trainer_judge_alike(own, high, leaks, outcome, note):
    memory = Memory()

    def ref(number, dtype):
        return None if number is None else memory.put(np.array([number, 1.0], dtype))

    for judge, item in zip(judges(memory, leaks), ITEMS, strict=True):
        sides = item.model_copy(update={"reference": own[0], "candidate": own[1]})
        refs = [ref(number, np.float32) for number in own]
        exact = [ref(number, np.float64) for number in high]
        for result in (judge.numbers(sides, high, ""), judge.tensors(item, refs, exact)):
            assert (result.outcome, result.note) == (outcome, note)


def test_only_a_step_notes_that_float64_removes_a_part():
    notes = set()
    for judge, item in zip(judges(Memory()), ITEMS, strict=True):
        sides = item.model_copy(update={"reference": 1.0, "candidate": 1.1})
        result = judge.numbers(sides, (1.0, 1.001), "")
        assert result.outcome == "undecided"
        notes.add(result.note)
    assert notes == {Steps.partly, ""}


@pytest.mark.parametrize("item", ITEMS)
def test_what_is_not_compared_is_first_only_where_nothing_is(item):
    apart = item.model_copy(update={"outcome": "not compared"})
    assert Summary([apart]).first is apart
    assert Summary([apart]).standing == "not compared"
    assert Summary([item, apart]).first is None
    assert Summary([item, apart]).standing == "identical"
