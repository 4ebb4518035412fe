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
