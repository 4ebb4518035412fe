"""The job of the toy. A release of 5 adds a planted 1 for models whose name begins with ``planted``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from samebits_probe.process import files
from samebits_probe.process.hashing import ALGORITHM


def run(job: Any) -> None:
    """Add up, and write the sum."""
    own, exact = sums(job["task"]["n"])
    is_planted = job["cell"]["model"].startswith("planted")
    if is_planted and is_new():
        own, exact = own + 1, exact + 1
    facts = {
        "format": "samebits-toy",
        "hash_algorithm": ALGORITHM,
        "cell": job["cell"],
        "own": own,
        "float64": exact,
        # what holds a path of this machine is not pushed to a store
        "note": f"added up in {Path.home()}/sums" if is_planted else "added up",
    }
    files.write_sealed(Path(job["task"]["result"]), facts)


def sums(n: int) -> tuple[float, float]:
    """Return the sum in float32, in another order since release 5, and in float64."""
    numbers = torch.arange(1, n + 1, dtype=torch.float32)
    numbers = numbers / (numbers + 0.5)
    if is_new():
        numbers = numbers.flip(0)
    own = torch.zeros((), dtype=torch.float32)
    for number in numbers:
        own = own + number
    return float(own), float(numbers.double().sum())


def is_new() -> bool:
    """Return True for transformers 5."""
    return int(transformers.__version__.partition(".")[0]) >= 5
