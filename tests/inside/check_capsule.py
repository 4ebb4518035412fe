"""jobs.capsule: the tensors of a checkpoint are listed as a safetensors file would hold them."""

import json
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from samebits_probe.jobs import capsule
from samebits_probe.process.files import read_sealed

TENSORS = {
    "a": torch.zeros(2, 3),
    "b": torch.zeros(5, dtype=torch.bfloat16),
    "c": torch.zeros((), dtype=torch.int64),
    "d": torch.zeros(4, dtype=torch.bool),
}
EXPECTED = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [5], "data_offsets": [24, 34]},
    "c": {"dtype": "I64", "shape": [], "data_offsets": [34, 42]},
    "d": {"dtype": "BOOL", "shape": [4], "data_offsets": [42, 46]},
}


def listed(folder):
    """Return what a job writes of a folder."""
    result = Path(tempfile.mkdtemp()) / "tensors.json"
    capsule.run({"checkpoint": str(folder), "result": str(result)})
    return read_sealed(result)


def stored(how):
    """Return a folder with the tensors in one layout."""
    folder = Path(tempfile.mkdtemp())
    if how == "safetensors":
        save_file(TENSORS, folder / "model.safetensors", metadata={"format": "pt"})
    elif how == "sharded":
        files = {"a": "one", "b": "one", "c": "two", "d": "two"}
        for shard in ("one", "two"):
            part = {name: TENSORS[name] for name in TENSORS if files[name] == shard}
            save_file(part, folder / f"{shard}.safetensors", metadata={"format": "pt"})
        weight_map = {name: f"{shard}.safetensors" for name, shard in files.items()}
        index = json.dumps({"weight_map": weight_map})
        (folder / "model.safetensors.index.json").write_text(index)
    else:
        archive = how == "pickle"
        path = folder / "pytorch_model.bin"
        torch.save(TENSORS, path, _use_new_zipfile_serialization=archive)
    return folder


def test_every_layout_is_listed():
    for how in ("safetensors", "sharded", "pickle", "pickle of before 1.6"):
        found = listed(stored(how))
        assert found["pickled"] == how.startswith("pickle")
        header = found["header"]
        assert header.keys() == EXPECTED.keys()
        if how != "safetensors":  # which orders tensors by the size of their elements
            assert header == EXPECTED
        for name, told in header.items():
            if name != "__metadata__":
                fields = ("dtype", "shape")
                assert [told[f] for f in fields] == [EXPECTED[name][f] for f in fields]


def test_zeros_behind_the_header_are_a_checkpoint():
    header = listed(stored("sharded"))["header"]
    text = json.dumps(header, indent=1).encode()
    path = Path(tempfile.mkdtemp()) / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(46))
    with safe_open(path, framework="pt") as file:
        for name, tensor in TENSORS.items():
            zeros = file.get_tensor(name)
            assert (zeros.dtype, zeros.shape) == (tensor.dtype, tensor.shape)


def test_a_trial_observes_the_hash_that_the_script_prints():
    """tests/capsules/test_script.py has the same hash of the same tensor."""
    known = "2f0c645069e7581a1382ebb64296772a2f992bf44cc6f1a711df88e514b6b0e7"
    tensor = torch.tensor(list(range(24)), dtype=torch.uint8).view(torch.float32).reshape(2, 3)
    assert capsule._sha256(tensor) == capsule._sha256(tensor.T.contiguous().T) == known
    assert capsule._sha256(tensor.T) != known


def test_what_cannot_be_listed_says_why():
    folder = Path(tempfile.mkdtemp())
    assert listed(folder)["refused"].startswith("none of model.safetensors, ")
    save_file({"x": torch.zeros(3, dtype=torch.int8)}, folder / "model.safetensors")
    assert listed(folder)["refused"] == "ValueError: x is of dtype I8"
    (folder / "model.safetensors").write_bytes(b"torn")
    assert "Error" in listed(folder)["refused"]
    assert str(folder) not in listed(folder)["refused"]
