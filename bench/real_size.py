"""``nox -s bench-real``: what an answer costs on models of real size, against the bare forwards.

Each model is made on the spot with seeded random weights. *bare* is one process per stack that loads
it once, runs the same prompts once and decodes them once, on one thread. Imports count on neither side.
samebits runs the same two stacks at each level, one job at a time, from an empty folder of work.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import page
from bench.machine import machine
from bench.memory import MemoryWatch
from bench.place import WORK, Place
from bench.took import run

HERE = Path(__file__).parent
RESULTS = page.REAL_SIZE
FORMAT_VERSION = 1
STACKS = ("4.57", "5.x")
LEVELS: Mapping[str, tuple[str, ...]] = {"quick": ("--quick",), "default": (), "deep": ("--deep",)}
VOCABULARY = 32_000


class Model(NamedTuple):
    """A model to make: its architecture, its widths, and the dtype that its weights are stored in."""

    name: str
    architecture: str
    hidden: int
    inner: int
    layers: int
    experts: int = 0
    dtype: str = "float32"

    @property
    def config(self) -> dict[str, Any]:
        """Content of config.json."""
        heads = self.hidden // 64
        config = {
            "architectures": [
                {"llama": "LlamaForCausalLM", "mixtral": "MixtralForCausalLM"}[self.architecture]
            ],
            "model_type": self.architecture,
            "vocab_size": VOCABULARY,
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": heads,
            "num_key_value_heads": max(1, heads // 2),
            "tie_word_embeddings": True,
            "eos_token_id": None,
            "torch_dtype": self.dtype,
        }
        if self.experts:
            config |= {"num_local_experts": self.experts, "num_experts_per_tok": 2}
        return config

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield name and shape of every stored tensor."""
        yield "model.embed_tokens.weight", (VOCABULARY, self.hidden)
        key_value = self.config["num_key_value_heads"] * 64
        for layer in (f"model.layers.{i}" for i in range(self.layers)):
            for name, rows in (("q", self.hidden), ("k", key_value), ("v", key_value)):
                yield f"{layer}.self_attn.{name}_proj.weight", (rows, self.hidden)
            yield f"{layer}.self_attn.o_proj.weight", (self.hidden, self.hidden)
            yield from self._mlp(layer)
            for name in ("input", "post_attention"):
                yield f"{layer}.{name}_layernorm.weight", (self.hidden,)
        yield "model.norm.weight", (self.hidden,)

    def _mlp(self, layer: str) -> Iterator[tuple[str, tuple[int, ...]]]:
        wide, narrow = (self.inner, self.hidden), (self.hidden, self.inner)
        if not self.experts:
            for name in ("gate", "up"):
                yield f"{layer}.mlp.{name}_proj.weight", wide
            yield f"{layer}.mlp.down_proj.weight", narrow
            return
        yield f"{layer}.block_sparse_moe.gate.weight", (self.experts, self.hidden)
        for expert in range(self.experts):
            prefix = f"{layer}.block_sparse_moe.experts.{expert}"
            yield f"{prefix}.w1.weight", wide
            yield f"{prefix}.w2.weight", narrow
            yield f"{prefix}.w3.weight", wide

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(int(np.prod(shape)) for _, shape in self.shapes())


SMALL = (
    Model("dense, float32", "llama", 1024, 2816, 20),
    Model("dense, bfloat16", "llama", 1024, 2816, 20, dtype="bfloat16"),
    Model("experts, bfloat16", "mixtral", 768, 1024, 12, experts=8, dtype="bfloat16"),
)
LARGE = (
    Model("large, dense, float32", "llama", 2048, 5632, 22),
    Model("large, dense, bfloat16", "llama", 2048, 5632, 22, dtype="bfloat16"),
    Model("large, experts, bfloat16", "mixtral", 1024, 2048, 18, experts=8, dtype="bfloat16"),
)


def write_checkpoint(model: Model, folder: Path) -> int:
    """Write config.json and seeded weights, one tensor at a time; return the bytes of the weights."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model.config), "utf-8")
    stored, size = ("F32", 4) if model.dtype == "float32" else ("BF16", 2)
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in model.shapes():
        start, end = end, end + size * int(np.prod(shape))
        header[name] = {"dtype": stored, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = np.random.default_rng(0)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, shape in model.shapes():
            values = generator.standard_normal(shape, dtype=np.float32)
            values = values * np.float32(0.02) if len(shape) > 1 else values * 0 + 1
            # the upper half of a float32 is the bfloat16 that is next towards zero
            file.write(
                (values if size == 4 else (values.view(np.uint32) >> 16).astype("<u2")).tobytes()
            )
    return end


def measure(model: Model, folder: Path, levels_to_run: Collection[str]) -> dict[str, Any]:
    """Return what one model costs at each level and bare, in CPU seconds and multiples of both."""
    checkpoint = folder / "model"
    weights = write_checkpoint(model, checkpoint)
    levels = {}
    place = None
    for level, options in LEVELS.items():
        if level not in levels_to_run:
            continue
        place = Place(folder / level, _matrix(model, checkpoint))
        with MemoryWatch() as memory:
            took = place.samebits("--jobs", "1", *options)
        report = place.report()
        spent = {entry["kind"]: entry["cpu"] for entry in report["spent"]}
        levels[level] = {
            "cpu": round(took.cpu - spent.get("imports", 0.0), 2),
            "wall": round(took.wall, 2),
            "memory_over_weights": round(memory.peak / weights, 2),
            "spent": {kind: cpu for kind, cpu in spent.items() if kind != "imports"},
            "verdicts": [cell["verdict"] for row in report["rows"] for cell in row["cells"]],
        }
    assert place is not None
    bare = _bare(place, checkpoint, folder)
    for cost in levels.values():
        cost["times"] = round(cost["cpu"] / bare, 2)
    return {"weights": weights, "parameters": model.parameters, "bare": bare, "levels": levels}


def _matrix(model: Model, checkpoint: Path) -> dict[str, Any]:
    return {
        "version": 1,
        "environments": list(STACKS),
        "models": {
            "model": {
                "path": os.path.relpath(checkpoint, checkpoint.parent / "x"),
                "dtypes": [model.dtype],
            }
        },
    }


def _bare(place: Place, checkpoint: Path, folder: Path) -> float:
    """Return the CPU seconds of one load, one forward and one decode of each prompt, in all stacks."""
    seconds = 0.0
    for stack, python in place.stacks().items():
        path = folder / f"bare-{stack}.json"
        path.write_text(json.dumps(list(place.bare_jobs(stack, checkpoint))), "utf-8")
        log = folder / f"bare-{stack}.log"
        run([python, str(HERE / "bare.py"), str(path)], log)
        seconds += float(json.loads(log.read_text("utf-8").splitlines()[-1])["cpu"])
    return round(seconds, 2)


def main() -> None:
    """Measure, write real_size.json, and write docs/performance.md anew."""
    parser = argparse.ArgumentParser(prog="nox -s bench-real --", description=__doc__)
    parser.add_argument("--large", action="store_true", help="also models of 1 B parameters")
    parser.add_argument("--models", default="", help="names, separated by ';'")
    parser.add_argument(
        "--levels", default=",".join(LEVELS), help="levels to run, separated by commas"
    )
    options = parser.parse_args()
    names = {name.strip() for name in options.models.split(";") if name.strip()}
    levels = options.levels.split(",")
    if not set(levels) <= LEVELS.keys():
        parser.error(f"--levels: {options.levels}: the levels are {', '.join(LEVELS)}")
    (WORK / "bench").mkdir(parents=True, exist_ok=True)
    for model in (*SMALL, *(LARGE if options.large else ())):
        if names and model.name not in names:
            continue
        folder = Path(tempfile.mkdtemp(dir=WORK / "bench"))
        print(f"{model.name}, {model.parameters / 1e9:.2f} B parameters …", flush=True)
        try:
            cost = {"name": model.name, **measure(model, folder, levels)}
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(json.dumps(cost, indent=1), flush=True)
        write(cost, machine())
        page.main()


def write(cost: dict[str, Any], here: dict[str, Any]) -> None:
    """Put the cost of a model into real_size.json; costs of another machine are removed.

    A run of hours that is ended early keeps the models that it has measured.
    """
    costs = {cost["name"]: cost}
    if RESULTS.exists():
        results = json.loads(RESULTS.read_text("utf-8"))
        if results["machine"]["cpu"] == here["cpu"]:
            costs = {entry["name"]: entry for entry in results["models"]} | costs
    order = [model.name for model in (*SMALL, *LARGE)]
    record = {
        "format": "samebits-bench-real",
        "format_version": FORMAT_VERSION,
        "machine": here,
        "models": sorted(costs.values(), key=lambda entry: order.index(entry["name"])),
    }
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
