"""Measures how fast a probe hashes, against torch and memory: run by a stack's interpreter.

Prints JSON: bytes per second on one core, each the best of several tries, for one tensor of
``megabytes``. ``copied`` is whether hashing it made a second copy of it in memory.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "probes"))

import torch
from samebits_probe.model.tensor import tensor_hash

TRIES = 3


def main(megabytes: int) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    size = megabytes << 20
    tensor = torch.randn(size // 2).to(torch.bfloat16)
    twin = tensor.clone()
    tensor_hash(tensor[:1024])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    hashing = _rate(size, lambda: tensor_hash(tensor))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    rates = {
        "megabytes": megabytes,
        "hash": hashing,
        "torch.equal": _rate(size, lambda: torch.equal(tensor, twin)),
        "memory": _rate(size, lambda: twin.copy_(tensor)),
        "copied": grown > size // 2,
    }
    print(json.dumps(rates))


def _rate(size: int, run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(TRIES):
        started = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - started)
    return size / best


if __name__ == "__main__":
    main(int(sys.argv[1]))
