"""Somebody sets the clock back: between two runs, or while one goes on."""

import ast
import os
import time
from pathlib import Path

import pytest

from samebits.base.digests import digest_of_file
from samebits.base.filestate import Dependencies
from samebits.base.workfolder import WORK
from samebits.jobs import cells
from samebits.jobs.cache import JobCache
from samebits.jobs.lab import Lab
from samebits.pipeline import scheduler
from samebits.questions.crossings.crosser import Crosser
from samebits.stacks import build
from samebits.storage.prune import prune
from samebits.storage.receipt import FOLDER, Answer, lookup, save
from samebits.storage.store import Store
from tests.support.faulty_bench import Bench, Host
from tests.support.partial import without_seconds

ROOT = Path(__file__).parents[2]
YEAR = 365 * 86_400
AGES = {
    ("check", "_run"),
    ("matrix", "run_cells"),
    ("cells", "_remove_leftovers"),
    ("crosser", "close"),
    ("scheduler", "_remove_old"),
    ("installer", "_is_old"),
    ("build", "_remove_leftovers"),
    ("source", "_remove_old"),
    ("receipt", "_is_over"),
}
"""Functions that compare the age of a file with a week, or a day."""


def who_looks_at_the_clock(path):
    """Return the functions of a file that ask for the time of day, which can be set."""
    found = set()
    for outer in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.unparse(outer)
            if "time.time(" in text or "time.time_ns(" in text:
                found.add((path.stem, outer.name))
    return found


def test_only_the_ages_of_files_are_told_by_a_clock_that_can_be_set():
    """Timeouts and durations go by time.monotonic, and by asyncio's clock, which is the same."""
    files = [*(ROOT / "samebits").rglob("*.py"), *(ROOT / "probes").rglob("*.py")]
    assert set().union(*map(who_looks_at_the_clock, files)) == AGES


@pytest.fixture
def work(tmp_path):
    """A folder of work whose files were all written a year ahead of the clock."""
    names = (
        "traces/m/v/s/a.json",
        "rows/m/v/c.json",
        "checkpoints/custom-ffffffffffff/config.json",
        "captures/m/v/s/k/a.0123456789ab.json",
        "stacks/4.48-0123.0123456789ab.tmp/x",
        "saved/s0123/saved.json",
        "logs/4.48-0123456789ab.log",
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    ahead = time.time() + YEAR
    for path in tmp_path.rglob("*"):
        os.utime(path, (ahead, ahead))
    return tmp_path


def test_what_is_from_the_future_is_not_old(work):
    before = sorted(work.rglob("*"))
    assert prune(work, (), time.time()) == []
    cells._remove_leftovers(work / "captures/m/v/s/k")
    build._remove_leftovers(work / "stacks")
    scheduler._remove_old(work / "logs", f"*-{scheduler._ANY_RUN}.log")
    Crosser(Lab(JobCache(work, Store(work), "p", "m"))).close()
    assert sorted(work.rglob("*")) == before


def test_a_receipt_from_the_future_is_served(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    matrix, dependencies = Path("matrix.yaml"), Dependencies()
    matrix.write_text("models: {}\n")
    (tmp_path / "kept").touch()
    ahead = time.time() + YEAR
    os.utime(tmp_path / "kept", (ahead, ahead))
    dependencies.file(tmp_path / "kept")
    said = Answer(0, ["The run passes."])
    save(["matrix"], {}, (matrix, digest_of_file(matrix)), dependencies, {}, "then", said)
    (left,) = (tmp_path / WORK / FOLDER).iterdir()
    os.utime(left, (ahead, ahead))
    assert lookup(["matrix"], {}).lines[1:] == said.lines
    os.utime(tmp_path / "kept", (ahead - YEAR, ahead - YEAR))  # a time of its own that changes
    assert lookup(["matrix"], {}) is None


@pytest.fixture
def host():
    made = Host()
    yield made
    made.close()


def kept(bench, kinds=("captures", "checkpoints", "ladders", "saved", "crossings")):
    root = bench.folder / ".samebits"
    files = (path for kind in kinds for path in (root / kind).rglob("*") if path.is_file())
    return {path: path.stat().st_ino for path in files}


@pytest.mark.processes
def test_a_run_after_the_clock_was_set_back_goes_on_from_what_is_there(tmp_path, host):
    bench = Bench(tmp_path, "healthy", "odd")
    assert host.run(bench) == 1, bench.said
    first, before = bench.without_times, kept(bench)
    ahead = time.time() + YEAR
    for path in (tmp_path / ".samebits").rglob("*"):
        os.utime(path, (ahead, ahead))
    assert host.run(bench) == 1, bench.said
    assert bench.without_times == first
    assert kept(bench) == before


@pytest.mark.processes
def test_a_clock_that_is_set_back_while_a_run_goes_on_changes_nothing(tmp_path, host):
    steady = Bench(tmp_path / "steady", "healthy", "hang", "odd", timeouts={"hang": 1})
    bench = Bench(tmp_path / "back", "healthy", "hang", "odd", timeouts={"hang": 1})
    (bench.folder / "templates" / "clock").touch()
    assert host.run(steady) == 1, steady.said
    assert host.run(bench) == 1, bench.said
    cells_ = bench.cells()
    reason = without_seconds(cells_["hang@5.0"]["unfinished"]["reason"])
    assert reason.startswith("no progress for N s")
    verdicts = {name: cell["verdict"] for name, cell in cells_.items()}
    assert verdicts == {name: cell["verdict"] for name, cell in steady.cells().items()}
    assert bench.report["seconds"] >= 0
    assert bench.all_end(), bench.processes()
