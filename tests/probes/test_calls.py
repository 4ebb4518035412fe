"""Which functions of transformers a job entered."""

import pytest
from samebits_probe.process.calls import Calls, are_wanted


def test_children_add_what_they_entered():
    recorder = Calls()
    recorder.begin()
    recorder.add_table({"cache.py": [7, 3]})
    assert recorder.table() == {"cache.py": [3, 7]}


def test_nothing_is_recorded_unless_it_was_begun():
    recorder = Calls()
    recorder.add_table({"cache.py": [7]})
    assert recorder.table() == {}


def test_a_model_that_a_question_makes_is_not_the_one_that_is_asked():
    """mamba2's page listed Llama's forward as not run, as an assistant is a Llama."""
    recorder = Calls()
    recorder.begin()
    recorder.add_table({"models/mamba2/modeling_mamba2.py": [3]})
    recorder.leave_out("models/llama/")
    recorder.add_table({"models/llama/modeling_llama.py": [7], "generation/utils.py": [1]})
    assert recorder.table() == {
        "generation/utils.py": [1],
        "models/mamba2/modeling_mamba2.py": [3],
    }
    recorder.begin()
    recorder.add_table({"models/llama/modeling_llama.py": [7]})
    assert "models/llama/modeling_llama.py" in recorder.table()


def test_a_model_with_parts_of_the_same_folder_keeps_what_ran_of_them():
    recorder = Calls()
    recorder.begin()
    recorder.add_table({"models/llama/modeling_llama.py": [7]})
    recorder.leave_out("models/llama/")
    recorder.add_table({"models/llama/modeling_llama.py": [9]})
    assert recorder.table() == {"models/llama/modeling_llama.py": [7, 9]}


@pytest.mark.parametrize(
    ("job", "wanted"),
    [
        ({"kind": "cell", "run": "a"}, True),
        ({"kind": "cell", "run": "b"}, False),
        ({"kind": "training.step"}, True),
        ({"kind": "ladder"}, False),
        ({"kind": "build", "model": "llama"}, False),
    ],
)
def test_only_checks_are_recorded(job, wanted):
    assert are_wanted(job) is wanted
