"""Models that take images, sounds and series: a plain script confirms the verdict of each of them.

The script, tests/stock_models.py, uses transformers and torch alone. Its inputs are its own, so it can show less than a
run: what it sees to differ must not pass as the same bits or as rounding, and where a run sees the same bits, so does it.
To be run after a change of how such inputs are made, of the ladder, or of what a verdict is made of.
"""

import json
import os
import subprocess

import pytest

from samebits.stacks.environment import probe_environment
from tests.real.conftest import ROOT

SCRIPT = ROOT / "tests" / "stock_models.py"
STACKS = ("4.48", "4.57", "5.x")
MODELS = ("qwen2vl", "qwen25vl", "llava", "timeseries", "whisper", "clip", "detr")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    modules = str(tmp_path_factory.mktemp("modules"))
    return probe_environment(os.environ, needs_hub=False, modules_cache=modules)


@pytest.fixture(scope="module")
def run_script(build, environment):
    """Run the plain script in a stack."""

    def run(stack, *words):
        command = [build(stack).python, str(SCRIPT), *map(str, words)]
        subprocess.run(command, check=True, env=environment, capture_output=True)

    return run


@pytest.fixture(scope="module", params=["4.48", "4.57"])
def trial(request, tmp_path_factory, run_script, run_in):
    """Return the reference, its report, and how the script's outputs compare: by model and stack."""
    reference = request.param
    folder = tmp_path_factory.mktemp("stock")
    run_script("4.57", "make", folder / "models")
    stacks = STACKS[STACKS.index(reference) :]
    for stack in stacks:
        run_script(stack, "forward", folder / "models", folder / f"{stack}.pt")
    models = {name: {"path": f"models/{name}"} for name in MODELS}
    switches = dict.fromkeys(("relations", "save_load", "usage", "training"), False)
    matrix = {"environments": list(stacks), "defaults": switches, "models": models}
    (folder / "matrix.yaml").write_text(json.dumps(matrix))  # JSON is YAML
    return reference, run_in(folder), compared(folder, stacks, run_script)


def compared(folder, stacks, run_script):
    """Return (model, stack) -> what the script's outputs are beside the reference's."""
    run_script(stacks[0], "compare", folder, folder / "compared.json", *stacks)
    return {
        tuple(key.split("@")): word
        for key, word in json.loads((folder / "compared.json").read_text()).items()
    }


ALLOWED = {
    "same": {"identical", "rounding", "diverged", "undecided", "unstable"},
    "rounds": {"rounding", "diverged", "undecided", "unstable"},
    "differs": {"diverged", "undecided", "unstable"},
    "raises": {"failed", "not observed", "absent"},
    "unknown": {"rounding", "diverged", "undecided", "unstable"},
}
"""What a plain script sees -> the verdicts that it allows."""


def test_no_verdict_contradicts_the_plain_script(trial):
    reference, report, words = trial
    wrong = {}
    for row in report.rows:
        for cell in row.cells:
            word = words.get((row.model, cell.cell.stack))
            compared_with = cell.reference.stack if cell.reference is not None else ""
            if word is None or compared_with != reference or cell.cell.stack == reference:
                continue
            if cell.verdict not in ALLOWED[word]:
                wrong[str(cell.cell)] = (word, cell.verdict, cell.headline)
    assert wrong == {}
    assert len(words) >= len(MODELS)


def test_what_rounds_in_a_run_rounds_in_the_script(trial):
    _, report, words = trial
    rounding = {
        (row.model, cell.cell.stack)
        for row in report.rows
        for cell in row.cells
        if cell.verdict == "rounding"
    }
    compared_here = {key for key in rounding if words.get(key) not in (None, "raises", "unknown")}
    assert {words[key] for key in compared_here} <= {"same", "rounds"}
