"""A difference that runs by itself: planted ones are shrunk, run by uv, and only then there."""

import json
import os
import shutil

import pytest

from samebits.capsule import CapsuleFile
from samebits.capsules.running import Place
from samebits.reports.write import write

DEFECTS = ("first layer", "raises", "unwritten", "environment", "clock")
MATRIX = """\
stacks: ["4.48", "5.x"]
defaults:
  greedy: 0
  invariants: false
  crossings: false
  prompts:
    padded: {batch: [{length: 5}, {length: 13}]}
    short: {length: 9}
models:
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory, planted, run_in):
    """Return the report of one model for each defect, and the folder that it is written to."""
    folder = tmp_path_factory.mktemp("capsules")
    lines = [
        f"  {defect.replace(' ', '-')}: {{path: '{planted(defect)}', trust_remote_code: true}}"
        for defect in DEFECTS
    ]
    (folder / "matrix.yaml").write_text(MATRIX + "\n".join(lines))
    report = run_in(folder, capsules="failing")
    write(report, folder / "report", run_in.beside)
    return report, folder / "report"


@pytest.fixture(scope="module")
def cells(run):
    return {
        row.model: cell for row in run[0].rows for cell in row.cells if cell.cell.stack == "5.x"
    }


@pytest.fixture(scope="module")
def capsule(run, cells):
    def of(model):
        folder = run[1] / cells[model].capsule.path
        return folder, CapsuleFile.model_validate_json((folder / "expected.json").read_text())

    return of


def test_a_difference_is_shrunk_to_the_layer_it_starts_in(cells, capsule):
    assert cells["first-layer"].judged == "diverged"
    folder, said = capsule("first-layer")
    assert said.contrast == "differs"
    assert json.loads((folder / "checkpoint" / "config.json").read_text())["num_hidden_layers"] == 1
    assert len(said.question.feed["input_ids"].rows[0]) == 2
    assert said.reference.sees.ref.shape == said.candidate.sees.ref.shape == (1, 2, 32)
    assert said.reference.sees.ref.hash != said.candidate.sees.ref.hash
    assert "not rounding" in (folder / "ISSUE.md").read_text()


def test_a_script_sees_it_wherever_it_lies(capsule, tmp_path):
    folder, said = capsule("first-layer")
    copy = tmp_path / "else where"
    shutil.copytree(folder, copy)
    place, side = Place(os.environ), said.candidate
    try:
        ran = place.run(copy, (side.script,), needs_hub=False)[side.script]
    finally:
        place.close()
    assert ran.code == 0, ran.output
    assert side.sees.ref.hash in ran.output


def test_an_exception_is_what_its_script_expects(capsule):
    folder, said = capsule("raises")
    assert said.contrast == "fails"
    assert said.candidate.sees.error == "ValueError"
    assert said.candidate.sees.message == "planted | failure"
    assert said.reference.sees.ref is not None
    assert "none in 4.48" in (folder / "ISSUE.md").read_text().partition("\n")[0]


def test_memory_that_nobody_wrote_shows_in_two_runs(capsule):
    folder, said = capsule("unwritten")
    assert said.contrast == "unstable"
    assert said.candidate.sees.unstable
    assert not said.reference.sees.unstable
    assert "glibc.malloc.perturb" in (folder / "5.x.py").read_text()


def test_a_clock_is_no_memory_that_nobody_wrote(cells):
    assert cells["clock"].judged == "unstable"
    assert not cells["clock"].capsule.path
    assert "outside of the run" in cells["clock"].capsule.reason


def test_what_the_scripts_do_not_see_is_not_written(run, cells):
    told = cells["environment"].capsule
    assert not told.path
    assert "5.x.py did not see what the run saw" in told.reason
    assert not (run[1] / "repro" / "environment@5.x").exists()
    assert told.reason.split(":")[0] in (run[1] / "report.md").read_text()


def test_a_second_run_makes_only_the_one_that_did_not_reproduce(run, run_in, cells):
    """What the scripts of the others saw is kept: neither uv nor a stack runs one of them again."""
    report, written = run
    again = run_in(written.parent, capsules="failing")
    said = (written.parent / "progress.log").read_text().splitlines()
    assert [line for line in said if line.startswith("capsules: ") and "made" in line] == [
        f"capsules: {len(DEFECTS)} differences made to run alone",
        "capsules: 1 difference made to run alone",
    ]
    for row in again.rows:
        for cell in row.cells:
            if cell.cell.stack == "5.x" and row.model != "environment":
                assert cell.capsule == cells[row.model].capsule
    files = {n: content for n, content in run_in.beside.items() if n.startswith("repro/")}
    assert files
    assert {n: (written / n).read_bytes() for n in files} == files
    first, second = (
        sum(spent.jobs for spent in of.spent if spent.kind.startswith("capsule"))
        for of in (report, again)
    )
    assert 0 < second < first / 2
