"""samebits record and verify as commands: what they write, print and end with."""

import json
import sys
from pathlib import Path

import jsonschema
import pytest

from samebits import cli, schemas
from samebits.base.digests import digest_of
from samebits.check.model import NamedModel
from samebits.gate import bench, command
from samebits.gate.lockfile import read_lock
from samebits.gate.model import TwiceError, with_own_names
from samebits.records.capture import Capture
from samebits.records.lock import LockFile
from samebits.stacks.build import StackBuilder
from samebits_wire.seal import sealed
from tests.gate.test_interpreter import installed
from tests.support.builders import Memory, forward, nudged, sound_signals, values
from tests.support.fakes import FakeProcess, FakeStarter, choose_inputs, ended

VERIFICATION = jsonschema.Draft202012Validator(
    json.loads(schemas.render()["verification.schema.json"])
)
FACTS = {"ready": {"platform": "Linux", "cpu": "a CPU", "cpu_capability": "AVX2"}}

WEIGHTS = (2).to_bytes(8, "little") + b"{}"
"""A safetensors file without a tensor."""


class World:
    """A project whose interpreter answers without running, and what its models compute."""

    def __init__(self, folder):
        self.folder = folder
        self.memory = Memory()
        self.signals = {"tiny": sound_signals(self.memory), "big": sound_signals(self.memory)}
        self.jobs = []

    def does(self, job):
        self.jobs.append(job)
        if job["kind"] == "inputs":
            return choose_inputs(job)
        name = job["cell"]["model"]
        capture = Capture(
            cell=job["cell"],
            run=job["run"],
            extent="full",
            threads=job["threads"],
            status="complete",
            signals=self.signals[name],
        )
        path = Path(job["capture"])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sealed(capture.model_dump_json()), "utf-8")
        return ended(job)

    def moves(self, name):
        facts = self.signals[name]["forward"]["short"]
        logits = nudged(values(1, 6, 8, seed=16), 0, 0, 0, by=1e-3)
        moved = forward(self.memory, hidden=facts.hidden_states, logits=logits)
        self.signals[name] |= {"forward": {"short": moved}}

    def run(self, *words):
        return cli.main(words, {"HOME": str(self.folder), "SAMEBITS_CACHE": str(self.folder / "c")})


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = World(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("tiny", "big"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text('{"model_type": "llama"}')
        (tmp_path / name / "model.safetensors").write_bytes(WEIGHTS)
    starter = FakeStarter(*[lambda: FakeProcess(made.does, FACTS)] * 20)
    monkeypatch.setattr(bench, "start_process", starter)
    monkeypatch.setattr(command, "read_interpreter", lambda python: installed())
    monkeypatch.setattr(StackBuilder, "probe_packages", lambda self, python, version: tmp_path)
    return made


def lock():
    from pathlib import Path

    return read_lock(Path("samebits.lock"))


def test_record_writes_and_verify_keeps(world, capsys):
    assert world.run("record", "tiny", "./big/") == 0
    assert "+ tiny/float32-default: " in capsys.readouterr().err
    assert list(lock().models) == ["big/float32-default", "tiny/float32-default"]
    assert lock().models["big/float32-default"].path == "big"
    assert world.run("verify") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "samebits.lock against transformers 4.57.6, torch 2.13.0+cpu, Python 3.11.7"
    assert out[-1] == "2 models: 2 identical. The bits are kept."


def test_only_what_a_verdict_needs_is_asked(world):
    world.run("record", "tiny")
    (inputs, *cells) = world.jobs
    assert (inputs["kind"], {job["kind"] for job in cells}) == ("inputs", {"cell"})
    assert {job["run"] for job in cells} == {"a", "b"}
    model = cells[0]["model"]
    assert (model["questions"], model["reloads"]) == ({}, False)


def test_nothing_of_an_earlier_run_is_used(world):
    world.run("record", "tiny")
    world.jobs.clear()
    world.run("verify")
    assert {"a", "b"} <= {job.get("run") for job in world.jobs}


def test_verify_of_some_entries(world, capsys):
    world.run("record", "tiny", "big")
    for word in ("tiny", "./tiny", "tiny/float32-default"):
        assert world.run("verify", word) == 0
        assert "1 model: 1 identical" in capsys.readouterr().out
    assert world.run("verify", "tinny") == 2
    assert 'samebits.lock has no "tinny": did you mean "tiny"' in capsys.readouterr().err


def test_what_verify_prints_as_json_fits_its_schema(world, capsys):
    world.run("record", "tiny")
    world.moves("tiny")
    assert world.run("verify", "--format", "json", "--no-rebuild") == 1
    content = json.loads(capsys.readouterr().out)
    VERIFICATION.validate(content)
    (model,) = content["models"]
    assert (model["verdict"], model["first"]["signal"]) == ("undecided", "logits")
    assert content["exit_code"] == 1


def test_what_verify_says_of_a_difference(world, capsys):
    world.run("record", "tiny")
    world.moves("tiny")
    assert world.run("verify", "--no-rebuild") == 1
    out = capsys.readouterr().out.splitlines()
    assert out[1] == "tiny/float32-default: differs (undecided)"
    assert out[2] == "  first recorded hash that differs: logits short"
    assert "--no-rebuild" in out[3]
    assert out[-1] == "1 model: 1 differs (undecided). The bits are not kept (exit code 1)."


def test_a_model_that_is_recorded_already_needs_update(world, capsys):
    world.run("record", "tiny")
    assert world.run("record", "tiny") == 2
    assert "samebits record --update tiny shows what would change" in capsys.readouterr().err


def test_update_shows_what_it_changes_and_dry_run_writes_nothing(world, capsys):
    world.run("record", "tiny", "big")
    before = lock()
    world.moves("tiny")
    capsys.readouterr()
    assert world.run("record", "--update", "--dry-run") == 0
    err = capsys.readouterr().err
    assert "~ tiny/float32-default: logits 1 of 1 (first short)" in err
    assert "= big/float32-default: the same" in err
    assert lock() == before
    assert world.run("record", "--update", "tiny") == 0
    assert lock().models["big/float32-default"] == before.models["big/float32-default"]
    assert lock().models["tiny/float32-default"] != before.models["tiny/float32-default"]
    assert world.run("record", "--update") == 0
    assert "samebits.lock has nothing to change." in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "written"), [("y\n", True), ("\n", False), ("", False)])
def test_a_person_is_asked_before_an_update(world, monkeypatch, answer, written):
    import io

    world.run("record", "tiny")
    before = lock()
    world.moves("tiny")
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stdin", terminal)
    assert world.run("record", "--update") == 0
    assert (lock() != before) is written
    assert world.run("record", "--update", "--yes") == 0
    assert lock() != before


def test_update_removes_what_is_not_there(world, capsys):
    world.run("record", "tiny", "big")
    (world.folder / "big").rename(world.folder / "gone")
    assert world.run("verify") == 3
    assert "big/float32-default: not there" in capsys.readouterr().out
    assert world.run("record", "--update") == 0
    assert "- big/float32-default: removed" in capsys.readouterr().err
    assert list(lock().models) == ["tiny/float32-default"]


def test_several_variants_are_several_entries(world):
    world.run("record", "tiny", "--dtypes", "float32,bfloat16", "--attention", "eager")
    assert list(lock().models) == ["tiny/bfloat16-eager", "tiny/float32-eager"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("record",), "name a model, such as ../checkpoint; or --update"),
        (("record", "nowhere/at/all"), "does not exist"),
        (("record", "tiny", "--dtypes", "int4"), "--dtypes: "),
        (("record", "--update"), "samebits.lock is not there"),
        (("verify",), "samebits.lock is not there: samebits record MODEL writes it"),
        (("verify", "--python", "nowhere"), "samebits.lock is not there"),
    ],
)
def test_mistakes(world, capsys, words, said):
    assert world.run(*words) == 2
    assert said in capsys.readouterr().err


def test_code_of_a_model_runs_only_if_somebody_says_so(world, capsys):
    config = {"model_type": "x", "auto_map": {"AutoModel": "modeling.X"}}
    (world.folder / "tiny" / "config.json").write_text(json.dumps(config))
    assert world.run("record", "tiny") == 2
    assert "add --trust-remote-code. The lock keeps your answer" in capsys.readouterr().err
    assert world.run("record", "tiny", "--trust-remote-code") == 0
    assert lock().models["tiny/float32-default"].trust_remote_code
    world.jobs.clear()
    assert world.run("verify") == 0
    assert all(job["model"]["trust_remote_code"] for job in world.jobs)


def test_a_model_that_does_not_run_twice_alike_is_not_recorded(world, capsys):
    runs = iter(range(100))
    does = world.does

    def unstable(job):
        if job["kind"] == "cell" and job["cell"]["model"] == "tiny":
            logits = values(1, 6, 8, seed=next(runs))
            facts = world.signals["tiny"]["forward"]["short"]
            moved = forward(world.memory, hidden=facts.hidden_states, logits=logits)
            world.signals["tiny"] |= {"forward": {"short": moved}}
        return does(job)

    world.does = unstable
    assert world.run("record", "tiny", "big") == 1
    assert "tiny/float32-default was not recorded: unstable" in capsys.readouterr().err
    assert not (world.folder / "samebits.lock").exists()


def test_code_that_is_not_run_is_named_and_recorded(world, capsys):
    code = world.folder / "tiny" / "custom_generate" / "generate.py"
    code.parent.mkdir()
    code.write_text("def generate(model): pass")
    assert world.run("record", "tiny") == 0
    line = "tiny: code that is not run without --trust-remote-code: custom_generate/generate.py"
    assert line in capsys.readouterr().err
    (model,) = lock().models.values()
    assert not model.trust_remote_code
    assert "custom_generate/generate.py" in model.files
    assert world.run("verify") == 0
    assert "code that is not run without" in capsys.readouterr().err


def test_an_environment_inside_a_model_is_refused(world, monkeypatch, capsys):
    program = world.folder / "tiny" / ".venv" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.chdir(world.folder / "tiny")
    assert world.run("record", ".") == 2
    assert ".venv lies in the folder of a model" in capsys.readouterr().err


@pytest.fixture
def inside(world, monkeypatch):
    """Stand in the folder of a model that brings code, and a lock that lets it run."""
    model = world.folder / "tiny"
    config = {"model_type": "x", "auto_map": {"AutoModel": "modeling.X"}}
    (model / "config.json").write_text(json.dumps(config))
    monkeypatch.chdir(model)
    python = ("--python", sys.executable)
    assert world.run("record", ".", "--trust-remote-code", *python) == 0
    world.jobs.clear()
    return lambda *words: world.run(*words, *python)


@pytest.mark.parametrize("words", [("verify",), ("verify", "--no-rebuild"), ("record", "--update")])
def test_a_lock_that_came_with_a_model_is_no_consent(world, inside, capsys, words):
    capsys.readouterr()
    assert inside(*words) == 2
    error = capsys.readouterr().err
    assert "samebits.lock says that the code of tiny/float32-default runs" in error
    assert "so it may have come with the model, and nothing was run" in error
    assert "--trust-remote-code" in error
    assert not world.jobs
    # the option is a consent
    assert inside(*words, "--trust-remote-code") == 0
    assert all(job["model"]["trust_remote_code"] for job in world.jobs)


def test_a_lock_that_came_with_a_model_and_trusts_none_asks_nothing(world, inside):
    path = world.folder / "tiny" / "samebits.lock"
    path.write_text(path.read_text().replace('"trust_remote_code": true,', ""))
    assert inside("verify") == 0
    assert not any(job["model"]["trust_remote_code"] for job in world.jobs)


DAMAGES = {
    "contains no weights: model.safetensors": None,
    "is cut off in its header": (100).to_bytes(8, "little") + b"{",
    "run git lfs pull": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
}


@pytest.mark.parametrize("said", DAMAGES)
@pytest.mark.parametrize(
    "words", [("record", "--update", "tiny"), ("record", "./tiny"), ("verify",)]
)
def test_damaged_files_are_named_before_anything_runs(world, capsys, words, said):
    if words != ("record", "./tiny"):
        assert world.run("record", "tiny") == 0
    world.jobs.clear()
    path = world.folder / "tiny" / "model.safetensors"
    path.unlink()
    if DAMAGES[said] is not None:
        path.write_bytes(DAMAGES[said])
    capsys.readouterr()
    assert world.run(*words) == 2
    assert said in capsys.readouterr().err
    assert not world.jobs


def test_a_model_that_is_not_there_hides_no_other(world, capsys):
    assert world.run("record", "tiny", "big") == 0
    (world.folder / "tiny").rename(world.folder / "gone")
    world.jobs.clear()
    assert world.run("verify") == 3
    assert world.jobs


def test_a_folder_that_cannot_be_written_is_named_before_anything_runs(world, capsys):
    (world.folder / "c").write_text("a file where the cache should be")
    assert world.run("record", "tiny") == 2
    error = capsys.readouterr().err
    assert "the cache folder ~/c cannot be written" in error
    assert "Set SAMEBITS_CACHE to a folder" in error
    (world.folder / "c").unlink()
    assert world.run("record", "tiny", "--lock", "tiny/config.json/x.lock") == 2
    assert "name another file with --lock" in capsys.readouterr().err
    assert not world.jobs


def twins(world):
    for parent in ("a", "b"):
        folder = world.folder / parent / "tiny"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text('{"model_type": "llama"}')
        (folder / "model.safetensors").write_bytes(WEIGHTS)
    world.signals = dict.fromkeys(("tiny", *DIGITS.values()), world.signals["tiny"])


DIGITS = {path: f"tiny-{digest_of(path)[:6]}" for path in ("b/tiny", "tiny")}


def paths():
    return {name.partition("/")[0]: model.path for name, model in lock().models.items()}


def test_two_models_of_one_name_are_two_entries(world, capsys):
    twins(world)
    assert world.run("record", "a/tiny", "b/tiny", "./a/tiny") == 0
    assert paths() == {"tiny": "a/tiny", DIGITS["b/tiny"]: "b/tiny"}
    assert capsys.readouterr().err.count("\n+ ") == 2
    # each keeps its name
    assert world.run("record", "--update", "b/tiny") == 0
    assert world.run("record", "b/tiny") == 2
    assert f"has {DIGITS['b/tiny']}/float32-default already" in capsys.readouterr().err
    assert world.run("record", "tiny") == 0
    assert world.run("verify") == 0
    assert paths() == {"tiny": "a/tiny", **{name: path for path, name in DIGITS.items()}}


def test_an_update_of_another_folder_of_the_same_name_replaces_nothing(world):
    twins(world)
    assert world.run("record", "a/tiny") == 0
    assert world.run("record", "--update", "b/tiny") == 0
    assert paths() == {"tiny": "a/tiny", DIGITS["b/tiny"]: "b/tiny"}


def test_a_folder_that_moved_keeps_its_name(world):
    twins(world)
    assert world.run("record", "a/tiny") == 0
    (world.folder / "a" / "tiny").rename(world.folder / "a" / "other")
    assert world.run("record", "--update", "b/tiny") == 0
    assert paths() == {"tiny": "b/tiny"}


def test_two_revisions_of_one_model_are_refused():
    one, other = (NamedModel("m", {}, hub="o/m", revision=r) for r in ("1" * 40, "2" * 40))
    with pytest.raises(TwiceError, match=r"o/m@1+ and o/m@2+ are one model"):
        list(with_own_names([one, other], LockFile(), Path()))
    same = NamedModel("m", {}, hub="p/m", revision="1" * 40)
    first, second = with_own_names([one, same, one], LockFile(), Path())
    assert (first.name, second.name) == ("m", f"m-{digest_of('p/m')[:6]}")
