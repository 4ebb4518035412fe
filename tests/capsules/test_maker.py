"""Tests of samebits.capsules.maker: a capsule is tried, shrunk, run, and returned if it works."""

import asyncio
import json
from pathlib import Path

import pytest

from samebits.capsules.asking import CannotReproduce, ReproductionFailed
from samebits.capsules.judging import Party
from samebits.capsules.maker import Machine, Maker, Wanted
from samebits.capsules.running import Place, ScriptResult
from samebits.jobs.checkpoints import Checkpoint
from samebits.records.capsule import CapsuleFile
from samebits.stacks.process import StackProcess
from samebits.stacks.slots import Slots
from samebits.storage.store import Store
from samebits_wire.seal import sealed
from tests.support.builders import Memory, built_stack, cell_id, model_spec, sound, values
from tests.support.capsules import checkpoint, failed
from tests.support.fakes import FakeProcess, ended

PACKAGES = {
    "4.48": {"torch": "2.13.0+cpu", "transformers": "4.48.3"},
    "5.x": {"torch": "2.13.0+cpu", "transformers": "5.23.0"},
}
HEADER = {
    f"layers.{i}.w": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]}
    for i in range(4)
}
NAMES = ["embed", *(f"layers.{i}.w" for i in range(4)), "norm"]


class Bench:
    """Two stacks with fake processes, and a fake uv that runs no scripts."""

    def __init__(self, tmp_path, *, fails_from=1, code=0, needs_weights=False):
        self.memory, self.code = Memory(), code
        self.fails_from, self.needs_weights = fails_from, needs_weights
        self.tensors = {"header": HEADER, "pickled": True}
        self.loading = {}
        self.captured = {}
        self.output = "transformers 4.48.3\nunexpected bits in /home/me/x/y.py"
        self.jobs, self.ran = [], []
        self.work = tmp_path / "work"
        self.source = checkpoint(tmp_path / "model", *NAMES)
        self.reference = sound(self.memory)
        self.result = failed("load")

    def layers(self, job):
        config = json.loads((Path(job["script"]).parent / "checkpoint/config.json").read_text())
        return config["num_hidden_layers"]

    def does(self, job):
        """Write the result of a script: the newer stack fails with enough layers."""
        assert job["kind"] == "capsule"
        self.jobs.append(job)
        if "checkpoint" in job:
            tensors = {"format": "samebits-capsule-tensors"} | self.tensors
            Path(job["result"]).write_text(sealed(json.dumps(tensors)))
            return ended(job)
        stand_in = (Path(job["script"]).parent / "checkpoint/stand-in.json").exists()
        compile(Path(job["script"]).read_text(), "trial", "exec")
        result = {"sha256": "e" * 64, "ref": self.memory.put(values(1, 6, 8, seed=16)).model_dump()}
        if stand_in:
            result = {
                "sha256": "e" * 64,
                "ref": self.memory.put(values(1, 6, 8) * 0).model_dump(),
                "loading": self.loading,
            }
        has_weights = not stand_in or not self.needs_weights
        fails = has_weights and self.layers(job) >= self.fails_from
        if "5.x" in job["script"].rpartition("/")[2] and fails:
            result = {"error": "KeyError", "message": "'x'\nand more", "captured": self.captured}
        Path(job["result"]).write_text(
            sealed(json.dumps({"format": "samebits-capsule-trial"} | result))
        )
        return ended(job)

    def uv(self, command, folder, environment):
        self.ran.append(command[1:])
        assert {p.name for p in folder.iterdir()} >= {"4.48.py", "5.x.py", "checkpoint"}
        return ScriptResult(self.code, self.output)

    def make(self):
        return asyncio.run(asyncio.wait_for(self._make(), 20))

    async def _make(self):
        slots = Slots(2)

        async def start(python, environment, log):
            return FakeProcess(self.does)

        sides = [
            Party(
                cell_id(stack),
                built_stack(stack).model_copy(update={"packages": PACKAGES[stack]}),
                "3.11",
                StackProcess(stack, "python", {}, Path("log"), slots, start),
            )
            for stack in ("4.48", "5.x")
        ]
        machine = Machine("f", "Linux", "AVX2")
        place = Place({}, self.uv)
        maker = Maker(self.work, self.memory, "probes", machine, place, slots)
        model = model_spec(path="model")
        source = Checkpoint(model="llama", source=str(self.source), shown_source="path model")
        wanted = Wanted(self.result, self.reference, (), model, source, tuple(sides))
        try:
            return await maker.make(wanted)
        finally:
            place.close()
            for side in sides:
                await side.process.close()


def test_a_failure_becomes_files_that_were_run(tmp_path):
    bench = Bench(tmp_path)
    capsule = bench.make()
    assert set(capsule) == {
        *("4.48.py", "5.x.py", "ISSUE.md", "expected.json"),
        *("checkpoint/config.json", "checkpoint/model.safetensors"),
    }
    assert [command[-1] for command in bench.ran if command[0] == "run"] == ["4.48.py", "5.x.py"]
    assert not list(bench.work.iterdir())
    assert str(tmp_path).encode() not in b"".join(capsule.values())


@pytest.mark.parametrize(("fails_from", "left"), [(1, 1), (2, 2), (3, 4)])
def test_it_has_the_fewest_layers_that_were_seen_to_show_it(tmp_path, fails_from, left):
    capsule = Bench(tmp_path, fails_from=fails_from).make()
    assert json.loads(capsule["checkpoint/config.json"])["num_hidden_layers"] == left
    record = CapsuleFile.model_validate_json(capsule["expected.json"])
    head = dict(list(json.loads(capsule["expected.json"]).items())[:3])
    assert head == {"format": "samebits-capsule", "format_version": 2, "hash_algorithm": "blake3"}
    assert [word for word in record.shrunk if "layers" in word] == (
        [] if left == 4 else [f"{left} of 4 layers"]
    )
    assert record.candidate.sees.error == "KeyError"
    assert record.reference.sees.ref.shape == (1, 6, 8)


def test_trials_are_bounded(tmp_path):
    bench = Bench(tmp_path, fails_from=4)
    bench.make()
    assert len(bench.jobs) <= 2 * (1 + 8)


def test_what_uv_does_not_see_is_no_capsule(tmp_path):
    bench = Bench(tmp_path, code=1)
    with pytest.raises(
        ReproductionFailed, match=r"4\.48\.py did not reproduce .*: unexpected bits in …/y\.py"
    ):
        bench.make()
    assert not list(bench.work.iterdir())


def test_what_does_not_show_alone_is_no_capsule(tmp_path):
    bench = Bench(tmp_path, fails_from=9)
    with pytest.raises(CannotReproduce, match="outside samebits,"):
        bench.make()
    assert not bench.ran


def test_another_exception_than_the_captured_one_is_no_capsule(tmp_path):
    bench = Bench(tmp_path)
    failure = bench.result.failure.model_copy(update={"type": "ImportError"})
    bench.result = bench.result.model_copy(update={"failure": failure})
    with pytest.raises(CannotReproduce, match="outside samebits,"):
        bench.make()


@pytest.mark.parametrize(
    ("message", "shows"),
    [("'x'\nelsewhere", True), ("'y'", False), ("no file in …/checkpoint", True), ("", True)],
)
def test_an_exception_is_known_by_its_words_too(tmp_path, message, shows):
    bench = Bench(tmp_path)
    failure = bench.result.failure.model_copy(update={"message": message})
    bench.result = bench.result.model_copy(update={"failure": failure})
    if shows:
        assert bench.make()
        return
    with pytest.raises(CannotReproduce, match="outside samebits,"):
        bench.make()


@pytest.mark.parametrize("shows", [True, False])
def test_an_exception_is_known_by_what_a_capture_makes_of_it(tmp_path, shows):
    """Of a load that 5.x refuses it names the tensor. The scripts say what a user sees."""
    bench = Bench(tmp_path)
    message = "size mismatch for a\n'x'"
    changed = {"type": "RuntimeError", "message": message}
    failure = bench.result.failure.model_copy(update=changed)
    bench.result = bench.result.model_copy(update={"failure": failure})
    bench.captured = {"error": "RuntimeError" if shows else "KeyError", "message": message}
    if shows:
        assert b"EXPECTED = 'KeyError'" in bench.make()["5.x.py"].replace(b'"', b"'")
        return
    with pytest.raises(CannotReproduce, match="outside samebits,"):
        bench.make()


def test_a_reference_in_other_bits_than_the_captured_ones_is_no_capsule(tmp_path):
    bench = Bench(tmp_path)
    changed = sound(bench.memory).signals.forward["short"]
    changed = changed.model_copy(update={"logits": bench.memory.put(values(1, 6, 8, seed=77))})
    bench.reference = sound(bench.memory, forward={"short": changed})
    with pytest.raises(CannotReproduce, match="outside samebits,"):
        bench.make()


@pytest.fixture
def small_limit(monkeypatch):
    """Set a limit below the size of the checkpoint and above that of its config."""
    monkeypatch.setattr("samebits.capsules.files.LIMIT", 400)


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("pickled", [True, False])
def test_an_exception_of_a_large_model_is_shown_with_zeros_for_weights(tmp_path, pickled):
    bench = Bench(tmp_path, fails_from=2)
    bench.tensors["pickled"] = pickled
    capsule = bench.make()
    assert set(capsule) == {
        *("4.48.py", "5.x.py", "ISSUE.md", "expected.json"),
        *("checkpoint/config.json", "checkpoint/stand-in.json"),
    }
    assert set(json.loads(capsule["checkpoint/stand-in.json"])) == {"layers.0.w", "layers.1.w"}
    record = CapsuleFile.model_validate_json(capsule["expected.json"])
    assert record.shrunk[:2] == ("zeros in place of its weights", "2 of 4 layers")
    written = b"pytorch_model.bin" if pickled else b"model.safetensors"
    assert all(written in capsule[name] for name in ("4.48.py", "5.x.py"))
    assert b"each script writes zeros" in capsule["ISSUE.md"]


def test_a_small_model_keeps_its_weights(tmp_path):
    bench = Bench(tmp_path)
    capsule = bench.make()
    assert not any("checkpoint" in job for job in bench.jobs)
    assert b"write_weights" not in capsule["5.x.py"]
    assert b"each script writes zeros" not in capsule["ISSUE.md"]


LARGE = "its checkpoint has 0.0 MiB, and a reproducer holds 0; with zeros in place of its weights, "
REASONS = {
    "few layers are too large": (
        {"needs_weights": True, "fails_from": 2, "limit": 380},
        LARGE.replace("MiB", "MiB with fewer layers") + "5.x does not fail",
    ),
    "the weights matter": (
        {"needs_weights": True, "fails_from": 4},
        LARGE + "5.x does not fail",
    ),
    "no list": (
        {"tensors": {"refused": "none of model.safetensors, … in …/model"}, "fails_from": 4},
        LARGE
        + "the tensors of the checkpoint cannot be listed: none of model.safetensors, … in …/model",
    ),
    "a stand-in that lacks a tensor": (
        {"loading": {"missing_keys": ["head.weight"]}, "fails_from": 4},
        LARGE + "4.48 reports head.weight as a missing key",
    ),
    "nothing shows it": ({"fails_from": 9}, "outside samebits, 5.x does not fail"),
}


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("case", REASONS)
def test_a_large_model_without_a_capsule_says_what_was_tried(tmp_path, monkeypatch, case):
    changes, reason = REASONS[case]
    if "limit" in changes:
        monkeypatch.setattr("samebits.capsules.files.LIMIT", changes["limit"])
    bench = Bench(tmp_path)
    for name, value in changes.items():
        setattr(bench, name, value)
    with pytest.raises(CannotReproduce) as raised:
        bench.make()
    assert str(raised.value) == reason


@pytest.mark.usefixtures("small_limit")
def test_a_model_too_large_to_be_copied_says_what_was_tried(tmp_path, monkeypatch):
    monkeypatch.setattr("samebits.capsules.maker._MAX_COPIED", 400)
    assert Bench(tmp_path).make()
    (tmp_path / "again").mkdir()
    bench = Bench(tmp_path / "again", needs_weights=True)
    with pytest.raises(
        CannotReproduce, match="too many to copy; with zeros in place of its weights, 5"
    ):
        bench.make()


def test_what_uv_cannot_install_is_not_what_a_script_saw(tmp_path):
    bench = Bench(tmp_path, code=1)
    bench.output = "error: no solution found"
    with pytest.raises(
        ReproductionFailed, match=r"uv could not run 4\.48\.py: error: no solution found"
    ):
        bench.make()


def test_the_store_of_trials_is_not_the_store_of_the_run(tmp_path):
    bench = Bench(tmp_path)
    bench.make()
    assert all(Path(job["store"]["root"]).parent == bench.work for job in bench.jobs)
    assert Store(bench.work).root not in {Path(job["store"]["root"]) for job in bench.jobs}
