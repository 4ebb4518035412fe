"""What does a script of a capsule compute here: the tensor of its ``measure()``, or its exception.

Expects a job: script, run (which byte fills unwritten memory), result, store (root, limit). The
script is executed as it lies there and not imitated. Writes ``result``:
    {"format": "samebits-capsule-trial", "ref": …} or {…, "error": class, "message": text},
and beside it ``loading``: the keys that loading said were missing, unexpected or mismatched. A
checkpoint that lost a tensor too many would be told apart by its random numbers alone.

A job with ``checkpoint``, a folder, in place of ``script`` is for the names, dtypes and shapes of its
tensors. Writes ``result``:
    {"format": "samebits-capsule-tensors", "header": as in a safetensors file, "pickled": bool}
or, where they cannot be listed, {…, "refused": why}.
"""

from __future__ import annotations

import math
import runpy
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from samebits_probe.model import forks, heap
from samebits_probe.model.checkpoint import Checkpoint, NoCheckpoint
from samebits_probe.model.tensor import Keeper
from samebits_probe.process import files, progress
from samebits_probe.process.failure import without_folders

if TYPE_CHECKING:
    from collections.abc import Iterator


def run(job: dict[str, Any]) -> None:
    """Do the job: a trial, or the list of a checkpoint's tensors."""
    if "checkpoint" in job:
        files.write_sealed(Path(job["result"]), _tensors(job["checkpoint"]))
    else:
        _try(job)


def _tensors(folder: str) -> dict[str, Any]:
    """Return the tensors of a checkpoint, laid out one behind the other."""
    found: dict[str, Any] = {"format": "samebits-capsule-tensors"}
    try:
        checkpoint = Checkpoint.find(folder, None)
        header, end = {"__metadata__": {"format": "pt"}}, 0
        for name in checkpoint:
            fact = checkpoint.stored(name)
            size = math.prod(fact["shape"]) * fact["itemsize"]
            place = {"data_offsets": [end, end + size]}
            header[name] = {"dtype": fact["dtype"], "shape": fact["shape"]} | place
            end += size
    except NoCheckpoint as error:
        return found | {"refused": without_folders(str(error))}
    except Exception as error:  # noqa: BLE001  files that torch or safetensors refuse
        return found | {"refused": without_folders(f"{type(error).__name__}: {error}")}
    return found | {"header": header, "pickled": checkpoint.is_pickled}


def _try(job: dict[str, Any]) -> None:
    """Run the script's ``measure()`` and write what it gives."""
    torch.set_num_threads(1)
    heap.fill_unwritten(job["run"], "cpu")
    keeper = Keeper(job["store"]["root"], job["store"]["limit"], [])
    found: dict[str, Any] = {"format": "samebits-capsule-trial"}
    progress.begin("script")
    size = sum(progress.size_of_files(str(p)) for p in Path(job["script"]).parent.rglob(""))
    progress.tick("load and run", allowance=progress.moving(3 * size), moves=True)
    with _watched_loading() as loading:
        try:
            found["ref"] = keeper.ref(runpy.run_path(job["script"], run_name="trial")["measure"]())
        except Exception as error:  # noqa: BLE001  the exception may be what the capsule is about
            found |= {"error": type(error).__name__, "message": str(error)}
    files.write_sealed(Path(job["result"]), found | {"loading": loading})


@contextmanager
def _watched_loading() -> Iterator[dict[str, list[str]]]:
    """Note what loading says of keys; this process ends with the job, and the patch with it."""
    said: dict[str, list[str]] = {}
    original = transformers.PreTrainedModel.from_pretrained.__func__

    def watched(cls: Any, *args: Any, **kwargs: Any) -> Any:
        found = original(cls, *args, **{**kwargs, "output_loading_info": True})
        said.update(forks.loading_info(found[1]))
        return found if kwargs.get("output_loading_info") else found[0]

    transformers.PreTrainedModel.from_pretrained = classmethod(watched)
    try:
        yield said
    finally:
        transformers.PreTrainedModel.from_pretrained = classmethod(original)
