"""Which functions of transformers a job entered."""

import json

import pytest
from samebits_probe.process.calls import Calls, are_wanted

SOURCE = "def outer():\n    return inner()\n\n\ndef inner():\n    return 1\n\n\ndef unused():\n    return 2\n"


@pytest.fixture
def calls():
    """Return a recorder, which ends with the test."""
    recorder = Calls()
    yield recorder
    recorder.end()


@pytest.fixture
def module(tmp_path):
    """Return the functions of a file that lies in a folder of transformers."""
    path = tmp_path / "site-packages" / "transformers" / "models" / "tiny.py"
    names = {}
    exec(compile(SOURCE, str(path), "exec"), names)  # noqa: S102
    return names


def test_entered_functions_are_listed_by_their_first_lines(calls, module):
    calls.begin()
    module["outer"]()
    json.dumps({})  # of another package
    with calls.paused():
        pass
    assert calls.table() == {"models/tiny.py": [1, 5]}


def test_what_runs_in_a_pause_is_added_by_who_asked_for_it(calls, module):
    calls.begin()
    with calls.paused():
        module["unused"]()
    assert calls.table() == {}
    calls.add([module["unused"].__code__])
    calls.add_table({"cache.py": [7]})
    assert calls.table() == {"cache.py": [7], "models/tiny.py": [9]}


def test_nothing_is_recorded_unless_it_was_begun(calls, module):
    with calls.paused():
        module["outer"]()
    calls.add([module["outer"].__code__])
    assert calls.table() == {}


@pytest.mark.parametrize(
    ("job", "wanted"),
    [
        ({"kind": "cell", "run": "a", "model": {"functions": True}}, True),
        ({"kind": "cell", "run": "b", "model": {"functions": True}}, False),
        ({"kind": "cell", "run": "a", "model": {"functions": False}}, False),
        ({"kind": "training.step", "model": {"functions": True}}, True),
        ({"kind": "ladder", "model": {"functions": True}}, False),
        ({"kind": "build", "model": "llama"}, False),
    ],
)
def test_only_checks_of_a_model_that_is_asked_are_recorded(job, wanted):
    assert are_wanted(job) is wanted
