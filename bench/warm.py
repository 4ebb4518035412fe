"""What ``samebits check --quick --warm`` takes once the environments are in memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench import large
from bench.place import CODE, WORK
from bench.took import Took, run
from samebits.stacks.places import VARIABLE, stacks_folder

SIZE = 1_000_000
"""Bytes of a model that is small enough for its own time to count little."""
REPEATS = 5


def measure(folder: Path) -> dict[str, Any]:
    """Check a model whose weights change between two checks, then one that stays as it is.

    The fastest of several is what samebits needs; the others had company on the machine.
    """
    model = folder / "model"
    size = large.make(model, SIZE)
    cache = folder / "cache"
    cache.mkdir()
    (cache / "stacks").symlink_to(stacks_folder(WORK, os.environ))
    env = os.environ | CODE | {VARIABLE: str(cache)}
    program = [sys.executable, "-m", "samebits"]

    words = ["check", str(model), "--from", "4.57", "--to", "5.24", "--quick", "--warm", "5"]
    command = [*program, *words, "--reports", str(folder / "reports")]

    def check(value: float | None = None) -> Took:
        if value is not None:
            _write_last(model / "model.safetensors", value)
        return run(command, folder / "check.log", env=env)

    try:
        first = check()
        changed = [check(value) for value in np.linspace(0, 1, REPEATS)]
        unchanged = [check() for _ in range(REPEATS)]
    finally:
        run([*program, "warm", "--end"], folder / "check.log", env=env)
    fastest = {"changed": min(changed), "unchanged": min(unchanged)}
    return {"bytes": size, "first": first.rounded()} | {
        name: took.rounded() for name, took in fastest.items()
    }


def _write_last(weights: Path, value: float) -> None:
    """Write the last number of a file of float32 tensors, as a training step would."""
    with weights.open("r+b") as file:
        file.seek(-4, os.SEEK_END)
        file.write(np.float32(value).tobytes())
