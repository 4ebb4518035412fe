"""What raises in training or in Trainer on one side only differs."""

import pytest

from samebits.compare.raised import checks_of_jobs
from samebits.questions.edits.records import Edit
from samebits.questions.trainer.records import Ended, TrainerOfRow, TrainerReport
from samebits.questions.training.records import (
    TrainingOfRow,
    TrainingRelation,
    TrainingRelations,
    TrainingReport,
    Untried,
)
from samebits.records.capture import Failure

ERROR = "TypeError: Unsupported dtype float8_e4m3fn"
WAY = "gradient checkpointing = without"
PLACE = "from_pretrained(device_map='auto')"
BY_TRAINER = "Trainer: rows accumulated = one batch"


def trained(*, losses=None, refused=None, relations=None, failure=None, trainer=None):
    """Return the answers of a row about one cell."""
    step = TrainingReport(
        losses=losses or {}, refused=refused or {}, relations=relations, failure=failure
    )
    return step, trainer


def checks_of(reference, candidate):
    """Return the checks of a row whose sides are trained like this."""
    sides = {"4.48": reference, "5.x": candidate}
    answers = {
        "training": TrainingOfRow(stacks={stack: step for stack, (step, _) in sides.items()}),
        "trainer": TrainerOfRow(stacks={s: run for s, (_, run) in sides.items() if run}),
    }
    return checks_of_jobs(answers, "4.48", "5.x")


def ways(text="", *, raised=True, name=WAY):
    if text:
        return TrainingRelations(inapplicable=(Untried(relation=name, reason=text, raised=raised),))
    return TrainingRelations(relations=(TrainingRelation(relation=name, holds=True, broken=False),))


RAISING = Failure(
    phase="training", type="TypeError", message=ERROR.partition(": ")[2], traceback=""
)
TRAINING = {
    "the step": (trained(losses={"padded": 1.0}), trained(failure=RAISING), "training"),
    "a batch": (
        trained(losses={"padded": 1.0, "items": 1.0}),
        trained(losses={"padded": 1.0}, refused={"items": ERROR}),
        "training batch items",
    ),
    "a relation": (
        trained(relations=ways()),
        trained(relations=ways(ERROR)),
        f"training relations {WAY}",
    ),
    "the relation of Trainer": (
        trained(trainer=TrainerReport(relations=ways(name=BY_TRAINER))),
        trained(trainer=TrainerReport(relations=ways(ERROR, name=BY_TRAINER))),
        f"training relations {BY_TRAINER}",
    ),
    "Trainer": (
        trained(trainer=TrainerReport(losses=(1.0,))),
        trained(trainer=TrainerReport(failure=RAISING)),
        "trainer",
    ),
    "the best checkpoint": (
        trained(trainer=TrainerReport(ends={"best": Ended(best=2, steps=(2,))})),
        trained(trainer=TrainerReport(ends={"best": Ended(refused=ERROR)})),
        "trainer best load_best_model_at_end, save_strategy=best",
    ),
    "a place": (
        trained(trainer=TrainerReport(placed={PLACE: Edit(raised={"": "", "forward": ""})})),
        trained(trainer=TrainerReport(placed={PLACE: Edit(raised={"": "", "forward": ERROR})})),
        f"trainer {PLACE}, forward",
    ),
}


@pytest.mark.parametrize(("answers", "raises", "name"), TRAINING.values(), ids=TRAINING)
def test_what_raises_in_training_of_one_side_differs(answers, raises, name):
    (check,) = checks_of(answers, raises)
    assert (check.name, check.reference, check.candidate) == (name, "", ERROR)
    (reverse,) = checks_of(raises, answers)
    assert (reverse.reference, reverse.candidate, reverse.differs) == (ERROR, "", True)
    assert checks_of(answers, answers) == ()
    assert check.is_of_release is (PLACE in name)
    (both,) = checks_of(raises, raises)
    assert (both.differs, both.is_same) == (False, True)


def test_training_that_a_side_did_not_try_says_nothing():
    raises = trained(failure=RAISING, relations=ways(ERROR))
    assert checks_of(trained(), raises) == ()
    assert checks_of(trained(relations=ways("by design", raised=False)), raises) == ()
    accelerate = trained(
        trainer=TrainerReport(reason="accelerate cannot be used here: ImportError")
    )
    assert checks_of(trained(trainer=TrainerReport(losses=(1.0,))), accelerate) == ()
    short = trained(relations=ways("OutOfMemoryError: CUDA"))
    assert checks_of(trained(relations=ways()), short) == ()
