"""What follows from the bytes of the project's environment, of the lock, and of the rebuilt side."""

import asyncio
import json
from types import SimpleNamespace

import pytest

from samebits.base.errors import StackError
from samebits.diagnose import verdict as verdicts
from samebits.gate import bench as benches
from samebits.gate import verifier as module
from samebits.gate.interpreter import Package, environment_of
from samebits.gate.lockfile import environment_key, machine_key
from samebits.gate.observations import hashes
from samebits.gate.verifier import Verifier
from samebits.jobs.checkpoints import Checkpoint
from samebits.records.capture import Failure, Unfinished
from samebits.records.ids import Verdict
from samebits.records.inputs import Inputs
from samebits.records.lock import LockFile
from samebits.records.verification import Kept
from tests.gate.test_interpreter import MARKERS, installed
from tests.support.builders import (
    Memory,
    built_stack,
    cell_id,
    cell_result,
    decoded,
    nudged,
    sound,
    values,
)
from tests.support.builders import forward as forward_of
from tests.support.locks import PROBES, machine, recorded
from tests.support.partial import ended

NAME = "tiny/float32-default"
NEWER = "5.2.0"


def installed_newer():
    now = installed()
    packages = [
        p.model_copy(update={"version": NEWER}) if p.name == "transformers" else p
        for p in now.packages
    ]
    return now.model_copy(update={"packages": tuple(packages)})


class World:
    """A lock, the project's environment and the environment of the record, as one test sets them."""

    def __init__(self, folder):
        self.folder = folder
        self.memory = Memory()
        self.recorded = sound(self.memory)
        self.current = sound(self.memory)
        self.rebuilt = sound(self.memory)
        self.recorded_on = self.runs_on = machine()
        self.was = self.now = installed()
        self.probes = PROBES
        self.rebuilds = True
        self.fails = None
        self.builds = []
        self.observed = []
        self.judged = Verdict.DIVERGED
        self.entry = {}
        self.files = {}

    def lock(self):
        environment = environment_of(self.was)
        entry = recorded(
            environment=environment_key(environment),
            machine=machine_key(self.recorded_on),
            signals=hashes(self.recorded),
            probes=PROBES,
            **self.entry,
        )
        key = environment_key(environment)
        return LockFile(environments={key: environment}, models={NAME: entry})

    def verify(self):
        model = self.folder / "tiny"
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text(json.dumps({"model_type": "llama"}))
        for name, text in self.files.items():
            (model / name).write_text(text)
        bench = FakeBench(self)
        side = FakeSide(self, built_stack("current"), lambda: self.current)
        verifier = Verifier(self.lock(), self.folder, side, self.now, bench, rebuilds=self.rebuilds)
        (result,) = asyncio.run(verifier.verify([NAME]))
        return result


class FakeSide:
    """A side whose runs are those of the world."""

    def __init__(self, world, stack, capture):
        self.world, self.stack, self._capture = world, stack, capture
        self.process = SimpleNamespace(facts=self._facts)

    async def _facts(self):
        of = self.world.runs_on
        return {"platform": of.platform, "cpu": of.cpu, "cpu_capability": of.cpu_capability}

    def cell(self, model):
        return cell_id(self.stack.id)

    async def with_inputs(self, subject):
        chosen = Inputs(digest=self.stack.id)
        return subject._replace(checkpoint=subject.checkpoint.model_copy(update={"inputs": chosen}))

    async def observe(self, subject, values=()):
        self.world.observed.append((self.stack.id, subject.checkpoint.inputs.digest))
        capture = self._capture()
        return capture, capture.model_copy(update={"run": "b"})


class FakeBench:
    """A bench that builds nothing."""

    def __init__(self, world):
        self.world = world
        self.root = world.folder / ".samebits"
        self.root.mkdir(exist_ok=True)
        self.store = world.memory
        self.probes = world.probes
        self.fingerprint = world.runs_on.fingerprint
        self.builder = SimpleNamespace(rebuild=self._rebuild)

    def subject(self, model):
        return benches.Subject(
            model, Checkpoint(model=model.name, source=model.path, shown_source="path")
        )

    def _rebuild(self, stack_id, lock, python):
        self.world.builds.append((lock, python))
        if self.world.fails and self.world.fails in lock:
            raise StackError("the index cannot be reached")
        return built_stack(stack_id)

    def rebuilt(self, stack):
        return FakeSide(self.world, stack, lambda: self.world.rebuilt)

    def current(self, stack, version):
        return FakeSide(self.world, stack, lambda: self.world.rebuilt)


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = World(tmp_path)

    async def compared(of_record, of_project, store):
        return cell_result(
            of_project[0].cell(None),
            made.judged,
            reference=of_record[0].cell(None),
            figure="1e-07",
            headline="logits: prompt short: 1 of 48 elements",
        )

    monkeypatch.setattr(module.benches, "compared", compared)
    return made


def moved(memory, **changed):
    """Return a run with other logits."""
    logits = nudged(values(1, 6, 8, seed=16), 0, 0, 0, by=1e-3)
    facts = sound(memory).signals.forward["short"]
    other = forward_of(memory, hidden=facts.hidden_states, logits=logits)
    return sound(memory, forward={"short": other}, **changed)


def test_the_recorded_bytes_are_identical_and_nothing_is_built(world):
    world.now = installed_newer()
    result = world.verify()
    assert (result.verdict, result.rebuild, result.first) == (Kept.IDENTICAL, "not needed", None)
    assert result.packages[0].current == NEWER  # what moved is told all the same
    assert world.builds == []


@pytest.mark.parametrize("judged", [Verdict.DIVERGED, Verdict.ROUNDING, Verdict.UNDECIDED])
def test_other_bytes_are_judged_against_the_recorded_packages_on_this_machine(world, judged):
    world.now, world.current, world.judged = installed_newer(), moved(world.memory), judged
    result = world.verify()
    assert (result.verdict, result.rebuild, result.repeats) == (Kept(judged), "done", True)
    assert (result.first.signal, result.first.name, result.n_differ) == ("logits", "short", 1)
    assert result.difference.startswith("logits")
    ((lock, python),) = world.builds
    assert "transformers==4.57.6" in lock.splitlines()
    assert python == "3.11"
    assert result.command == "samebits check tiny --from 4.57.6 --to 5.2.0"


def test_the_command_names_the_packages_that_the_models_code_imports(world):
    own = Package(name="xformers", version="1", modules=("xformers",))
    unused = Package(name="einops", version="1", modules=("einops",))
    world.was = installed(own, unused)
    now = installed_newer()
    world.now = now.model_copy(update={"packages": (*now.packages, own, unused)})
    world.current, world.entry = moved(world.memory), {"trust_remote_code": True}
    world.files = {"modeling.py": "import torch\nfrom xformers import ops\n"}
    command = "samebits check tiny --from 4.57.6 --to 5.2.0 --trust-remote-code --package xformers"
    assert world.verify().command == command


def test_what_differs_in_padding_alone_is_identical(world):
    world.now, world.current, world.judged = (
        installed_newer(),
        moved(world.memory),
        Verdict.IDENTICAL,
    )
    result = world.verify()
    assert (result.verdict, result.repeats) == (Kept.IDENTICAL, True)


def other_bits_everywhere(world):
    """The record's bits are not those that its packages compute here."""
    world.current = world.rebuilt = moved(world.memory)


def test_the_same_bits_of_both_sides_here_are_another_machines_record(world):
    other_bits_everywhere(world)
    world.now, world.judged = installed_newer(), Verdict.IDENTICAL
    world.recorded_on = machine(fingerprint="2" * 16)
    result = world.verify()
    assert (result.verdict, result.repeats) == (Kept.OTHER_MACHINE, False)
    assert result.verdict.passes


def test_a_recorded_side_that_ended_early_here_makes_nothing_another_machines_record(
    world, monkeypatch
):
    async def compared(of_record, of_project, store):
        return verdicts.result(of_project[0].cell(None), of_project[2], of_record[2], store)

    monkeypatch.setattr(module.benches, "compared", compared)
    world.now, world.recorded_on = installed_newer(), machine(fingerprint="2" * 16)
    other_bits_everywhere(world)
    assert world.verify().verdict is Kept.OTHER_MACHINE
    world.rebuilt = ended(sound(world.memory), forward=None, greedy=None)
    found = world.verify()
    assert (found.verdict, found.verdict.passes) == (Kept.NOT_FINISHED, False)
    assert found.reason.endswith(", in the reference")


def test_on_the_same_machine_nothing_explains_such_a_record(world):
    other_bits_everywhere(world)
    world.now = installed_newer()
    for judged in (Verdict.IDENTICAL, Verdict.ROUNDING):
        world.judged = judged
        result = world.verify()
        assert (result.verdict, result.reason) == (Kept.UNDECIDED, module.UNEXPLAINED)
    world.probes = "8" * 16
    assert world.verify().reason == module.OTHER_SAMEBITS


@pytest.mark.parametrize("judged", [Verdict.ROUNDING, Verdict.DIVERGED])
def test_another_machine_excuses_no_other_function(world, judged):
    other_bits_everywhere(world)
    world.now, world.judged = installed_newer(), judged
    world.recorded_on = machine(fingerprint="2" * 16)
    assert world.verify().verdict == Kept(judged)


def test_unchanged_packages_on_another_machine_need_no_second_run(world):
    other_bits_everywhere(world)
    world.recorded_on = machine(fingerprint="2" * 16)
    result = world.verify()
    assert (result.verdict, result.rebuild, result.repeats) == (
        Kept.OTHER_MACHINE,
        "not needed",
        None,
    )
    assert world.builds == []


def test_if_nothing_has_changed_but_the_bits_it_is_undecided(world):
    world.current = moved(world.memory)
    result = world.verify()
    assert (result.verdict, result.reason) == (Kept.UNDECIDED, module.NOTHING_CHANGED)
    world.probes = "8" * 16
    assert world.verify().reason == module.OTHER_SAMEBITS


def test_without_a_rebuild_other_bytes_are_undecided(world):
    world.now, world.current, world.rebuilds = installed_newer(), moved(world.memory), False
    result = world.verify()
    assert (result.verdict, result.rebuild, result.reason) == (
        Kept.UNDECIDED,
        "left out",
        module.LEFT_OUT,
    )


def test_packages_that_cannot_be_built_leave_it_undecided(world):
    world.now, world.current, world.fails = installed_newer(), moved(world.memory), "transformers"
    result = world.verify()
    assert (result.verdict, result.rebuild) == (Kept.UNDECIDED, "not possible")
    assert "the index cannot be reached" in result.reason


def test_another_build_of_torch_does_where_the_recorded_one_is_not_to_be_had(world):
    world.now, world.current, world.fails = installed_newer(), moved(world.memory), "+cpu"
    assert world.verify().verdict == Kept.DIVERGED
    assert [("torch==2.13.0\n" in lock) for lock, _ in world.builds] == [False, True]


def test_packages_of_a_folder_are_not_rebuilt(world):
    origin = {"url": "file:///src", "dir_info": {"editable": True}}
    packages = [
        p.model_copy(update={"origin": origin}) if p.name == "torch" else p
        for p in world.was.packages
    ]
    world.was = world.was.model_copy(update={"packages": tuple(packages)})
    world.now, world.current = installed_newer(), moved(world.memory)
    result = world.verify()
    assert result.verdict == Kept.UNDECIDED
    assert result.reason == f"{module.NO_PACKAGE}: torch"


def test_changed_files_that_git_does_not_have(world):
    world.entry = {"files": {"config.json": "0" * 16}}
    world.current = moved(world.memory)
    result = world.verify()
    assert (result.verdict, result.rebuild, result.files) == (
        Kept.UNDECIDED,
        "not possible",
        ("config.json",),
    )
    changed = {
        "head": world.current.signals.weights.tensors["model.norm.weight"].model_copy(
            update={"ref": world.memory.put(values(4, seed=77))}
        )
    }
    weights = world.current.signals.weights
    world.current = moved(
        world.memory,
        weights=weights.model_copy(
            update={"tensors": weights.tensors | {"model.norm.weight": changed["head"]}}
        ),
    )
    result = world.verify()
    assert (result.verdict, result.reason) == (Kept.DIVERGED, module.OTHER_NUMBERS)


@pytest.fixture(autouse=True)
def no_git(monkeypatch):
    monkeypatch.setattr("samebits.gate.history.git", lambda *_: b"")
    monkeypatch.setattr("samebits.gate.history.words", lambda *_: [])


def test_changed_files_that_compute_the_same_are_identical(world):
    world.entry = {"files": {"config.json": "0" * 16}}
    assert world.verify().verdict == Kept.IDENTICAL


def test_restored_files_run_in_the_projects_own_environment(world, monkeypatch):
    world.entry = {"files": {"config.json": "0" * 16}}
    world.current = moved(world.memory)
    restored = (world.folder / "tiny", ())
    monkeypatch.setattr(module, "restored", lambda *_: restored)
    assert world.verify().verdict == Kept.DIVERGED
    assert world.builds == []
    assert {side for side, _ in world.observed} == {"current", "recorded"}


def test_other_inputs_are_compared_with_those_of_the_record(world):
    ids = forward_of(world.memory, ids=[[9, 8]], logits=values(1, 2, 8))
    world.current = sound(world.memory, forward={"short": ids})
    world.now = installed_newer()
    world.verify()
    stacks = [digest for _, digest in world.observed]
    assert stacks[:2] == ["current", "current"]
    assert set(stacks[2:]) == {world.observed[1][0]}  # both sides with the record's inputs


def test_a_model_that_does_not_load_failed(world):
    failure = Failure(phase="load", type="ImportError", message="no x", traceback="")
    world.current = world.current.model_copy(update={"status": "failed", "failure": failure})
    result = world.verify()
    assert (result.verdict, result.failure) == (Kept.FAILED, failure)


def raising(world, phase="greedy short"):
    failure = Failure(phase=phase, type="ValueError", message="no", traceback="")
    return world.current.model_copy(update={"failures": (failure,)})


def test_a_phase_that_raises_now_failed_and_one_that_always_did_has_not(world):
    world.current = raising(world)
    assert world.verify().verdict == Kept.FAILED
    world.entry = {"raised": {"greedy short": "ValueError"}}
    result = world.verify()
    assert (result.verdict, result.raised) == (Kept.IDENTICAL, {"greedy short": "ValueError"})
    world.entry = {"raised": {"greedy short": "KeyError"}}
    result = world.verify()
    assert (result.verdict, result.raised) == (Kept.FAILED, {})


def test_a_release_without_the_model_is_absent(world):
    world.current = world.current.model_copy(update={"status": "absent", "absent": "no llama"})
    result = world.verify()
    assert (result.verdict, result.reason) == (Kept.ABSENT, "no llama")
    assert not result.verdict.passes


def test_a_run_without_its_end_is_open(world):
    end = Unfinished(phase="greedy short", reason="no progress for 120 s")
    signals = world.current.signals.model_copy(update={"greedy": None})
    world.current = world.current.model_copy(
        update={"status": "unfinished", "unfinished": end, "signals": signals}
    )
    result = world.verify()
    assert result.verdict == Kept.NOT_FINISHED
    assert result.verdict.is_open


def test_a_signal_that_is_not_observed_is_open(world):
    world.current = sound(world.memory, greedy=None, skips={"greedy": "no generation here"})
    result = world.verify()
    assert (result.verdict, result.verdict.is_open) == (Kept.NOT_OBSERVED, True)
    assert result.reason == "decode, greedy: no generation here"


def test_a_folder_that_is_gone_is_not_there(world):
    world.entry = {"path": "elsewhere"}
    result = world.verify()
    assert result.verdict == Kept.NOT_THERE
    assert '"' in result.reason
    assert world.observed == []


def test_a_recorded_side_that_is_not_sound_here_leaves_it_undecided(world):
    world.now, world.current = installed_newer(), moved(world.memory)
    world.rebuilt = world.rebuilt.model_copy(update={"status": "absent", "absent": "no llama"})
    result = world.verify()
    assert (result.verdict, result.rebuild) == (Kept.UNDECIDED, "not possible")


def test_packages_that_moved_are_listed_with_the_roots_first(world):
    before = environment_of(installed())
    now = installed_newer().model_copy(update={"python": "3.12.1"})
    changes = module.package_changes(before, environment_of(now), now)
    assert [change.name for change in changes] == ["transformers", "python"]
    bare = now.model_copy(update={"packages": now.packages[:2], "markers": MARKERS})
    changes = module.package_changes(before, environment_of(bare), bare)
    gone = {change.name: change.current for change in changes}
    assert gone["sympy"] is None


def test_greedy_alone_is_enough_of_a_difference(world):
    world.now = installed_newer()
    world.current = sound(world.memory, greedy={"short": decoded(world.memory, 3, 1, 5)})
    assert world.verify().first.signal == "decode"
