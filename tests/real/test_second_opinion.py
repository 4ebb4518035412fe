"""A second implementation agrees: ten models, two stacks, plain torch, no samebits."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from samebits import questions
from samebits.matrix import load
from samebits.matrix.plan import Selection
from samebits.records.capture import Capture
from samebits.stacks.environment import probe_environment
from samebits.storage.store import Store
from samebits_wire import seal

pytestmark = pytest.mark.long  # it has an opinion of the core: to be asked after a change of it
ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "second_opinion.py"
MODELS = (
    "llama",
    "qwen2",
    "qwen2-yarn",
    "gpt2",
    "gpt2-scaled",
    "gemma2",
    "opt",
    "bloom",
    "bert",
    "roberta",
)


@pytest.fixture(scope="module")
def report(tmp_path_factory, run_in):
    folder = tmp_path_factory.mktemp("opinion")
    (folder / "matrix.yaml").write_text((ROOT / "zoo.yaml").read_text())
    (folder / "tests").symlink_to(ROOT / "tests")  # where the checkpoints with own code lie
    selection = Selection.parse(models=",".join(MODELS), environments="4.48,5.x", dtypes="float32")
    with pytest.MonkeyPatch.context() as patch:  # the script has an opinion of the core alone
        patch.setattr(questions, "QUESTIONS", ())
        return folder, run_in(folder, selection=selection)


@pytest.fixture(scope="module")
def opinions(report, stacks, tmp_path_factory):
    folder, found = report
    out = tmp_path_factory.mktemp("dumps")
    (out / "jobs.json").write_text(json.dumps(jobs(folder, found)))
    env = probe_environment(os.environ, needs_hub=False, modules_cache=str(out / "modules"))
    for name, stack in stacks.items():
        command = [
            stack.python,
            str(SCRIPT),
            "dump",
            str(out / f"{name}.pt"),
            str(out / "jobs.json"),
        ]
        subprocess.run(command, check=True, env=env, capture_output=True)
    command = [stacks["5.x"].python, str(SCRIPT), "compare"]
    command += [str(out / "4.48.pt"), str(out / "5.x.pt")]
    done = subprocess.run(command, check=True, env=env, capture_output=True, text=True)
    return json.loads(done.stdout)


def jobs(folder, found):
    """Return what the script needs: folders, prompts as they were fed, number of tokens."""
    store = Store(folder / ".samebits")
    matrix = load.load(folder / "matrix.yaml")
    sources = {}
    for path in sorted(folder.glob(".samebits/captures/*/float32-default/4.48/*/a.json")):
        capture = Capture.model_validate_json(seal.read(path))
        name = capture.cell.model
        (checkpoint,) = folder.glob(f".samebits/checkpoints/{name}-{'?' * 12}")
        prompts = {
            prompt: {key: store.tensor(ref).tolist() for key, ref in facts.inputs.items()}
            for prompt, facts in capture.signals.forward.items()
        }
        sources[name] = {
            "path": str(checkpoint),
            "dtype": "float32",
            "prompts": prompts,
            "greedy": matrix.model(name).greedy,
        }
    assert set(sources) == set(MODELS)
    return sources


def said(found, model):
    """Return what the report says of each signal: equal or not."""
    row = next(row for row in found.rows if row.model == model)
    cell = next(cell for cell in row.cells if cell.cell.stack == "5.x")
    outcomes = {signal.signal: signal.outcome != "differs" for signal in cell.signals}
    both = outcomes["buffers"] and outcomes["inv_freq"]
    return {
        "weights": outcomes["weights"],
        "buffers": both,
        "logits": outcomes["logits"],
        "greedy": outcomes["greedy"],
    }


@pytest.mark.parametrize("model", MODELS)
def test_report_and_second_opinion_agree(report, opinions, model):
    assert said(report[1], model) == opinions[model]


def test_the_ten_models_hold_differences_of_several_kinds(opinions):
    """Agreement on nothing but equality would say little."""
    for signal in ("weights", "buffers", "logits", "greedy"):
        assert {opinions[model][signal] for model in MODELS} == {True, False}, signal
