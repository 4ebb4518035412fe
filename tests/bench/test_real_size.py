"""bench.real_size: the checkpoints are what their config says, and the page says what was measured."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from bench import page, real_size
from bench.memory import MemoryWatch, descendants
from bench.real_size import Model, write_checkpoint

COST = {
    "machine": {"cores": 2, "cpu": "a processor", "load": 0.0, "platform": "Linux"},
    "models": [
        {
            "name": "dense, float32",
            "parameters": 270_000_000,
            "weights": 1 << 30,
            "bare": 20.0,
            "levels": {
                "quick": {"times": 1.9, "memory_over_weights": 1.4, "spent": {"cell a": 30.0}},
                "default": {"times": 4.25, "memory_over_weights": 2.5, "spent": {"ladder": 40.0}},
                "deep": {"times": 9.0, "memory_over_weights": 3.0, "spent": {"cell b": 10.0}},
            },
        }
    ],
}


def tensors(path):
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__")
    return {
        name: (entry, data[8 + size :][slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def test_a_checkpoint_has_the_weights_of_its_config(tmp_path):
    model = Model("tiny", "mixtral", 128, 64, 2, experts=4, dtype="bfloat16")
    n_bytes = write_checkpoint(model, tmp_path / "model")
    stored = tensors(tmp_path / "model" / "model.safetensors")
    assert {name: tuple(entry["shape"]) for name, (entry, _) in stored.items()} == dict(
        model.shapes()
    )
    assert sum(len(data) for _, data in stored.values()) == n_bytes == 2 * model.parameters
    _, data = stored["model.layers.0.self_attn.q_proj.weight"]
    values = (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32)
    assert 0.015 < values.std() < 0.025
    _, norm = stored["model.norm.weight"]
    assert set(np.frombuffer(norm, "<u2")) == {0x3F80}, "norms are ones"


def test_the_same_model_has_the_same_bytes(tmp_path):
    model = Model("tiny", "llama", 64, 32, 1)
    for name in "ab":
        write_checkpoint(model, tmp_path / name)
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert files[0] == files[1]


def test_models_have_the_sizes_that_they_are_named_for():
    sizes = [model.parameters for model in real_size.SMALL]
    assert all(0.25e9 < size < 0.35e9 for size in sizes)
    assert all(0.9e9 < model.parameters < 1.2e9 for model in real_size.LARGE)


def test_the_page_says_which_aims_are_met():
    text = page.render({"machine": COST["machine"], "date": "2026-01-02", "quick": False}, COST)
    section = text.partition("## Models of real size")[2]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in section.splitlines()]
    by_level = {row[1]: row for row in rows if len(row) == 5}
    assert by_level["quick"][2:] == ["1.9", "2: yes", "1.4"]
    assert by_level["default"][2:] == ["4.2", "4: **no**", "2.5"]
    assert by_level["deep"][2:] == ["9.0", "", "3.0"]
    assert "cell a 1.5" in section, "jobs are multiples of bare, too"


def test_without_such_a_measurement_there_is_no_section():
    text = page.render({"machine": COST["machine"], "date": "2026-01-02", "quick": False})
    assert "real size" not in text


@pytest.mark.processes
def test_memory_of_descendants_is_seen():
    code = "data = bytearray(b'x' * (64 << 20)); print(1, flush=True); input()"
    with (
        MemoryWatch(interval=0.01) as memory,
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as child,
    ):
        child.stdout.readline()
        assert child.pid in descendants(os.getpid())
        deadline = time.monotonic() + 10
        while memory.peak < 64 << 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        child.communicate(b"\n")
    assert 64 << 20 <= memory.peak < 256 << 20


def test_a_model_that_is_measured_again_replaces_its_cost_and_keeps_the_others(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(real_size, "RESULTS", tmp_path / "real_size.json")
    here, dense, experts = {"cpu": "a"}, real_size.SMALL[0].name, real_size.SMALL[2].name
    for name, bare in ((experts, 1.0), (dense, 2.0), (experts, 3.0)):
        real_size.write({"name": name, "bare": bare}, here)
    models = json.loads(real_size.RESULTS.read_text())["models"]
    assert [(entry["name"], entry["bare"]) for entry in models] == [(dense, 2.0), (experts, 3.0)]


def test_costs_of_another_machine_are_removed(tmp_path, monkeypatch):
    monkeypatch.setattr(real_size, "RESULTS", tmp_path / "real_size.json")
    for model, cpu in zip(real_size.SMALL, "aab", strict=True):
        real_size.write({"name": model.name, "bare": 1.0}, {"cpu": cpu})
    models = json.loads(real_size.RESULTS.read_text())["models"]
    assert [entry["name"] for entry in models] == [real_size.SMALL[2].name]
