"""The job that runs a capsule's script: the tensor of its ``measure()``, or its exception.

Expects a job: script, run (which byte fills unwritten memory), result, store (root, limit). The
script file itself is executed. Writes ``result``:
    {"format": "samebits-capsule-trial", "hash_algorithm": …, "ref": …, "sha256": …}
    or {…, "error": class, "message": text},
``sha256`` is what the script itself computes with the standard library. With it comes ``loading``: the keys that loading reports as missing, unexpected or mismatched. Without
them, a checkpoint that lost one tensor too many would differ only by its random numbers.

A job with ``checkpoint``, a folder, instead of ``script`` lists the names, dtypes and shapes of its
tensors. Writes ``result``:
    {"format": "samebits-capsule-tensors", "header": as in a safetensors file, "pickled": bool}
or, where they cannot be listed, {…, "refused": why}.
"""

from __future__ import annotations

import hashlib
import math
import runpy
from pathlib import Path
from typing import Any

import torch

from samebits_probe.model import forks, heap
from samebits_probe.model.checkpoint import Checkpoint, NoCheckpoint
from samebits_probe.model.load import watched_loads
from samebits_probe.model.tensor import Keeper, header, raw_bytes
from samebits_probe.process import files, progress, threads
from samebits_probe.process.failure import describe, in_words
from samebits_probe.process.hashing import ALGORITHM
from samebits_wire.folders import without_folders
from samebits_wire.jobs import TensorsJob, TrialJob


def run(job: TrialJob | TensorsJob) -> None:
    """Do the job: a trial, or the list of a checkpoint's tensors."""
    if "checkpoint" in job:
        files.write_sealed(Path(job["result"]), _tensor_list(job["checkpoint"]))
    else:
        _run_trial(job)


def _tensor_list(folder: str) -> dict[str, Any]:
    """Return the tensors of a checkpoint, placed one after the other."""
    record: dict[str, Any] = {"format": "samebits-capsule-tensors"}
    try:
        checkpoint = Checkpoint.find(folder, None)
        header, end = {"__metadata__": {"format": "pt"}}, 0
        for name in checkpoint:
            entry = checkpoint.stored(name)
            size = math.prod(entry["shape"]) * entry["itemsize"]
            offsets = {"data_offsets": [end, end + size]}
            header[name] = {"dtype": entry["dtype"], "shape": entry["shape"]} | offsets
            end += size
    except NoCheckpoint as error:
        return record | {"refused": without_folders(str(error))}
    except Exception as error:  # noqa: BLE001  files that torch or safetensors refuse
        return record | {"refused": in_words(error)}
    return record | {"header": header, "pickled": checkpoint.is_pickled}


def _run_trial(job: TrialJob) -> None:
    """Run the script's ``measure()`` and write its result."""
    threads.use(int(job["threads"]))
    heap.fill_unwritten(job["run"], "cpu")
    keeper = Keeper(job["store"]["root"], job["store"]["limit"], [])
    record: dict[str, Any] = {"format": "samebits-capsule-trial", "hash_algorithm": ALGORITHM}
    progress.begin("script")
    size = sum(progress.size_of_files(str(p)) for p in Path(job["script"]).parent.rglob(""))
    progress.tick("load and run", allowance=progress.moving(3 * size), moves=True)
    with watched_loads() as loads:
        try:
            result = runpy.run_path(job["script"], run_name="trial")["measure"]()
            record |= {"ref": keeper.ref(result), "sha256": _sha256(result)}
        except Exception as error:  # noqa: BLE001  the exception may be what the capsule shows
            record |= {"error": type(error).__name__, "message": str(error)}
            failure = describe("script", error)
            name = failure["type"].rpartition(".")[2]
            record["captured"] = {"error": name, "message": failure["message"]}
    loading = {kind: keys for _, info in loads for kind, keys in forks.loading_info(info).items()}
    files.write_sealed(Path(job["result"]), record | {"loading": loading})


def _sha256(tensor: torch.Tensor) -> str:
    """Return the hash that the script prints; samebits/capsules/script.py has its code."""
    digest = hashlib.sha256(header(tensor))
    digest.update(raw_bytes(tensor))
    return digest.hexdigest()
