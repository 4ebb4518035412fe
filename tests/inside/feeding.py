"""Lets this stack choose what a model is fed, as the host does before the model's cells run."""

import tempfile
from pathlib import Path

from samebits_probe.jobs import inputs
from samebits_probe.process import files, fork


def chosen(model):
    """Return a job's ``model`` with where its inputs are."""
    root = Path(tempfile.mkdtemp())
    job = {
        "name": "m",
        "stack": "here",
        "threads": 1,
        "result": str(root / "record.json"),
        "store": {"root": str(root)},
        "model": model,
        "places": {},
    }
    # a process of its own, as models that inputs are tried in leave tables behind
    fork.run_in_fork(lambda: inputs.run(job))
    record = files.read_sealed(root / "record.json")
    assert record.get("failure") is None, record["failure"]["traceback"]
    return model | {"inputs": {"record": job["result"], "root": str(root), "reason": ""}}


def record_of(model):
    """Return what was chosen."""
    return files.read_sealed(Path(model["inputs"]["record"]))
