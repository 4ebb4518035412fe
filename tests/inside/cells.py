"""Jobs of cells, as the host writes them."""

from pathlib import Path

import feeding

VARIANT = {"dtype": "float32", "attention": "default", "device": "cpu"}
CELL = {"model": "m", "stack": "s", "variant": VARIANT}


def job(root, model, *, limit=0, **more):
    """Return the job of run a of a cell that leaves its capture and its tensors in a folder."""
    own = {"run": "a", "threads": 1, "timeout": 240, "cell": CELL, "model": model}
    store = {"root": str(root), "limit": limit, "wanted": []}
    return own | {"store": store, "capture": str(Path(root, "a.json"))} | more


def fed(folder, *, trusts=False):
    """Return a job's ``model`` with one prompt, of a checkpoint whose inputs are chosen."""
    prompts = {"short": {"ids": [1, 2, 3, 4]}}
    model = {"source": str(folder), "trust_remote_code": trusts, "greedy": 0, "prompts": prompts}
    return feeding.chosen(model)
