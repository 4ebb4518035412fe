"""Tests of what only a GPU shows, on the torch of the machine: nox -s tests-gpu."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from samebits.stacks.system import find_system_torch
from tests.real.conftest import ROOT, run_of, share_stacks, write_planted

PLANTED = Path(__file__).parent / "planted"
SIZES = {"vocab_size": 64, "hidden_size": 256, "num_hidden_layers": 2}
COUNTS = "import torch; print(torch.cuda.device_count())"


def pytest_collection_modifyitems(items):
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.stacks)


def run(command, text, env):
    return subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, env=dict(env)
    )


@pytest.fixture(scope="session", autouse=True)
def gpu():
    """Skip without a GPU that the torch of this machine can use."""
    os.environ.setdefault("UV_CONSTRAINT", str(ROOT / "tests" / "newest.txt"))
    if shutil.which("nvidia-smi") is None:
        pytest.skip("this machine has no GPU of NVIDIA")
    python = find_system_torch(os.environ, run).python
    counted = run([python, "-c", COUNTS], "", os.environ)
    if counted.stdout.strip() in ("", "0"):
        pytest.skip(f"the torch of {python} has no GPU: {counted.stderr.strip()[-200:]}")


def plant(folder, defect):
    """Write a checkpoint with seeded weights for the planted model."""
    classes = {"AutoConfig": "GpuConfig", "AutoModelForCausalLM": "GpuForCausalLM"}
    config = {"model_type": "gpu", "defect": defect, **SIZES}
    size = SIZES["hidden_size"]
    shapes = dict.fromkeys(("embed.weight", "head.weight"), (SIZES["vocab_size"], size))
    shapes |= {f"layers.{i}.proj.weight": (size, size) for i in range(SIZES["num_hidden_layers"])}
    write_planted(folder, "modeling_gpu", shapes, classes, planted=PLANTED, spread=0.1, **config)


@pytest.fixture(scope="module")
def report(request, tmp_path_factory):
    """The report of the MATRIX of a file, whose DEFECTS are planted beside it."""
    folder = tmp_path_factory.mktemp("gpu")
    for defect in request.module.DEFECTS:
        plant(folder / defect, defect)
    (folder / "matrix.yaml").write_text(request.module.MATRIX)
    share_stacks(folder / ".samebits")
    return run_of(folder, os.environ)[0]
