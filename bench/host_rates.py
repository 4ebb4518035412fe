"""Measures how fast the host verifies and measures two stored tensors that differ, and the memory.

``python -m bench.host_rates MEGABYTES FOLDER`` prints JSON; both tensors are made in FOLDER first.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

from samebits.compare.tensors import compare_tensors
from samebits.records.subject import Subject
from samebits.records.tensor import TensorRef, hasher
from samebits.storage.store import Store


def main(megabytes: int, folder: Path) -> None:
    """Make, compare, print."""
    store = Store(folder)
    size = megabytes << 20
    reference, candidate = (_stored(store, size, seed) for seed in (0, 1))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.perf_counter()
    for ref in (reference, candidate):
        store.tensor(ref)
    verified = time.perf_counter()
    compare_tensors(Subject(tensor="weight"), reference, candidate, store)
    ended = time.perf_counter()
    rates = {
        "megabytes": megabytes,
        "verify": 2 * size / (verified - started),
        "measure": 2 * size / (ended - verified),
        "grown_mb": round(
            ((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10) / 1e6
        ),
    }
    print(json.dumps(rates))


def _stored(store: Store, size: int, seed: int) -> TensorRef:
    """Write a float32 tensor a piece at a time, so that making it takes no memory."""
    rng = np.random.default_rng(seed)
    shape = (size // 4096, 1024)
    aside = store.root / f"{seed}.bin"
    aside.parent.mkdir(parents=True, exist_ok=True)
    with aside.open("wb") as file:
        for _ in range(size >> 22):
            file.write(rng.standard_normal(1 << 20, dtype=np.float32).tobytes())
    digest = hasher("float32", shape)
    with aside.open("rb") as file:
        while piece := file.read(1 << 22):
            digest.update(piece)
    ref = TensorRef(hash=digest.hexdigest(), dtype="float32", shape=shape)
    path = store.tensor_path(ref)
    path.parent.mkdir(parents=True, exist_ok=True)
    aside.replace(path)
    return ref


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
