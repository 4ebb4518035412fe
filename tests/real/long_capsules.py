"""Reproducers of what is hard to show alone: unwritten memory, a clock, the environment, a large model.

To be run after a change of samebits/capsules or of what a reproducer's scripts do.
"""

# ruff: noqa: F811  fixtures

import shutil

import pytest

from tests.real.test_real_capsules import CUSTOM, capsule, cells, reported  # noqa: F401  fixtures

DEFECTS = ("first layer", "unwritten", "environment", "clock")
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


@pytest.fixture(scope="module")
def run(tmp_path_factory, run_script, planted, run_in):
    folder = tmp_path_factory.mktemp("capsules")
    shutil.copytree(CUSTOM / "healthy", folder / "large")
    (folder / "large" / "model.safetensors").unlink()
    run_script("4.48", "-c", LARGE, CUSTOM, folder / "large")
    patch = CUSTOM / "no-post-init.diff"
    large = f"  large: {{path: large, trust_remote_code: true, patch: [{patch}]}}"
    return reported(folder, planted, run_in, DEFECTS, large)


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
