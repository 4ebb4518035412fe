"""The pytest plugin, in runs of pytest of its own."""

import json
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from samebits.gate import testing
from samebits.records.verification import Kept, Mismatch, VerificationFile, Verified
from tests.support.locks import environment, machine

pytest_plugins = ["pytester"]

IS_INSTALLED = any(e.name == "samebits" for e in entry_points(group="pytest11"))
LOADED = () if IS_INSTALLED else ("-p", "samebits.pytest_plugin")
"""pytest finds the plugin of an installed samebits by itself."""

TENSORS = """
    import numpy as np

    def test_scores(samebits):
        samebits.tensor("scores", np.array([1.0, 2.0, 3.0], np.float32))

    def test_other(samebits):
        samebits.tensor("ids", np.arange(3))
"""


@pytest.fixture
def project(pytester):
    """A project whose runs of pytest load the plugin, and nothing of this repository's settings."""
    pytester.makeini("[pytest]\n")
    pytester.makepyfile(test_bits=TENSORS)

    class Project:
        lock = pytester.path / "samebits.lock"

        def run(self, *words, **outcomes):
            # this repository makes errors of warnings, which a run in the same process inherits
            result = pytester.runpytest_inprocess("-W", "default", *LOADED, *words)
            result.assert_outcomes(**outcomes)
            return result.stdout.str()

        def content(self):
            return json.loads(self.lock.read_text())

        def names(self):
            tensors = self.content()["tensors"].items()
            return {test.partition("::")[2]: list(named) for test, named in tensors}

        def replace(self, old, new):
            path = pytester.path / "test_bits.py"
            path.write_text(path.read_text().replace(old, new))

    return Project()


def test_what_is_recorded_passes_and_what_is_not_fails(project):
    out = project.run(failed=2)
    assert "samebits: samebits.lock has no tensor 'scores' of test_bits.py::test_scores" in out
    assert "pytest --samebits-update" in out
    assert "samebits.lock is written: commit it" in project.run("--samebits-update", passed=2)
    assert project.names() == {"test_scores": ["scores"], "test_other": ["ids"]}
    assert "samebits.lock is written" not in project.run(passed=2)


def test_a_difference_says_where(project):
    project.run("--samebits-update", passed=2)
    project.replace("2.0, 3.0", "2.5, 3.0")
    out = project.run(failed=1, passed=1)
    text = "tensor 'scores', float32 [3], has different bytes: 1 of 3 elements differ, the first at [1]"
    assert text in out
    assert "testing.py" not in out  # the traceback ends in the user's test
    out = project.run("--cache-clear", failed=1, passed=1)
    assert "has different bytes: hash " in out


def test_another_form_says_so(project):
    project.run("--samebits-update", passed=2)
    project.replace("np.float32", "np.float64")
    out = project.run(failed=1, passed=1)
    assert "tensor 'scores' is float64 [3], and float32 [3] is recorded" in out


def test_an_update_of_some_tests_keeps_the_others(project):
    project.run("--samebits-update", passed=2)
    before = project.content()["tensors"]
    project.replace("2.0, 3.0", "2.5, 3.0")
    project.run("--samebits-update", "test_bits.py::test_scores", passed=1)
    after = project.content()["tensors"]
    assert after["test_bits.py::test_other"] == before["test_bits.py::test_other"]
    assert after["test_bits.py::test_scores"] != before["test_bits.py::test_scores"]


def test_unused_tensors_are_reported_and_an_update_removes_them(project):
    project.run("--samebits-update", passed=2)
    project.replace('tensor("scores"', 'tensor("points"')
    project.replace("def test_other", "def test_renamed")
    out = project.run(failed=2)
    assert "unused in samebits.lock" not in out  # a test that failed may have asked for it later
    out = project.run("--samebits-update", passed=2)
    assert "unused in samebits.lock: scores of test_bits.py::test_scores (removed)" in out
    assert "unused in samebits.lock: ids of test_bits.py::test_other (removed)" in out
    assert project.names() == {"test_scores": ["points"], "test_renamed": ["ids"]}


def test_a_part_of_the_tests_makes_nothing_unused(project):
    project.run("--samebits-update", passed=2)
    project.replace("def test_other", "def test_renamed")
    for words in (("-k", "scores"), ("test_bits.py::test_scores",)):
        assert "unused in samebits.lock" not in project.run(
            *words, passed=1, deselected=int(words[0] == "-k")
        )


def test_two_tensors_of_one_name(project):
    again = "    samebits.tensor('scores', np.arange(2))\n\ndef test_other"
    project.replace("\ndef test_other", again)
    out = project.run("--samebits-update", failed=1, passed=1)
    assert "'scores' is the name of two tensors" in out


def of_another_machine(project):
    content = project.content()
    (key,) = content["machines"]
    content["machines"]["0" * 8] = content["machines"].pop(key) | {"fingerprint": "f" * 16}
    for named in content["tensors"].values():
        for name, recorded in named.items():
            named[name] = {"0" * 8: recorded[key]}
    project.lock.write_text(json.dumps(content))


def test_other_bytes_of_another_machine_are_a_warning(project):
    project.run("--samebits-update", passed=2)
    of_another_machine(project)
    project.run(passed=2)  # the same bytes
    project.replace("2.0, 3.0", "2.5, 3.0")
    out = project.run(passed=2, warnings=1)
    assert "OtherMachineWarning: samebits: tensor 'scores'" in out
    strict = "error::samebits.gate.testing.OtherMachineWarning"
    project.run("-W", strict, failed=1, passed=1)
    project.run("--samebits-update", passed=2)  # this machine's beside the other one's
    assert len(project.content()["tensors"]["test_bits.py::test_scores"]["scores"]) == 2
    project.run("-W", strict, passed=2)


def test_another_lock_can_be_named(project):
    project.run("--samebits-update", "--samebits-lock", "other.lock", passed=2)
    assert not project.lock.exists()
    assert project.lock.with_name("other.lock").exists()


@pytest.mark.long
@pytest.mark.processes
def test_workers_of_xdist_write_one_lock(project):
    pytest.importorskip("xdist")
    project.run("-n", "2", "--samebits-update", passed=2)
    assert len(project.content()["tensors"]) == 2
    project.run("-n", "2", passed=2)
    project.replace("2.0, 3.0", "2.5, 3.0")
    project.run("-n", "2", failed=1, passed=1)


@pytest.mark.processes
def test_the_plugin_costs_nothing_where_it_is_not_used():
    code = (
        "import sys, samebits.pytest_plugin; "
        "print([m for m in sys.modules if m.startswith('samebits.') or m in ('numpy', 'pydantic')])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "['samebits.pytest_plugin']"


MODEL = """
    def test_model(samebits):
        samebits.check("tiny")
"""


@pytest.fixture
def verified(project, pytester, monkeypatch):
    """A project with a recorded model, whose verification ends as a test says."""
    from samebits.gate.lockfile import with_model, write_lock
    from samebits.records.lock import LockFile
    from tests.support.locks import recorded

    pytester.makepyfile(test_bits=MODEL)
    name = "tiny/float32-default"
    write_lock(project.lock, with_model(LockFile(), name, recorded(), environment(), machine()))
    monkeypatch.setattr(testing.TestSession, "project", lambda self: None)

    def end(verdict, **facts):
        async def verify_entries(found, lock, names, environ, **options):
            assert names == [name]
            model = Verified(model=name, verdict=verdict, n_tensors=24, **facts)
            return VerificationFile(
                lock="samebits.lock",
                environment=environment(),
                machine=machine(),
                models=(model,),
                seconds=1.0,
                exit_code=0,
            )

        monkeypatch.setattr(testing, "verify_entries", verify_entries)

    return end


def test_a_model_that_keeps_its_bits_passes(project, verified):
    for verdict in (Kept.IDENTICAL, Kept.ROUNDING):
        verified(verdict)
        project.run(passed=1)


def test_a_model_that_does_not_names_the_first_difference(project, verified):
    first = Mismatch(signal="hidden_states", name="short · layer 1 (layers.0)", kind="differs")
    verified(Kept.DIVERGED, first=first, n_differ=12, difference="layer 1: max abs 1.8")
    out = project.run(failed=1)
    assert "samebits: tiny/float32-default: diverged" in out
    hashes = "first recorded hash that differs: hidden_states short · layer 1 (layers.0)"
    assert f"{hashes}, one of 12 of 24" in out
    assert "differs: layer 1: max abs 1.8" in out
    assert "testing.py" not in out


def test_a_model_of_another_machine_is_a_warning(project, verified):
    verified(Kept.OTHER_MACHINE)
    assert "other machine" in project.run(passed=1, warnings=1)


@pytest.mark.parametrize("verdict", [Kept.NOT_OBSERVED, Kept.NOT_THERE, Kept.NOT_FINISHED])
def test_a_model_that_was_not_compared_fails(project, verified, verdict):
    verified(verdict, reason="no inputs")
    assert "why: no inputs" in project.run(failed=1)


def test_a_model_that_is_not_recorded_fails(project, pytester):
    pytester.makepyfile(test_bits=MODEL)
    assert "samebits.lock has no model 'tiny': pytest --samebits-update" in project.run(failed=1)
