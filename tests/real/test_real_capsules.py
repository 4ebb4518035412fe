"""A difference that runs by itself: planted ones are shrunk, run by uv, and only then there.

long_capsules.py has those that no script shows, and a large model.
"""

import json
import os
import shutil

import pytest

from samebits.capsules.running import Place
from samebits.records.capsule import CapsuleFile
from samebits.reports.write import write
from tests.real.conftest import ROOT

pytestmark = pytest.mark.long  # for changes of capsules/ and of the probes' capsules

DEFECTS = ("first layer", "raises")
CUSTOM = ROOT / "tests" / "custom"
MATRIX = """\
environments: ["4.48", "5.x"]
defaults:
  greedy: 0
  questions: []
  prompts:
    padded: {batch: [{length: 5}, {length: 13}]}
    short: {length: 9}
models:
"""


def reported(folder, planted, run_in, defects, *more):
    """Return the report of one model for each defect and of more models, and the folder that it is written to."""
    lines = [
        f"  {defect.replace(' ', '-')}: {{path: '{planted(defect)}', trust_remote_code: true}}"
        for defect in defects
    ]
    (folder / "matrix.yaml").write_text(MATRIX + "\n".join((*lines, *more)))
    report = run_in(folder, capsules="failing")
    write(report, folder / "report", run_in.beside)
    return report, folder / "report"


@pytest.fixture(scope="module")
def run(tmp_path_factory, planted, run_in):
    return reported(tmp_path_factory.mktemp("capsules"), planted, run_in, DEFECTS)


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
