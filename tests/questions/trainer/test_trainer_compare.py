"""What Trainer does with two cells is compared: what it was given exactly, its numbers by float64."""

import numpy as np
import pytest

from samebits.questions.trainer.compare import compared, report_of, with_step
from samebits.questions.trainer.records import TrainerFile
from samebits.questions.training.judge import needs_values
from samebits.questions.training.records import TrainingReport
from samebits.records.capture import Failure
from tests.support.builders import Memory, cell_id, values

RUNS = ("row by row", "accumulated", "one batch")
LABELS = ("0-6", "0-3", "0-11", "0-8")
ARGUMENTS = {"optim": "adamw_torch", "learning_rate": "5e-05", "output_dir": "out"}


def received(
    order=(2, 3, 0, 1), *, items=(7, 4, 12, 9), labels=LABELS, names=("input_ids", "labels")
):
    return [
        {
            "names": names,
            "rows": [row],
            "labels": [labels[row or 0]],
            "items": items[step] if items else None,
        }
        for step, row in enumerate(order)
    ]


def run(memory, dtype=np.float32, *, shift=0.0, loss=2.5, norm=1.5, **changed):
    weight = values(2, 3, seed=1).astype(dtype) + dtype(shift)
    facts = {
        "received": received(),
        "losses": [loss] * 4,
        "norms": [norm] * 4,
        "rates": [[5e-5, 5e-5], [3.75e-5, 3.75e-5], [2.5e-5, 2.5e-5], [1.25e-5, 1.25e-5]],
        "logged_losses": [2.5] * 4,
        "logged_rates": [5e-5, 3.75e-5, 2.5e-5, 1.25e-5],
        "optimizer": "torch.optim.adamw.AdamW",
        "optimizer_arguments": {"betas": "(0.9, 0.999)", "fused": "None"},
        "decayed": ["a"],
        "scheduler": "LambdaLR linear",
        "weights": {"a": memory.put(weight).model_dump(), "b": memory.put(weight * 2).model_dump()},
    }
    return facts | changed


def evaluated(loss=2.5, *, items=(28, 4), predictions=("[4, 12, 99]",), rows=((0, 1, 2), (3,))):
    forwards = [
        {"names": ["input_ids", "labels"], "rows": of, "items": n}
        for of, n in zip(rows, items, strict=True)
    ]
    return {"received": forwards, "loss": loss, "predictions": predictions, "labels": ["[4, 12]"]}


def file(stack, own, high=None, evaluation=None, high_evaluation=None, **changed):
    def facts(run, evaluation):
        if run is None:
            return None
        of_run = {"runs": dict.fromkeys(RUNS, run), "leaks": []}
        return of_run | {"evaluation": evaluation or evaluated()}

    return TrainerFile.model_validate(
        {
            "cell": cell_id(stack),
            "own": facts(own, evaluation),
            "float64": facts(high, high_evaluation),
            "arguments": ARGUMENTS,
        }
        | changed
    )


def pair(change, high_change=None, **of_file):
    """Return the comparison of a plain cell with a changed one, with their float64."""
    memory = Memory()
    high = (None, None)
    if high_change is not None:
        high = (run(memory, np.float64), run(memory, np.float64, **high_change))
    reference = file("4.48", run(memory), high[0])
    candidate = file("5.x", run(memory, **change), high[1], **of_file)
    return compared(reference, candidate, memory)


def test_the_same_runs_are_identical():
    result = pair({})
    assert result.standing == "identical"
    assert result.changes == ()
    assert result.items == ()
    assert set(result.counts) == {"identical"}


def test_what_a_run_leaves_of_the_config_is_compared_and_is_no_cause():
    """Trainer of 5.x sets use_cache to that of its arguments, which changes no number of the run."""
    result = pair({"config": {"use_cache": ("True", "False")}})
    (change,) = result.changes
    assert (change.subject, change.name) == ("config of the model", "use_cache")
    assert (change.reference, change.candidate) == ("left as it is", "set to False")
    assert not change.is_cause
    assert result.standing == "identical"
    memory = Memory()
    both = run(memory, config={"use_cache": ("True", "False")})
    assert compared(file("5.2", both), file("5.x", both), memory).changes == ()


def test_the_loss_of_an_evaluation_is_judged_by_float64_and_is_no_part_of_the_standing():
    lower = {"evaluation": evaluated(2.25)}
    without = pair({}, **lower)
    assert without.evaluation.outcome == "undecided"
    assert needs_values(without)
    diverged = pair({}, {}, **lower, high_evaluation=evaluated(2.25))
    assert diverged.evaluation.outcome == "diverged"
    assert diverged.standing == "identical"
    rounded = pair({}, {}, evaluation=evaluated(2.5 + 1e-6), high_evaluation=evaluated(2.5 + 1e-14))
    assert rounded.evaluation.outcome == "rounding"


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("num_items_in_batch", {"items": (24, 3)}),
        ("num_items_in_batch", {"items": (None, None)}),
        ("predictions", {"predictions": ("[4, 12, 99]", "[4, 2, 12, 8]")}),
        ("rows", {"rows": ((0, 1, 2), (0,))}),
    ],
)
def test_what_an_evaluation_does_otherwise_is_named_and_is_no_cause_of_training(name, changed):
    result = pair({}, evaluation=evaluated(**changed))
    assert [(c.subject, c.name, c.is_cause) for c in result.changes] == [
        ("evaluation", name, False)
    ]


def test_an_evaluation_that_both_releases_refuse_is_no_difference():
    refused = {"refused": "TypeError: no"}
    (change,) = pair({}, evaluation=refused).changes
    assert (change.name, change.candidate) == ("predict()", "TypeError: no")
    memory = Memory()
    files = [file(stack, run(memory), evaluation={"refused": stack}) for stack in ("4.48", "5.x")]
    assert compared(*files, memory).changes == ()


NUMBERS = [
    ("losses", {"loss": 2.6}, {"loss": 2.5 + 1e-12}, {"loss": 2.6}),
    ("norms", {"norm": 1.6}, {"norm": 1.5 + 1e-12}, {"norm": 1.6}),
    ("weights", {"shift": 1e-3}, {"shift": 1e-12}, {"shift": 1e-3}),
]


@pytest.mark.parametrize(("signal", "change", "shrinks", "stays"), NUMBERS)
def test_what_shrinks_is_rounding_and_what_stays_diverged(signal, change, shrinks, stays):
    without = pair(change)
    assert without.standing == "undecided"
    assert needs_values(without)
    assert pair(change, shrinks).standing == "rounding"
    diverged = pair(change, stays)
    assert diverged.standing == "diverged"
    assert (diverged.first.signal, diverged.first.run) == (signal, "row by row")


CAUSES = [
    ("order of rows", {"received": received((0, 1, 2, 3), items=(12, 9, 7, 4))}),
    ("rows received", {"received": received((None, 3, 0, 1))}),
    ("rows received", {"received": received(names=("input_ids",))}),
    ("labels received", {"received": received(labels=("1-6", *LABELS[1:]))}),
    ("num_items_in_batch", {"received": received(items=(6, 3, 11, 8))}),
    ("num_items_in_batch", {"received": received(items=())}),
    ("learning rates", {"rates": [[5e-5, 5e-5]] * 4}),
    ("optimizer", {"optimizer": "torch.optim.sgd.SGD"}),
    ("optimizer", {"optimizer_arguments": {"betas": "(0.9, 0.95)", "fused": "None"}}),
    ("weight decay", {"decayed": ["a", "b"]}),
]


@pytest.mark.parametrize(("subject", "change"), CAUSES)
def test_what_trainer_does_otherwise_is_named_and_its_numbers_are_judged(subject, change):
    result = pair(change | {"loss": 2.6}, {"loss": 2.6})
    assert {c.subject for c in result.changes if c.is_cause} == {subject}
    assert result.standing == "diverged"
    assert subject in result.reason
    assert pair(change).standing == "identical"


def test_another_order_of_the_same_rows_gives_no_other_labels_and_no_other_items():
    result = pair({"received": received((0, 1, 2, 3), items=(12, 9, 7, 4))})
    assert [change.subject for change in result.changes] == ["order of rows"] * 2


def test_a_last_digit_of_a_rate_is_no_other_rate():
    rates = [[5e-5, 5e-5], [3.7500000000000003e-05] * 2, [2.5e-5] * 2, [1.25e-5] * 2]
    assert pair({"rates": rates}).changes == ()


def test_a_fused_optimizer_is_the_same_function():
    change = {"optimizer_arguments": {"betas": "(0.9, 0.999)", "fused": "True"}, "shift": 1e-6}
    result = pair(change, {"shift": 1e-14})
    assert result.standing == "rounding"
    assert [(c.subject, c.name) for c in result.changes] == [("optimizer", "fused")]


def test_a_default_is_named_with_both_values_and_paths_are_not():
    result = pair({}, arguments=ARGUMENTS | {"optim": "adamw_torch_fused", "output_dir": "else"})
    assert [(c.name, c.reference, c.candidate) for c in result.changes] == [
        ("optim", "adamw_torch", "adamw_torch_fused")
    ]
    assert result.standing == "identical"


def test_an_argument_that_one_release_lacks_is_not_compared():
    assert pair({}, arguments=ARGUMENTS | {"use_cache": "False"}).changes == ()


def test_the_log_is_compared_where_the_rates_are_the_same():
    logged = {"logged_rates": [3.75e-5, 2.5e-5, 1.25e-5, 0.0], "logged_losses": [2.51239] * 4}
    result = pair(logged)
    assert [c.subject for c in result.changes] == ["logged learning rates", "rounding of the log"]
    assert result.standing == "identical"
    both = pair(logged | {"rates": [[5e-5, 5e-5]] * 4})
    assert "logged learning rates" not in {c.subject for c in both.changes}


def test_a_trainer_that_raises_failed_and_one_without_accelerate_is_not_compared():
    memory = Memory()
    failure = Failure(phase="trainer", type="TypeError", message="no", traceback="")
    good = file("4.48", run(memory))
    bad = file("5.x", None, failure=failure)
    assert compared(good, bad, memory).standing == "failed"
    assert compared(bad, good, memory).standing == "not compared"
    without = file("5.x", None, reason="accelerate is not there")
    assert compared(good, without, memory).reason == "5.x: accelerate is not there"


def plain_step(standing, batch="padded"):
    """Return a training step in which the loss of one batch has this standing."""
    outcome = {"follows": "diverged"}.get(standing, standing)
    item = {"signal": "loss", "batch": batch, "outcome": outcome}
    comparison = {"reference": "4.48", "standing": standing, "items": [item]}
    return TrainingReport.model_validate(
        {"losses": {"padded": 2.5, "packed": 2.5}, "comparison": comparison}
    )


@pytest.mark.parametrize(
    ("step", "standing"),
    [
        ("identical", "diverged"),
        ("rounding", "diverged"),
        ("diverged", "follows"),
        ("undecided", "follows"),
        ("follows", "follows"),
        ("not compared", "not compared"),
    ],
)
def test_what_begins_in_the_plain_step_is_not_accused_again(step, standing):
    change = {"loss": 2.6}
    report = report_of(file("5.x", run(Memory())), pair(change, change))
    assert with_step(report, plain_step(step)).comparison.standing == standing


@pytest.mark.parametrize(("batch", "standing"), [("items", "follows"), ("", "follows")])
def test_a_loss_with_num_items_in_batch_that_differs_reaches_trainer(batch, standing):
    change = {"loss": 2.6}
    report = report_of(file("5.x", run(Memory())), pair(change, change))
    assert with_step(report, plain_step("diverged", batch)).comparison.standing == standing


def test_another_batch_of_the_plain_step_explains_nothing_of_trainer():
    change = {"loss": 2.6}
    report = report_of(file("5.x", run(Memory())), pair(change, change))
    assert with_step(report, plain_step("diverged", "packed")).comparison.standing == "diverged"


def test_what_trainer_does_itself_stays_beside_another_step():
    change = {"received": received(items=(6, 3, 11, 8)), "loss": 2.6}
    report = report_of(file("5.x", run(Memory())), pair(change, {"loss": 2.6}))
    assert with_step(report, plain_step("diverged")).comparison.standing == "diverged"


def test_the_report_has_what_trainer_did_in_the_order_of_time():
    report = report_of(file("4.48", run(Memory())), None)
    assert report.rows == (2, 3, 0, 1)
    assert report.items == (7, 4, 12, 9)
    assert report.rates == (5e-5, 3.75e-5, 2.5e-5, 1.25e-5)
    assert report.built["scheduler"] == "LambdaLR linear"
    assert report.arguments == {"optim": "adamw_torch", "learning_rate": "5e-05"}
