"""A difference that runs by itself: planted ones are shrunk, run by uv, and only then there."""

import json
import os
import shutil

import pytest

from samebits.capsules.running import Place
from samebits.records.capsule import CapsuleFile
from samebits.reports.write import write
from tests.real.conftest import ROOT

DEFECTS = ("first layer", "raises", "unwritten", "environment", "clock")
CUSTOM = ROOT / "tests" / "custom"
LARGE = """
import json, sys, torch
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from make import shapes

folder = Path(sys.argv[2])
config = json.loads((folder / "config.json").read_text())
config |= {"hidden_size": 1024, "intermediate_size": 2048, "num_attention_heads": 16}
config |= {"num_key_value_heads": 16, "head_dim": 64, "num_hidden_layers": 3}
(folder / "config.json").write_text(json.dumps(config))
state = {name: torch.full(shape, 0.01) for name, shape in shapes(config).items()}
torch.save(state, folder / "pytorch_model.bin", _use_new_zipfile_serialization=False)
"""
"""Makes tests/custom/healthy larger, as a pickle; check_capsule.py has every other layout."""
MATRIX = """\
stacks: ["4.48", "5.x"]
defaults:
  greedy: 0
  relations: false
  usage: false
  arguments: false
  changes: false
  other_classes: false
  pipelines: false
  training: false
  crossings: false
  prompts:
    padded: {batch: [{length: 5}, {length: 13}]}
    short: {length: 9}
models:
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory, run_script, planted, run_in):
    """Return the report of one model for each defect, and the folder that it is written to."""
    folder = tmp_path_factory.mktemp("capsules")
    shutil.copytree(CUSTOM / "healthy", folder / "large")
    (folder / "large" / "model.safetensors").unlink()
    run_script("4.48", "-c", LARGE, CUSTOM, folder / "large")
    lines = [
        f"  {defect.replace(' ', '-')}: {{path: '{planted(defect)}', trust_remote_code: true}}"
        for defect in DEFECTS
    ]
    patch = CUSTOM / "no-post-init.diff"
    lines.append(f"  large: {{path: large, trust_remote_code: true, patch: [{patch}]}}")
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
    folder, terminal = capsule("first-layer")
    assert terminal.contrast == "differs"
    assert json.loads((folder / "checkpoint" / "config.json").read_text())["num_hidden_layers"] == 1
    assert len(terminal.question.feed["input_ids"].rows[0]) == 2
    assert terminal.reference.sees.ref.shape == terminal.candidate.sees.ref.shape == (1, 2, 32)
    assert terminal.reference.sees.ref.hash != terminal.candidate.sees.ref.hash
    assert "not rounding" in (folder / "ISSUE.md").read_text()


def test_a_script_sees_it_wherever_it_lies(capsule, tmp_path):
    folder, terminal = capsule("first-layer")
    copy = tmp_path / "else where"
    shutil.copytree(folder, copy)
    place, side = Place(os.environ), terminal.candidate
    try:
        ran = place.run(copy, (side.script,), needs_hub=False)[side.script]
    finally:
        place.close()
    assert ran.code == 0, ran.output
    assert side.sees.sha256 in ran.output


def test_an_exception_is_what_its_script_expects(capsule):
    folder, terminal = capsule("raises")
    assert terminal.contrast == "fails"
    assert terminal.candidate.sees.error == "ValueError"
    assert terminal.candidate.sees.message == "planted | failure"
    assert terminal.reference.sees.ref is not None
    assert "not in 4.48" in (folder / "ISSUE.md").read_text().partition("\n")[0]


def test_an_exception_of_a_large_model_is_shown_without_its_weights(run, capsule):
    assert (run[1].parent / "large" / "pytorch_model.bin").stat().st_size > 100e6
    folder, terminal = capsule("large")
    assert terminal.contrast == "fails"
    assert "zeros in place of its weights" in terminal.shrunk
    assert terminal.candidate.sees.error == "AttributeError"
    assert "all_tied_weights_keys" in terminal.candidate.sees.message
    assert terminal.reference.sees.ref is not None
    paths = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in paths) < 100_000
    assert not [path for path in paths if path.suffix in {".bin", ".safetensors"}]


def test_memory_that_nobody_wrote_shows_in_two_runs(capsule):
    folder, terminal = capsule("unwritten")
    assert terminal.contrast == "unstable"
    assert terminal.candidate.sees.unstable
    assert not terminal.reference.sees.unstable
    assert "glibc.malloc.perturb" in (folder / "5.x.py").read_text()


def test_a_clock_is_no_memory_that_nobody_wrote(cells):
    assert cells["clock"].judged == "unstable"
    assert not cells["clock"].capsule.path
    reason = (
        "gives different bits even if uninitialised memory holds the same, as with random numbers"
    )
    assert cells["clock"].capsule.reason == f"outside samebits, 5.x {reason}"


def test_what_the_scripts_do_not_see_is_not_written(run, cells):
    told = cells["environment"].capsule
    assert not told.path
    assert "5.x.py did not reproduce the difference outside samebits" in told.reason
    assert not (run[1] / "repro" / "environment@5.x").exists()
    assert told.reason.split(":")[0] in (run[1] / "report.md").read_text()


def test_a_second_run_makes_only_the_one_that_did_not_reproduce(run, run_in, cells):
    """What the scripts of the others saw is kept: neither uv nor a stack runs one of them again."""
    report, written = run
    again = run_in(written.parent, capsules="failing")
    terminal = (written.parent / "progress.log").read_text().splitlines()
    assert [
        line for line in terminal if line.startswith("reproducers: ") and "to reproduce" in line
    ] == [
        f"reproducers: {len(DEFECTS) + 1} differences to reproduce without samebits",
        "reproducers: 1 difference to reproduce without samebits",
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
