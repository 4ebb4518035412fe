"""A small real run: what a cell leaves in a store, and what its captures hold in memory."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path
from typing import Any

from bench.place import Place, zoo_cut
from samebits.questions import questions
from samebits.storage.store import Store

MODELS, STACKS = 3, 2


def measure(folder: Path) -> dict[str, Any]:
    """Run a few made models of the zoo under two releases with a store, and count what is there."""
    place = Place(folder, zoo_cut(MODELS, ["float32"], STACKS))
    store = folder / "store"
    place.samebits("--store", str(store))
    return counted(place, store)


def counted(place: Place, store: Path) -> dict[str, Any]:
    """Return what a run has left in its store, its work folder and its report."""
    folder, report = place.folder, place.report()
    cells = sum(len(row["cells"]) for row in report["rows"])
    objects: dict[str, dict[str, int]] = {}
    for path in store.rglob("*"):
        if path.is_file():
            kind = path.relative_to(store).parts[0]
            entry = objects.setdefault(kind, {"objects": 0, "bytes": 0})
            entry["objects"] += 1
            entry["bytes"] += path.stat().st_size
    reports = folder / "reports" / "latest"
    return {
        "cells": cells,
        "models": len({row["model"] for row in report["rows"]}),
        "store": dict(sorted(objects.items())),
        "captures_in_memory_bytes": _in_memory(place.work),
        "report_json_bytes": (reports / "report.json").stat().st_size,
        "report_bytes": sum(p.stat().st_size for p in reports.rglob("*") if p.is_file()),
    }


def _in_memory(work: Path) -> int:
    """Return the bytes that all captures hold together, as a run keeps them until its end."""
    assert questions()  # captures hold their answers, which are read by what they register
    store, paths = Store(work), sorted(work.glob("captures/*/*/*/*/[ab].json"))
    store.read_capture(paths[0])  # what the first one loads is not counted
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = [store.read_capture(path) for path in paths]
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert len(kept) == len(paths)
    return held
