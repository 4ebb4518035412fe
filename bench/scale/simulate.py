"""A run of many cells whose stacks are fake: on a local cluster of Ray, then on the head."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.place import CODE
from bench.scale.host import COMMON
from bench.took import run
from samebits.records.capture import (
    Capture,
    ForwardFacts,
    GreedyFacts,
    Layer,
    LoadFacts,
    Signals,
    WeightFacts,
    WeightsSignal,
)
from samebits.records.ids import CellId, Variant
from samebits.records.inputs import InputsFile, PromptInputs
from samebits.records.state import StateSignal
from samebits.records.tensor import TensorRef

RELEASES = (*(f"4.{minor}" for minor in range(48, 58)), *(f"5.{minor}" for minor in range(24)))
"""The 34 minor releases since 4.48."""


class Simulation:
    """The folder of one simulated run."""

    def __init__(self, folder: Path, models: int, releases: Sequence[str]) -> None:
        self.folder, self.models, self.releases = folder, models, releases
        self.store = folder / "store"

    def prepare(self) -> None:
        """Write both matrices, the fake interpreters, and what all captures have in common."""
        given = {
            f"model-{n:05}": {"hub": f"org/model-{n:05}", "revision": f"{n:040x}"}
            for n in range(self.models)
        }
        matrix = {
            "version": 1,
            "environments": list(self.releases),
            "defaults": {"dtypes": ["float32"]},
            "models": given,
        }
        text = yaml.safe_dump(matrix, sort_keys=False, width=200)
        for side in ("workers", "head"):
            (self.folder / side).mkdir(parents=True, exist_ok=True)
            self.matrix(side).write_text(text, "utf-8")
        (self.folder / COMMON).write_text(json.dumps(common()), "utf-8")
        for release in self.releases:
            path = self.folder / "stacks" / release / "bin" / "python"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                f'#!/bin/sh\nexec {sys.executable} -S "$1" {self.folder / COMMON}\n', "utf-8"
            )
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def matrix(self, side: str) -> Path:
        """Return the matrix of the workers or of the head, which share nothing but the store."""
        return self.folder / side / "matrix.yaml"

    def cluster(self) -> None:
        """Run all cells on Ray."""
        self._host("cluster", str(self.matrix("workers")), str(self.store))

    def submit(self) -> dict[str, Any]:
        """Send all cells to Ray in tasks that do nothing, and return what that took."""
        self._host("submit", str(self.matrix("workers")), str(self.store))
        (took,) = self.took("submit")
        return {
            "models": self.models,
            "releases": len(self.releases),
            "cells": self.models * len(self.releases),
            "tasks": took["tasks"],
            "cpu": round(took["cpu"], 2),
            "wall": round(took["wall"], 2),
            "peak_mb": round(took["peak"] / 1e6, 1),
            "ray_head_mb": round(took["ray"] / 1e6, 1),
        }

    def head(self) -> None:
        """Let the head fetch, compare and report all cells."""
        words = (
            "matrix",
            "--matrix",
            str(self.matrix("head")),
            "--store",
            str(self.store),
            "--quick",
        )
        self._host("head", *words)

    def _host(self, *words: str) -> None:
        env = os.environ | CODE | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(self.folder / "hf")}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # each task would compile samebits
        run([sys.executable, "-m", "bench.scale.host", *words], self.folder / "host.log", env=env)

    def took(self, kind: str) -> list[dict[str, Any]]:
        """Return what the processes of a kind took."""
        paths = sorted((self.folder / "took").glob(f"{kind}-*.json"))
        return [json.loads(path.read_text("utf-8")) for path in paths]

    def figures(self) -> dict[str, Any]:
        """Return what the run took, as scale.json holds it."""
        tasks, heads = self.took("task"), self.took("head")
        objects = [path.stat().st_size for path in self.store.rglob("*") if path.is_file()]
        reports = self.folder / "head" / "reports" / "latest"
        figures: dict[str, Any] = {
            "models": self.models,
            "releases": len(self.releases),
            "cells": self.models * len(self.releases),
            "tasks": len(tasks),
            "task_start_cpu": round(sum(took["start"] for took in tasks), 2),
            "task_cpu": round(sum(took["cpu"] for took in tasks), 2),
            "objects": len(objects),
            "store_bytes": sum(objects),
        }
        for took in heads[-1:]:
            figures |= {
                "head_cpu": round(took["cpu"], 2),
                "head_wall": round(took["wall"], 2),
                "head_peak_mb": round(took["peak"] / 1e6, 1),
                "report_json_bytes": (reports / "report.json").stat().st_size,
                "report_bytes": sum(p.stat().st_size for p in reports.rglob("*") if p.is_file()),
            }
        return figures


def common() -> dict[str, Any]:
    """Return a small capture and inputs, without what differs between cells."""

    def ref(digit: int, *shape: int, dtype: str = "float32") -> TensorRef:
        return TensorRef(hash=f"{digit:x}" * 64, dtype=dtype, shape=shape)

    ids = ref(1, 1, 6, dtype="int64")
    forward = ForwardFacts(
        inputs={"input_ids": ids},
        hidden_states=tuple(
            Layer(name=name, ref=ref(n, 1, 6, 4), padded=True)
            for n, name in enumerate(("embeddings", "model.layers.0"), 2)
        ),
        logits=ref(4, 1, 6, 8),
    )
    weights = {
        "model.embed_tokens.weight": WeightFacts(
            ref=ref(5, 8, 4), kind="parameter", origin="loaded"
        )
    }
    signals = Signals(
        load=LoadFacts(model_class="LlamaForCausalLM", requested_dtype="float32", seconds=0.1),
        config={"hidden_size": 4},
        weights=WeightsSignal(tensors=weights, checkpoint_tensors=1, unused=()),
        buffers={},
        inv_freq={},
        forward={"short": forward},
        greedy={"short": GreedyFacts(ids=(1, 2), logits=ref(6, 2, 8), start=ref(6, 2, 8))},
        state=StateSignal(prompt="short", holds=True),
    )
    cell = CellId(model="m", variant=Variant(dtype="float32", attention="default"), stack="s")
    capture = Capture(cell=cell, run="a", status="complete", signals=signals)
    prompt = PromptInputs(tensors={"input_ids": ids})
    inputs = InputsFile(model="m", stack="s", model_class="LlamaForCausalLM")
    return {
        "capture": capture.model_dump(mode="json", exclude_defaults=True)
        | {"format": "samebits-capture", "format_version": capture.format_version},
        "inputs": inputs.model_dump(mode="json"),
        "prompt": prompt.model_dump(mode="json", exclude_defaults=True),
    }
