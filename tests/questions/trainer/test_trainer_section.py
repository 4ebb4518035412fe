"""The part *By Trainer* of the section *Training*, of a model's page, and of report.html."""

from samebits.questions.trainer.records import TrainerOfRow, TrainerReport
from samebits.questions.trainer.section import TITLE, by_trainer, by_trainer_of
from samebits.questions.training.records import TrainingOfRow
from samebits.questions.training.section import has_details, training, training_of
from samebits.reports.document import render
from tests.questions.training.test_training_section import (
    BROKEN,
    compared,
    html,
    step,
    with_answers,
    with_training,
)

CHANGE = {"subject": "argument", "name": "optim", "reference": "a", "candidate": "b"}
BY = {"losses": [2.5], "rows": [3], "items": [7], "rates": [5e-5]}
GIVEN = "TrainingArguments(optim='a')"


def with_trainer(*, steps=None, **runs):
    """Return a report, and its first row, in which Trainer does this by stack."""
    steps = steps or {stack: step() for stack in runs}
    reports = {stack: TrainerReport.model_validate(run) for stack, run in runs.items()}
    return with_answers(training=TrainingOfRow(stacks=steps), trainer=TrainerOfRow(stacks=reports))


def test_what_trainer_does_otherwise_is_listed_with_the_argument_that_restores_it():
    changed = BY | {"comparison": compared("diverged", changes=[CHANGE])}
    steps = {"4.48": step(), "5.0": step(comparison=compared("identical"))}
    report, row = with_trainer(steps=steps, **{"4.48": BY, "5.0": changed})
    assert GIVEN in by_trainer(report)
    assert GIVEN in by_trainer_of([row])
    clean, _ = with_trainer(**{"4.48": BY})
    assert "TrainingArguments(optim" not in by_trainer(clean)


def test_it_stands_behind_the_training_steps():
    changed = BY | {"comparison": compared("diverged", changes=[CHANGE])}
    report, _ = with_trainer(**{"4.48": BY, "5.0": changed})
    text = render(report)["relations.md"].partition("## Training\n")[2].partition("\n## ")[0]
    assert text.index("One training step") < text.index(f"### {TITLE}") < text.index(GIVEN)


def test_a_cell_that_only_trainer_trains_otherwise_has_a_line_and_a_page():
    steps = {"4.48": step(), "5.0": step(comparison=compared("identical"))}
    changed = BY | {"comparison": compared("diverged", changes=[CHANGE])}
    report, row = with_trainer(steps=steps, **{"4.48": BY, "5.0": changed})
    assert "| 5.0 " in training(report)
    assert has_details([row])
    report, row = with_trainer(steps=steps, **{"4.48": BY, "5.0": BY})
    assert "| 5.0 " not in training(report)
    assert not has_details([row])


def test_a_relation_of_trainer_is_one_of_the_ways_to_train():
    ways = {"relations": [BROKEN | {"relation": "Trainer: rows accumulated = one batch"}]}
    report, row = with_trainer(**{"4.48": BY, "5.0": BY | {"relations": ways}})
    assert "Trainer: rows accumulated = one batch" in training(report)
    assert "| Trainer: rows accumulated = one batch | not tried | broken |" in training_of([row])


def test_report_html_has_what_trainer_does_otherwise():
    changed = BY | {"comparison": compared("diverged", changes=[CHANGE])}
    report, _ = with_trainer(**{"4.48": BY, "5.0": changed})
    text = html(report)
    assert "by Trainer</th>" in text
    assert "TrainingArguments(optim='a')" in text
    clean, _ = with_training(**{"4.48": step()})
    assert "<h2>Training</h2>" in html(clean)
    assert "by Trainer</th>" not in html(clean)
