"""How much memory a probe holds: a file that is read through is not kept, nor a model nobody asks about."""

import os
import resource
import sys
import tempfile
from pathlib import Path

import cells
import torch
from safetensors.torch import save_file
from samebits_probe.cell import cell
from samebits_probe.cell.session import Session
from samebits_probe.model import load, state
from samebits_probe.model.checkpoint import MAPPED, Checkpoint
from samebits_probe.model.tensor import tensor_hash

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench import large

MIB = 1 << 20


def mapped():
    """Return the bytes of files that are resident here."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssFile:")[1].split()[0]) << 10


def test_a_checkpoint_that_is_read_through_is_not_held():
    names = [f"x{i}" for i in range(24)]
    folder = Path(tempfile.mkdtemp())
    path = folder / "model.safetensors"
    save_file({name: torch.full((2 * MIB,), float(i)) for i, name in enumerate(names)}, path)
    checkpoint = Checkpoint.find(str(folder), None)
    first = tensor_hash(checkpoint.tensor("x0"))
    before, most = mapped(), 0
    for i, name in enumerate(names):
        tensor = checkpoint.tensor(name)
        assert bool((tensor == float(i)).all())
        most = max(most, mapped() - before)
    assert path.stat().st_size > 190 * MIB
    assert most < MAPPED + 40 * MIB, most / MIB
    held = checkpoint.tensor("x0")
    assert tensor_hash(checkpoint.tensor(names[-1])) != first == tensor_hash(held)
    assert checkpoint.shape("x1") == (2 * MIB,)
    assert checkpoint.dtypes() == {"float32": len(names)}


def test_a_model_that_is_let_go_has_its_shapes_and_no_numbers():
    model = torch.nn.Sequential(torch.nn.Linear(300, 200), torch.nn.BatchNorm1d(200))
    model[1].weight = torch.nn.Parameter(model[1].weight.bfloat16())
    shapes = {name: (t.shape, t.dtype) for name, t in model.state_dict().items()}
    state.drop_tensors(model)
    assert {name: (t.shape, t.dtype) for name, t in model.state_dict().items()} == shapes
    assert all(t.untyped_storage().nbytes() <= 8 for t in model.state_dict().values())


def test_a_cell_holds_two_models_at_once_and_no_third():
    folder = Path(tempfile.mkdtemp())
    size = large.make(folder / "model", 256 * MIB)
    job = cells.job(folder, cells.fed(folder / "model"), limit=MIB)
    # what a first load imports is no model
    load.load(Session(job).source)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    pid = os.fork()
    if not pid:
        cell.run(job)
        os._exit(0)
    _, status, used = os.wait4(pid, 0)
    assert status == 0
    facts = (folder / "a.json").read_text()
    assert '"status":"complete"' in facts
    assert '"outcome":"same bits"' in facts
    held = ((used.ru_maxrss << 10) - before) / size
    assert held < 2.5, held
