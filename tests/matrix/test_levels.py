"""Levels: what each asks of the models of a matrix."""

from samebits.matrix.levels import at_level
from samebits.matrix.spec import Matrix
from samebits.records.question import keys
from tests.support.builders import model_spec, stack_spec

MODEL = model_spec(samples=3)
MATRIX = Matrix(path="m.yaml", stacks=(stack_spec("4.48"),), reference="4.48", models=(MODEL,))


def changed(level):
    """Return the fields of the model that a level changes."""
    (model,) = at_level(MATRIX, level).models
    return {
        name: getattr(model, name)
        for name in type(model).model_fields
        if getattr(model, name) != getattr(MODEL, name)
    }


def test_the_default_level_asks_for_what_the_matrix_says():
    assert at_level(MATRIX, "default") is MATRIX


def test_a_quick_run_asks_for_nothing_that_only_explains():
    asked = changed("quick")
    questions = {key.name for key in keys()} - {"texts", "changes"}
    assert {"processors", "relations", "crossings", "usage", "training", "trainer"} <= questions
    assert asked.pop("questions") == dict.fromkeys(questions, False)
    assert asked == {"samples": 0, "reloads": False}


def test_a_deep_run_leaves_nothing_out_for_its_size_and_runs_twice_in_full():
    assert changed("deep") == {"large": True, "second_in_full": True}
