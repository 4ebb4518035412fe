"""The bench measures a matrix that is valid, and the document says what the results say."""

import json
import re
import sys

import numpy as np
import pytest
import yaml

from bench import large, page
from bench.place import Place, one_model, zoo_cut
from bench.took import run
from samebits.matrix import load
from samebits.stacks.build import interpreter_of
from samebits_wire.places import STAMP

WHOLE = {
    "models": 40,
    "stacks": 4,
    "rows": 80,
    "cells": 320,
    "cold": {"wall": 400.0, "cpu": 700.0, "peak_mb": 900.0},
    "compared again": {"wall": 9.0, "cpu": 9.0, "peak_mb": 200.0},
    "unchanged, by nox": {"wall": 1.25, "cpu": 0.5, "peak_mb": 60.0},
    "one model added": {"wall": 30.0, "cpu": 40.0, "peak_mb": 600.0},
    "that model alone": {"wall": 25.0, "cpu": 35.0, "peak_mb": 600.0},
    "phases": {"load": 30.0, "forward": 10.0},
    "spent": [
        {"kind": "cell a", "jobs": 320, "cpu": 450.0},
        {"kind": "trainer.run", "jobs": 9, "cpu": 60.0},
        {"kind": "training.step", "jobs": 9, "cpu": 24.0},
        {"kind": "imports", "jobs": 4, "cpu": 20.0},
    ],
    "report_json_mb": 7.5,
    "report_md_kb": 300.0,
}
RESULTS = {
    "quick": False,
    "date": "2026-01-02",
    "machine": {"cores": 2, "cpu": "a processor", "load": 0.1, "platform": "Linux"},
    "whole": WHOLE,
    "quick_level": {"wall": 180.0, "cpu": 336.0, "peak_mb": 700.0, "spent": []},
    "work": {
        "cpu": 120.0,
        "imports": 20.0,
        "calls": {
            "forward": {"calls": 900, "cpu": 50.0},
            "forward, watched": {"calls": 90, "cpu": 9.0},
        },
        "unwatched": {"forward, watched": 4.5},
        "needed": 74.5,
        "times": 1.611,
    },
    "warm": {"changed": {"wall": 2.5}, "unchanged": {"wall": 0.75}},
    "later": {"warm": "2026-01-03"},
    "bare": {"cells": 300, "wall": 60.0, "cpu": 100.0, "times": 7.0},
    "by_hand": {"cells": 300, "sampled": 32, "wall": 3400.0, "cpu": 3500.0, "times": 0.2},
    "rates": {
        "probe, 5.x": {"hash": 1.5e9, "torch.equal": 8e9, "memory": 9e9, "copied": False},
        "host": {"megabytes": 1024, "verify": 1.4e9, "measure": 2e8, "grown_mb": 70},
    },
    "memory": {
        "1 GB": {
            "bytes": 10**9,
            "probe_over_size": 2.4,
            "host_mb": 180.0,
            "file_hash": 1.5e9,
            "cold": {"wall": 1, "cpu": 99.0, "peak_mb": 1},
        },
        "4 GB": {"skipped": "too little memory"},
    },
    "traces": {"5.x": {"sizes": [{"hidden": 48, "layers": 3, "tokens": 10, "ratio": 9.5}]}},
}


def target(text, start):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_the_document_says_what_was_measured_and_what_was_missed():
    text = page.render(RESULTS)
    assert "on 2 cores of a processor." in text
    assert target(text, "all probes") == ["1.61 \N{MULTIPLICATION SIGN}", "**no**"]
    assert target(text, "cell a") == ["320", "450.0"]
    assert re.search(r"\| host +\| +\| +146\.0 \|", text)
    assert target(text, "training step and Trainer")[:3] == ["84.0", "0.02", "`training: false`"]
    assert "relations inside a release" not in text
    assert target(text, "forward, watched") == ["90", "9.0"]
    assert target(text, "whole matrix, `--quick`") == ["0.10 \N{MULTIPLICATION SIGN}", "yes"]
    assert target(text, "whole matrix, default") == ["0.20 \N{MULTIPLICATION SIGN}", "yes"]
    assert target(text, "cold, `--quick`") == ["180.0", "336.0", "700"]
    assert target(text, "bare, once") == ["60.0", "100.0", ""]
    assert "takes 7.0 \N{MULTIPLICATION SIGN} the CPU of *bare*" in text
    assert "is 0.12 \N{MULTIPLICATION SIGN} *by hand*" in text
    assert "what they take without: forward 4.5 s." in text
    assert target(text, "unchanged re-run") == ["1.25 s", "yes"]
    assert target(text, "`check --quick --warm` of a tiny changed") == ["2.50 s", "yes"]
    assert target(text, "`check --quick --warm` of a tiny unchanged") == ["0.75 s", "**no**"]
    assert "Measured anew since: warm on 2026-01-03." in text
    assert target(text, "a model added") == ["+5.0 s", "yes"]
    assert target(text, "weights hashed") == ["1.50 GB/s", "yes"]
    assert target(text, "… and never copied") == ["no copy", "yes"]
    assert target(text, "two tensors of 1024 MB") == ["70 MB", "yes"]
    assert target(text, "host < 400 MB") == ["180 MB", "yes"]
    assert "load 75%, forward 25%" in text
    assert "too little memory" in text


def test_steps_that_were_not_run_are_left_out():
    few = {key: RESULTS[key] for key in ("quick", "date", "machine", "memory")}
    text = page.render(few)
    assert "## Memory" in text
    assert "## The whole matrix" not in text
    assert "whole matrix, " not in text


def test_the_committed_document_is_that_of_the_committed_results():
    assert page.RESULTS.exists() == page.PATH.exists()
    if page.RESULTS.exists():
        results = json.loads(page.RESULTS.read_text("utf-8"))
        assert not results["quick"]
        assert page.PATH.read_text("utf-8") == page.document()


@pytest.mark.parametrize(
    ("n_models", "dtypes", "n_stacks"), [(4, ["float32"], 2), (40, ["float32", "bfloat16"], 4)]
)
def test_the_zoo_cut_down_is_valid(tmp_path, n_models, dtypes, n_stacks):
    path = tmp_path / "matrix.yaml"
    path.write_text(yaml.safe_dump(zoo_cut(n_models, dtypes, n_stacks)))
    matrix = load.load(path)
    assert (len(matrix.models), len(matrix.stacks)) == (n_models, n_stacks)
    assert {model.dtypes for model in matrix.models} == {tuple(dtypes)}
    assert all(model.build is not None for model in matrix.models)


def test_the_matrix_of_one_large_model_is_valid(tmp_path):
    large.make(tmp_path / "model", 1_000_000)
    path = tmp_path / "run" / "matrix.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(one_model(zoo_cut(1, ["float32"], 4)), sort_keys=False))
    assert len(load.load(path).stacks) == 2


@pytest.mark.parametrize("size", [10**7, 10**8])
def test_a_large_checkpoint_is_as_large_as_it_should_be(tmp_path, size):
    made = large.make(tmp_path, size)
    assert abs(made - size) < size / 4 or size < 5 * 10**7
    raw = (tmp_path / "model.safetensors").read_bytes()
    head = int.from_bytes(raw[:8], "little")
    tensors = json.loads(raw[8 : 8 + head])
    tensors.pop("__metadata__")
    assert (
        sum(4 * int(np.prod(t["shape"])) for t in tensors.values()) == len(raw) - 8 - head == made
    )
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "llama"


@pytest.mark.processes
def test_what_a_command_took_is_what_it_did(tmp_path):
    code = "x = bytearray(120_000_000); x[::4096] = b'1' * len(x[::4096]); sum(range(3_000_000))"
    took = run([sys.executable, "-c", code], tmp_path / "log")
    assert took.peak > 110e6
    assert 0 < took.cpu < 30
    assert took.code == 0
    with pytest.raises(SystemExit, match="ended with 3"):
        run([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log")


def test_a_place_of_its_own_shares_stacks_and_locks_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("bench.place.WORK", tmp_path / "shared")
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    place = Place(tmp_path / "place", {"models": {}})
    links = {path.name for path in place.work.iterdir() if path.is_symlink()}
    assert links == {"stacks", "locks"}
    assert yaml.safe_load(place.matrix.read_text()) == {"models": {}}


def test_stacks_of_a_run_are_those_with_its_locks(tmp_path, monkeypatch):
    """Beside its stamp an environment has other JSON: digests of its files, and of their bytecode.

    The place keeps its folder of environments when the checkout gets one of its own.
    """
    monkeypatch.setenv("SAMEBITS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("bench.place.WORK", tmp_path / "work")
    place = Place(tmp_path / "place", {"models": {}})
    (tmp_path / "work" / "stacks").mkdir()
    for name in ("4.48", "5.x", "other"):
        stack = tmp_path / "cache" / "stacks" / name
        stack.mkdir(parents=True)
        stamp = {"lock_digest": f"lock of {name}", "python": "that of a folder that was copied"}
        (stack / STAMP).write_text(json.dumps(stamp))
        (stack / "samebits-files.json").write_text('{"a.py": "0"}')
    listed = [{"id": id, "lock_digest": f"lock of {id}"} for id in ("4.48", "5.x")]
    monkeypatch.setattr(place, "report", lambda: {"stacks": listed})
    assert place.stacks() == {
        name: str(interpreter_of(tmp_path / "cache" / "stacks" / name)) for name in ("4.48", "5.x")
    }
