"""What the questions of the default level cost: every question of samebits is in the table."""

from bench.questions import QUESTIONS, costs
from samebits.questions import questions
from samebits.records.question import switches


def test_every_question_that_has_a_switch_is_priced():
    priced = {question.without.strip("`").partition(":")[0] for question in QUESTIONS}
    free = {"changes"}  # compares the sources on the host
    assert set(switches()) - free <= priced


def test_phases_and_jobs_are_those_of_a_run():
    names = {question.name for question in questions()}
    core = {"greedy", "first token", "ladder", "cell b"}
    for question in QUESTIONS:
        assert {name.partition(".")[0] for name in question.phases | question.jobs} <= names | core


def test_a_question_costs_its_phases_and_its_jobs_and_the_dearest_stands_first():
    whole = {
        "phases": {"exports": 3.0, "greedy": 1.0, "first token": 0.5},
        "spent": [{"kind": "trainer.run", "cpu": 4.0}, {"kind": "inputs", "cpu": 9.0}],
    }
    prices = [(question.name, seconds) for question, seconds in costs(whole)]
    assert prices == [
        ("training step and Trainer", 4.0),
        ("programs of the model", 3.0),
        ("greedy decoding", 1.5),
    ]
