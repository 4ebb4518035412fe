"""Tests that a run compares only rows whose files changed, with the results of a complete run."""

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest

from samebits.base.filestate import Dependencies
from samebits.diagnose import verdict
from samebits.pipeline import opening, rows, run
from samebits.pipeline.order import Order
from samebits.pipeline.scheduler import Scheduler
from samebits.questions.training.records import TrainingFile
from samebits.records.capture import Failure, Signals, Unfinished
from samebits.records.ids import CellId
from samebits.storage import rows as storage_rows
from samebits.storage.store import Store
from samebits.terminal.progress import Plain
from samebits_wire.seal import opened, sealed
from tests.support.builders import Memory, built_stack, capture, forward, sound, values
from tests.support.fakes import Crossed, FakeProcess, choose_inputs, ended, leave

STACKS = ("4.48", "5.0")
MATRIX = """\
environments: [{stacks}]
torch: "2.13.0"
models:
  llama: {{build: llama, dtypes: [float32, bfloat16]}}
  gpt2: {{build: gpt2}}
""".format(stacks=", ".join(f'"{s}"' for s in STACKS))


MACHINE = {"platform": "Linux", "cpu": "fake", "cpu_capability": "fake", "cores": 1, "threads": 1}
MACHINE["flags"] = {}


def failure(phase):
    return Failure(phase=phase, type="AttributeError", message="no attribute", traceback="")


class Stream:
    encoding = "utf-8"

    def write(self, text):
        pass

    def flush(self):
        pass


class Place:
    """A folder with a matrix and fake stacks and probes, which counts the work of a run."""

    def __init__(self, folder, monkeypatch):
        self.folder = folder
        self.matrix = folder / "matrix.yaml"
        self.matrix.write_text(MATRIX)
        self.crossed = Crossed()
        self.compared = []
        self.read = []
        self.jobs = []
        self.failing = ()
        self.late = ()
        self.logits = values(1, 6, 8)
        build = lambda spec: built_stack(spec.id, "llama", "gpt2", "opt", python=f"py{spec.id}")
        made = partial(Scheduler, starter=self.start, builder=build)
        monkeypatch.setattr(opening, "Scheduler", made)
        self._count(monkeypatch, verdict, "result", lambda cell, *_: self.compared.append(cell))
        self._count(monkeypatch, Store, "read_capture", lambda _, path: self.read.append(path))

    def _count(self, monkeypatch, owner, name, note):
        real = getattr(owner, name)

        def counted(*arguments, **options):
            note(*arguments)
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, counted)

    async def start(self, python, environment, log):
        return FakeProcess(self.does, ready={"ready": MACHINE})

    def does(self, job):
        self.jobs.append(job["kind"])
        if job["kind"].startswith("crossings."):
            return self.crossed(job)
        if job["kind"] == "inputs":
            return choose_inputs(job)
        if job["kind"] == "build":
            out = Path(job["out"])
            out.mkdir(parents=True)
            (out / "model.safetensors").write_text(json.dumps(job["recipe"], sort_keys=True))
            (out / "checkpoint.json").write_text(sealed('{"n_parameters": 12}'))
        if job["kind"] == "training.step":
            file = TrainingFile(cell=job["cell"], reason="nothing is trained here")
            leave(job["task"]["result"], file)
        if job["kind"] == "cell":
            self.observe(job)
            if self._is_late(job):
                return ended(job, timed_out=True, stalled="no progress for 120 s")
        return ended(job)

    def _is_late(self, job):
        cell = CellId.model_validate(job["cell"])
        return f"{cell.model}@{cell.stack}" in self.late

    def observe(self, job):
        cell = CellId.model_validate(job["cell"])
        record = capture(cell.stack, run=job["run"], model=cell.model)
        update = {"short": forward(Memory(), logits=self.logits)}
        record = record.model_copy(update={"cell": cell, "signals": Signals(forward=update)})
        if f"{cell.model}@{cell.stack}" in self.failing:
            update = {"status": "failed", "failure": failure("forward"), "signals": Signals()}
            record = record.model_copy(update=update)
        if self._is_late(job):
            at = Unfinished(phase="greedy short", reason="no progress for 120 s")
            record = record.model_copy(update={"status": "unfinished", "unfinished": at})
        leave(job["capture"], record)

    def run(self, **options):
        for counted in (self.compared, self.read, self.jobs):
            counted.clear()
        self.dependencies = Dependencies()
        order = Order(matrix=self.matrix, **options)
        progress = lambda total: Plain(Stream(), total, lambda: 0.0)
        report, _ = asyncio.run(run.run_matrix(order, {"HOME": "/h"}, progress, self.dependencies))
        return report.model_copy(
            update={"started": "", "seconds": 0.0, "spent": (), "machine": None}
        )

    @property
    def rows(self):
        """Return the rows that were compared."""
        return sorted({f"{cell.model}/{cell.variant}" for cell in self.compared})

    def captures(self, *of):
        return sorted((self.folder / ".samebits" / "captures").joinpath(*of).rglob("*.json"))


ALL = ["gpt2/float32-default", "llama/bfloat16-default", "llama/float32-default"]


@pytest.fixture
def place(tmp_path, monkeypatch):
    return Place(tmp_path, monkeypatch)


def test_the_same_again_reads_no_capture_and_compares_nothing(place):
    first = place.run()
    assert place.rows == ALL
    assert place.run() == first
    assert (place.compared, place.read, place.jobs) == ([], [], [])


@pytest.mark.parametrize("level", ["quick", "deep"])
def test_a_row_of_another_level_is_not_used(place, level):
    place.run()
    place.run(level=level)
    assert place.rows == ALL
    again = place.run(level=level)
    assert place.rows == []
    commands = [cell.reproduce for row in again.rows for cell in row.cells]
    assert all(f" --{level} " in command for command in commands)
    place.run()
    assert place.rows == []


def test_a_quick_run_looks_for_no_cause_unless_asked(place, monkeypatch):
    asked = []

    async def causes_of(_results, _runs, _ask, traced, _known):
        asked.append(traced)
        return {}

    monkeypatch.setattr(rows, "causes_of", causes_of)
    place.run(level="quick")
    place.run(level="quick", causes=True)
    assert asked == [set(), None]


def test_the_ledger_of_a_kept_row_names_the_same_files(place):
    place.run()
    files = place.dependencies.files
    place.run()
    rows = {path for path in files if "/rows/" in path}
    assert {p: i for p, i in place.dependencies.files.items() if p not in rows} == files


def test_one_capture_written_again_is_one_row_compared(place):
    first = place.run()
    path = place.captures("llama", "bfloat16-default")[0]
    path.write_bytes(path.read_bytes())
    assert place.run() == first
    assert place.rows == ["llama/bfloat16-default"]


def test_another_capture_is_found(place):
    place.run()
    place.failing = ("gpt2@5.0",)
    for path in place.captures("gpt2", "float32-default", "5.0"):
        path.unlink()
    report = place.run()
    assert place.rows == ["gpt2/float32-default"]
    verdicts = {f"{c.cell}": c.verdict for row in report.rows for c in row.cells}
    assert verdicts["gpt2/float32-default@5.0"] == "failed"


def test_a_model_more_is_its_rows_compared(place):
    place.run()
    place.matrix.write_text(f"{MATRIX}  opt: {{build: opt}}\n")
    kept = place.run()
    assert place.rows == ["opt/float32-default"]
    assert place.run(fresh=True) == kept
    assert place.rows == sorted([*ALL, "opt/float32-default"])


def test_a_stack_less_is_compared_anew(place):
    place.run()
    place.matrix.write_text(MATRIX.replace(', "5.0"', ""))
    place.run()
    assert place.rows == ALL


def test_an_expected_entry_takes_no_comparison(place):
    place.failing = ("gpt2@5.0",)
    assert place.run().exit_code == 1
    place.matrix.write_text(
        f"{MATRIX}expected:\n  - {{model: gpt2, environment: '5.0', verdict: failed, reason: known}}\n"
    )
    report = place.run()
    assert place.rows == []
    assert report.counts["expected"] == 1


def test_a_row_with_a_cell_that_did_not_finish_is_compared_again_and_served_from_no_receipt(place):
    place.late = ("gpt2@5.0",)
    report = place.run()
    verdicts = {f"{c.cell}": c.verdict for row in report.rows for c in row.cells}
    assert verdicts["gpt2/float32-default@5.0"] == "not finished"
    assert "gpt2/float32-default@5.0 did not finish" in place.dependencies.unrepeatable
    place.run()
    assert place.rows == ["gpt2/float32-default"]
    assert "gpt2/float32-default@5.0 did not finish" in place.dependencies.unrepeatable


@pytest.mark.parametrize("what", ["dies again", "lives"])
def test_a_failure_of_the_machine_is_kept_by_nobody(place, monkeypatch, what):
    """A cell that ran out of memory runs again, and its row is compared again."""
    observe = place.observe

    def dies(job):
        if job["cell"]["model"] != "gpt2":
            observe(job)

    monkeypatch.setattr(place, "observe", dies)
    place.run()
    assert place.dependencies.unrepeatable
    if what == "lives":
        monkeypatch.setattr(place, "observe", observe)
    place.run()
    assert place.rows == ["gpt2/float32-default"]
    assert bool(place.dependencies.unrepeatable) == (what == "dies again")


@pytest.mark.parametrize("what", ["source", "torn", "format"])
def test_a_kept_row_that_cannot_be_used_is_compared(place, monkeypatch, what):
    first = place.run()
    rows = sorted((place.folder / ".samebits" / "rows").rglob("*.json"))
    assert len(rows) == 3
    if what == "source":
        monkeypatch.setattr(storage_rows, "source_digest", lambda: "another")
    for path in rows:
        text = path.read_text()
        if what == "torn":
            path.write_text(text[: len(text) // 2])
        if what == "format":
            told = json.loads(opened(text.encode())) | {"format_version": 0}
            path.write_text(sealed(json.dumps(told)))
    assert place.run() == first
    assert place.rows == ALL


def test_another_crossing_finds_anew_and_compares_nothing(place):
    """Findings of a cell depend on the crossings loaded by its stack; comparisons do not."""
    place.run()
    for path in (place.folder / ".samebits" / "crossings").rglob("*.json"):
        path.unlink()
    place.crossed.loads[("4.48", "5.0")] = {"outcome": "load failed"}
    place.run()
    assert place.rows == []
    assert len(place.read) > 0
    place.run()
    assert place.read == []


def test_fresh_keeps_nothing_and_the_next_run_compares(place):
    first = place.run(fresh=True)
    assert not (place.folder / ".samebits" / "rows").exists()
    assert place.run() == first
    assert place.rows == ALL


class Resolver:
    """A fake builder that knows which releases exist."""

    def __init__(self, *_, **__):
        self.ended = False

    def version(self, spec):
        return {"4.48": "4.48.3", "5.0": "5.0.0"}[spec.id]

    def newest_release(self, _spec, family):
        return {"4.48": "4.48.3", "5.0": "5.0.0"}.get(family)

    def below(self, _spec, version, _oldest):
        return {"5.0": "4.57.6", "4.57": "4.48.3"}[version]

    def end(self):
        self.ended = True


def soundly(place):
    """Return a fake probe that writes captures that can be compared signal by signal."""

    def observe(job):
        cell = CellId.model_validate(job["cell"])
        record = sound(Memory(), cell.stack, run=job["run"], model=cell.model)
        if f"{cell.model}@{cell.stack}" in place.failing:
            record = capture(cell.stack, run=job["run"], status="failed", model=cell.model)
        leave(job["capture"], record.model_copy(update={"cell": cell}))

    return observe


def test_every_release_between_the_stacks_is_run_and_kept(place, monkeypatch):
    monkeypatch.setattr(opening, "StackBuilder", Resolver)
    monkeypatch.setattr(place, "observe", soundly(place))
    place.failing = ("gpt2@4.57",)
    first = place.run(releases=True)
    assert [(s.id, s.between) for s in first.stacks] == [
        ("4.48", False),
        ("4.57", True),
        ("5.0", False),
    ]
    assert set(place.jobs) == {"build", "inputs", "cell", "training.step"}  # nothing is crossed
    bands = {row.model: [(b.does, *b.stacks) for b in row.bands] for row in first.rows}
    assert bands["llama"] == [("A", "4.48", "4.57", "5.0")]
    assert bands["gpt2"] == [("A", "4.48"), ("failed", "4.57"), ("A", "5.0")]
    assert place.run(releases=True) == first
    assert (place.compared, place.jobs) == ([], [])
    assert [stack.id for stack in place.run().stacks] == ["4.48", "5.0"]


@pytest.mark.parametrize("more", [{}, {"releases": True}])
def test_with_every_release_only_where_a_row_changes_is_traced(place, monkeypatch, more):
    """Later cells of a band are the same as its first; without bands, each cell is traced."""
    monkeypatch.setattr(opening, "StackBuilder", Resolver)
    asked = []

    async def causes_of(_results, _runs, _ask, traced, _known):
        asked.append(traced)
        return {}

    monkeypatch.setattr(rows, "causes_of", causes_of)
    monkeypatch.setattr(place, "observe", soundly(place))
    place.failing = ("gpt2@4.57", "gpt2@5.0")
    place.run(**more)
    (traced,) = asked
    assert sorted(map(str, traced)) == (
        ["gpt2/float32-default@4.57"] if more else ["gpt2/float32-default@5.0"]
    )
