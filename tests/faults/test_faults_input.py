"""What is read is damaged, or meant to do harm: samebits says so, or makes it anew, and goes on."""

import asyncio
import os
import random
import string
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from samebits import cli
from samebits.base.errors import CaptureError, MatrixError
from samebits.jobs.cache import JobCache
from samebits.jobs.cells import CellRunner
from samebits.jobs.checkpoints import Checkpoint, Checkpoints
from samebits.jobs.common import ReadyCell
from samebits.matrix import load, yamltext
from samebits.records.ladder import LadderFile
from samebits.records.record import read_record
from samebits.records.tensor import TensorRef
from samebits.stacks.build import Stack
from samebits.storage.store import Store
from samebits_wire.seal import sealed
from tests.support.builders import Memory, built_stack, capture, cell_id, model_spec, sound
from tests.support.fakes import leave
from tests.support.faulty_bench import Bench
from tests.support.sample_report import sample_report

HOSTILE = [
    "../../x",
    "a/b",
    "a|b",
    "a\nb",
    "<b>a</b>",
    "\x1b[31ma",
    "a b",
    "",
    ".",
    "..",
    "ä",
    "a" * 81,
]


# matrix.yaml


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_leads_astray_is_refused_in_plain_words(name):
    data = {"models": {name: {"build": "llama"}}}
    with pytest.raises(MatrixError) as caught:
        load.parse(yamltext.parse(yaml.safe_dump(data).encode()), Path("matrix.yaml"))
    said = str(caught.value)
    assert "is not a valid name" in said or "YAML does not allow the character" in said
    assert said.isprintable()
    assert "<" not in said


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "0b1" + "0" * 20_000, "0" + "7" * 6000])
def test_a_number_that_could_be_written_nowhere_is_refused(number):
    text = f"models: {{m: {{build: {{architecture: llama, config: {{x: {number}}}}}}}}}"
    with pytest.raises(MatrixError, match="cannot be read as int"):
        load.parse(yamltext.parse(text.encode()), Path("matrix.yaml"))


def test_a_billion_laughs_are_none():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    started = time.process_time()
    found = yamltext.parse("\n".join(lines).encode())
    assert time.process_time() - started < 5
    assert "counting each use of an alias" in found.problems[0].text


names = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=90)
numbers = st.integers() | st.floats() | st.just(float("nan"))
configs = st.dictionaries(
    st.text(max_size=4), st.recursive(numbers | st.text(), st.lists), max_size=3
)


@settings(max_examples=150, deadline=None)
@given(names, configs, st.text(max_size=8))
def test_what_is_accepted_has_a_place_below_its_folder(name, told, architecture):
    data = {"models": {name: {"build": {"architecture": architecture, "config": told}}}}
    content = yaml.safe_dump(data, allow_unicode=True).encode("utf-8", "replace")
    try:
        matrix = load.parse(yamltext.parse(content), Path("matrix.yaml"))
    except MatrixError:
        return
    root, stack, model = Path("/work"), built_stack("4.48"), matrix.models[0]
    checkpoint = Checkpoint(model=model.name, source="/x", shown_source="x", digest="d" * 64)
    runner = CellRunner(JobCache(root, Store(root), "p", "m"))
    places = [
        Checkpoints(root, root, "maker").folder(model, stack),
        runner.folder(ReadyCell(cell_id("4.48", model=model.name), model, checkpoint, stack, None)),
    ]
    for place in places:
        assert os.path.normpath(place) == str(place)
        assert place.is_relative_to(root)
        assert all(len(part) < 128 and part.isprintable() for part in place.parts)


# what probes left


@st.composite
def damages(draw, content):
    """Return ``content`` cut, with bits flipped, or with something else in its place."""
    size = len(content)
    kind = draw(st.sampled_from(["cut", "flip", "fill", "insert"]))
    at = draw(st.integers(0, size - 1))
    if kind == "cut":
        return content[:at]
    if kind == "flip":
        return (
            content[:at] + bytes([content[at] ^ (1 << draw(st.integers(0, 7)))]) + content[at + 1 :]
        )
    if kind == "fill":
        return content[:at] + b"\0" * (size - at)
    return content[:at] + draw(st.binary(min_size=1, max_size=9)) + content[at:]


WHOLE = sealed(sound(Memory()).model_dump_json()).encode()


@settings(max_examples=300, deadline=None)
@given(damages(WHOLE))
def test_a_damaged_capture_is_a_capture_or_an_error_by_name(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("capture")
    (folder / "a.json").write_bytes(content)
    try:
        Store(folder).read_capture(Path("a.json"))
    except CaptureError as error:
        said = str(error)
    else:
        said = str(folder)
    assert str(folder) in said


@settings(max_examples=100, deadline=None)
@given(damages(b'{"cell":{"model":"m","variant":{"dtype":"d","attention":"a"},"stack":"s"}}'))
def test_a_damaged_record_is_none(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("record") / "a.json"
    path.write_bytes(content)
    assert read_record(path, Stack) is None
    assert isinstance(read_record(path, LadderFile), LadderFile | None)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda p: p.symlink_to(p), Path.touch])
def test_what_is_no_file_is_no_record_and_no_capture(tmp_path, make):
    make(tmp_path / "a.json")
    assert read_record(tmp_path / "a.json", Stack) is None
    with pytest.raises(CaptureError):
        Store(tmp_path).read_capture(Path("a.json"))


@pytest.mark.parametrize("shape", [(1 << 62, 1 << 62), (-1,), (0, 1 << 60), (1 << 40,)], ids=str)
def test_a_shape_that_is_absurd_is_not_had(tmp_path, shape):
    store = Store(tmp_path)
    ref = TensorRef(hash="0" * 64, dtype="float32", shape=shape, stored=True)
    store.tensor_path(ref).parent.mkdir(parents=True)
    store.tensor_path(ref).write_bytes(b"\0" * 64)
    assert not store.has(ref)


def test_damaged_values_are_removed_so_that_they_are_written_anew(tmp_path):
    store, memory = Store(tmp_path), Memory()
    ref = memory.put(__import__("numpy").arange(4))
    path = store.tensor_path(ref)
    path.parent.mkdir(parents=True)
    whole = memory.arrays[ref.hash].tobytes()
    for content in (whole[:-1], whole[:-1] + b"\x01", b""):
        path.write_bytes(content)
        assert not store.has(ref)
        assert not path.exists()
    path.write_bytes(whole)
    assert store.has(ref)
    path.write_bytes(whole[:-1])  # and later, when its hash is known
    assert not store.has(ref)


def test_a_capture_of_another_cell_is_not_taken_for_it(tmp_path):
    class Process:
        def n_beside(self, threads):
            return 2

        async def run(self, job, started):
            left = capture("4.48", run="a", model="other")
            leave(job["capture"], left)
            from samebits.stacks.process import Ended

            return Ended(exit=0)

    runner = CellRunner(JobCache(tmp_path, Store(tmp_path), "p", "m"))
    checkpoint = Checkpoint(model="llama", source="/x", shown_source="x", digest="d" * 64)
    both = asyncio.run(
        runner.observe(
            ReadyCell(cell_id("4.48"), model_spec(), checkpoint, built_stack("4.48"), Process())
        )
    )
    assert {run.status for run in both} == {"failed"}
    assert both[0].failure.message == "it wrote the capture of other/float32-sdpa@4.48, run a"


# everything below .samebits


def flipped(content, at):
    """Return ``content`` with another bit; the sound report has none of it."""
    at %= 8 * len(content)
    return b"".join(
        (content[: at // 8], bytes([content[at // 8] ^ 1 << at % 8]), content[at // 8 + 1 :])
    )


DAMAGE = {
    "cut": lambda content: content[: len(content) // 2],
    "emptied": lambda content: b"",
    "zeros": lambda content: b"\0" * len(content),
    "binary": lambda content: b"\xff\xfe\x00" + content,
    "deep": lambda content: b"[" * 100_000,
    "list": lambda content: b"[[]]",
    "null": lambda content: b"null",
    "one bit": lambda content: flipped(content, random.Random(len(content)).randrange(1 << 40)),
}


@pytest.mark.processes
def test_whatever_is_damaged_of_an_earlier_run_is_made_anew(tmp_path, host):
    chance = random.Random(5)
    bench = Bench(tmp_path, "healthy", "odd")
    assert host.run(bench) == 1, bench.said
    sound_report = bench.without_times
    files = [
        path
        for path in sorted((tmp_path / ".samebits").rglob("*"))
        if path.is_file() and path.suffix != ".log"
    ]
    kinds = {path.relative_to(tmp_path / ".samebits").parts[0].partition("-")[0] for path in files}
    assert {
        "captures",
        "checkpoints",
        "tensors",
        "ladders",
        "crossings",
        "saved",
        "machine",
        "file",
    } <= kinds
    for damage in DAMAGE.values():
        for path in files:
            if path.exists() and (chance.random() < 0.7 or path.name.startswith("machine")):
                path.write_bytes(damage(path.read_bytes()))
        assert host.run(bench) == 1, bench.said
        assert "Traceback" not in bench.said, bench.said
        assert bench.without_times == sound_report


# the host's own disk


class Runs:
    """Stands for run_matrix: returns a report, or raises."""

    def __init__(self, raises=None):
        self.raises = raises

    async def __call__(self, order, environ, progress, dependencies):
        if self.raises is not None:
            raise self.raises
        return sample_report(), {}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("samebits.cli.matrix.run_matrix", Runs())
    return tmp_path


def test_a_full_disk_leaves_the_report_of_before(folder, monkeypatch, capsys):
    cli.main(["matrix"], {})
    before = (folder / "reports/latest/report.md").read_text()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    capsys.readouterr()
    assert cli.main(["matrix"], {}) == 3
    assert capsys.readouterr().err == (
        "Not finished: No space left on device: reports/latest/report.md\n"
        "Fix this, then run the same command again: it continues where it stopped.\n"
    )
    assert (folder / "reports/latest/report.md").read_text() == before
    assert not [path for path in folder.rglob(".*") if path.is_file()]


def test_a_folder_that_cannot_be_written_is_named_before_anything_runs(folder, monkeypatch, capsys):
    with monkeypatch.context() as patched:
        patched.setattr("samebits.cli.matrix.run_matrix", Runs(AssertionError("it ran")))
        (folder / "reports").write_text("a file")
        reports = folder / "reports"
        cannot = f"the report cannot be written to {reports / 'latest'}: {reports}: "
        assert cli.main(["matrix"], {}) == 2
        assert capsys.readouterr().err.startswith(f"{cannot}Not a directory: name another folder")
        reports.unlink()
        reports.mkdir()

        def mkdir(path, mode=0o777):
            raise PermissionError(13, "Permission denied", path)

        patched.setattr(os, "mkdir", mkdir)
        patched.setattr("samebits.cli.matrix.check_cache", lambda environ: None)
        assert cli.main(["matrix"], {}) == 2
        assert capsys.readouterr().err.startswith(f"{cannot}Permission denied: name another")
    cli.main(["matrix"], {})
    assert (folder / "reports" / "latest" / "report.md").is_file()


def groups(error):
    return ExceptionGroup("tasks", [ExceptionGroup("inner", [error]), CaptureError("torn")])


def test_what_breaks_inside_of_tasks_is_told_as_what_it_is(folder, monkeypatch, capsys):
    monkeypatch.setattr(
        "samebits.cli.matrix.run_matrix", Runs(groups(PermissionError(13, "Denied", "/x")))
    )
    assert cli.main(["matrix"], {}) == 3
    assert capsys.readouterr().err.startswith("Not finished: Denied: /x\n")
    monkeypatch.setattr("samebits.cli.matrix.run_matrix", Runs(groups(ZeroDivisionError())))
    with pytest.raises(ExceptionGroup):  # a defect of samebits shows where it is
        cli.main(["matrix"], {})


def test_an_error_cannot_set_the_terminal(folder, monkeypatch, capsys):
    monkeypatch.setattr(
        "samebits.cli.matrix.run_matrix", Runs(CaptureError("\x1b[2J\x07red\nand more"))
    )
    assert cli.main(["matrix"], {}) == 1
    assert capsys.readouterr().err == "\\x1b[2J\\x07red\nand more\n"


# a folder that cannot be read


def test_a_model_s_folder_that_cannot_be_read_fails_its_cells_alone(tmp_path, monkeypatch):
    from tests.support.scheduler_bench import Bench as Bench_
    from tests.support.scheduler_bench import recipe, statuses

    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    plain = Checkpoints.given

    def given(self, model):
        plain(self, model)
        raise PermissionError(13, "Permission denied", f"{tmp_path}/tiny/secret.bin")

    monkeypatch.setattr(Checkpoints, "given", given)
    bench = Bench_(tmp_path, recipe(), model_spec("tiny", path="tiny"))
    runs = bench.run()
    assert statuses(runs)["llama@5.0"] == ["complete"] * 2
    failures = {both[0].failure.message for both in runs.values() if both[0].failure}
    assert failures == {"secret.bin of tiny cannot be read: Permission denied"}
