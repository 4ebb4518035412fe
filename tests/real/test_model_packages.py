"""Packages of models on real stacks: a planted defect is found, its clean twin is not accused."""

import json

import ml_dtypes
import numpy as np
import pytest

from samebits.questions.processors.records import PROCESSORS
from samebits.records.capture import NO_DEVICE
from tests.support.model_packages import make_checkpoint, make_package

pytestmark = pytest.mark.long  # for changes of model/packages.py and of samebits/stacks/packages.py

MATRIX = """
environments: ["4.48", "5.x"]
defaults: {questions: []}
models:
  healthy: {path: tiny, packages: ./healthy, import: healthy_models}
  planted: {path: tiny, packages: ./planted, class: "planted_models.modeling_tiny:TinyForCausalLM"}
  newer: {path: tiny, packages: ./newer, import: newer_models}
  looking: {greedy: 0, build: {architecture: vit, head: image-classification, config: {
    hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 4, intermediate_size: 40,
    image_size: 16, patch_size: 8}, processor: {size: {height: 32, width: 32}}}}
  plain: {build: {architecture: gpt2, config: {vocab_size: 40, n_embd: 16, n_layer: 1, n_head: 2}}}
"""


def test_code_of_packages_is_compared_and_changes_no_other_model(tmp_path, run_in):
    make_checkpoint(tmp_path / "tiny")
    # no stack has an fsspec of years ago, which is what keeps datasets out of many
    make_package(tmp_path / "healthy", "healthy_models", requires=["fsspec<2025"])
    make_package(tmp_path / "planted", "planted_models", patches=["inv-freq-buffer.diff"])
    make_package(tmp_path / "newer", "newer_models", requires=["transformers>=5"])
    (tmp_path / "matrix.yaml").write_text(MATRIX, "utf-8")
    report = run_in(tmp_path)
    cells = {(c.cell.model, c.cell.stack): c for row in report.rows for c in row.cells}
    assert cells["healthy", "5.x"].verdict == "identical"
    planted = cells["planted", "5.x"]
    assert planted.verdict == "unstable"
    assert "SB301" in {finding.code for finding in planted.findings}
    absent = cells["newer", "4.48"]
    assert absent.verdict == "absent"
    assert "depends on transformers>=5" in absent.absent
    assert cells["plain", "4.48"].failure is None
    listed = {(p.models, p.stack): p for p in report.packages}
    assert listed[("healthy",), "5.x"].packages.keys() == {"healthy-models", "fsspec"}
    assert listed[("healthy",), "5.x"].replaced.keys() == {"fsspec"}
    assert listed[("newer",), "4.48"].failure == absent.absent
    # a model with an image processor gets what users have, and the processors that it makes differ
    asked = PROCESSORS.by_model(report.rows)["looking"]
    for stack, backend in (("4.48", "pil"), ("5.x", "torchvision")):
        assert listed[("looking",), stack].packages.keys() >= {"pillow", "torchvision"}
        assert asked.stacks[stack].parts["image processor"].backend == backend
    (part,) = (p for p in asked.compared["5.x"].parts if p.part == "image processor")
    assert {d.outcome for d in part.differences} - {"rounding"}
    # the stacks themselves have none of them
    assert not any("models" in name for stack in report.stacks for name in stack.packages)
    assert not any("pillow" in stack.packages for stack in report.stacks)


QUANTISED = """
environments: ["4.48", "5.x"]
defaults: {greedy: 0, questions: []}
models:
  on-a-gpu: {path: on-a-gpu, packages: accelerate}
  other-package: {path: other-package, packages: accelerate}
  float8: {path: float8}
  float8-named: {path: float8-named}
"""
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}


def write_float8(path):
    """Write the tensors of a safetensors file again, each as float8."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header, values = json.loads(data[8:start]), np.frombuffer(data[start:], "<f4")
    for entry in header.values():
        if "dtype" in entry:
            offsets = [offset // 4 for offset in entry["data_offsets"]]
            entry |= {"dtype": "F8_E4M3", "data_offsets": offsets}
    text = json.dumps(header).encode()
    path.write_bytes(
        len(text).to_bytes(8, "little") + text + values.astype(ml_dtypes.float8_e4m3fn).tobytes()
    )


@pytest.mark.long
def test_weights_in_few_bits_accuse_no_release_for_the_machine(tmp_path, run_in):
    for name, fields in {
        "on-a-gpu": {"quantization_config": {"quant_method": "higgs", "group_size": 256}},
        "other-package": {"quantization_config": {"quant_method": "quanto", "weights": "int8"}},
        "float8": {"torch_dtype": None},
        "float8-named": {"torch_dtype": "float32"},
    }.items():
        folder = make_checkpoint(tmp_path / name, **LLAMA, **fields)
        if "float8" in name:
            write_float8(folder / "model.safetensors")
    (tmp_path / "matrix.yaml").write_text(QUANTISED, "utf-8")
    report = run_in(tmp_path)
    cells = {(c.cell.model, c.cell.stack): c for row in report.rows for c in row.cells}
    for stack in ("4.48", "5.x"):
        machine, other = cells["on-a-gpu", stack], cells["other-package", stack]
        assert machine.verdict == "not finished"
        assert "this machine has no GPU" in machine.unfinished.reason
        assert machine.unfinished.phase == NO_DEVICE
        assert other.verdict == "failed"
        assert "optimum-quanto" in other.failure.message
    (finding,) = (f for f in cells["float8", "5.x"].findings if f.code == "SB931")
    assert finding.raises == "5.x"
    assert finding.where == ("5.x raises, the reference 4.48 works: integrity load without a dtype")
    assert "SB931" not in {f.code for f in cells["float8-named", "5.x"].findings}
