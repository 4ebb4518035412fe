"""What a commit does, as a text to compare."""

import json
from pathlib import Path

import pytest

from samebits.bisect.trials import Trials, fault_of
from samebits.matrix import load, yamltext
from samebits.matrix.spec import StackSpec
from samebits.records.ids import Verdict
from tests.support.builders import cell_id, cell_result
from tests.support.sample_report import raised


def fault(message, kind="ValueError", phase="forward short"):
    failure = raised(phase, kind, message)
    headline = f"failed in phase {phase}: {kind}: {message}"
    return fault_of(cell_result(cell_id(), Verdict.FAILED, failure=failure, headline=headline))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "object <object object at 0x7f2510a359d0> is wrong",
            "object <object object at 0x7f37f5fa19c0> is wrong",
        ),
        ("5.15.0.dev0 has no x", "5.16.0.dev0 has no x"),
    ],
)
def test_commits_that_raise_the_same_do_the_same(one, other):
    assert fault(one) == fault(other)


def test_another_exception_is_another_state():
    assert fault("x is wrong") != fault("y is wrong")
    assert fault("x is wrong") != fault("x is wrong", kind="TypeError")
    assert fault("x is wrong") != fault("x is wrong", phase="load")
    unstable = cell_result(cell_id(), Verdict.UNSTABLE, headline="it does not repeat itself")
    assert fault_of(unstable) == "unstable: it does not repeat itself"


class Subject:
    """Gives each commit an environment with its name."""

    def spec(self, name, _elsewhere):
        return StackSpec(id=name, transformers="5.0.0")


def test_the_environment_that_makes_a_checkpoint_is_built_beside_commits_and_runs_no_cell():
    made = {"architecture": "gpt2", "config": {"n_layer": 1}, "environment": "newest"}
    content = {
        "version": 1,
        "environments": [{"id": name, "transformers": name} for name in ("4.48", "5.2")],
        "models": {"plain": {"build": {"architecture": "gpt2", "config": {"n_layer": 1}}}},
    }
    content["environments"][1]["id"] = "newest"
    for recipe, ids in (({}, ["sha"]), ({"made": {"build": made}}, ["sha", "newest"])):
        models = content["models"] | recipe
        text = yamltext.parse(json.dumps(content | {"models": models}).encode())
        matrix = load.parse(text, Path("m.yaml"))
        trials = Trials(matrix, Subject(), None, {}, lambda _: None)
        assert [spec.id for spec in trials._with(["sha"], "sha").stacks] == ids
        assert trials._only(["sha"]).environments == ("sha",)
