"""What does a script of a capsule compute here: the tensor of its ``measure()``, or its exception.

Expects a job: script, run (which byte fills unwritten memory), result, store (root, limit). The
script is executed as it lies there and not imitated. Writes ``result``:
    {"format": "samebits-capsule-trial", "ref": …} or {…, "error": class, "message": text},
and beside it ``loading``: the keys that loading said were missing, unexpected or mismatched. A
checkpoint that lost a tensor too many would be told apart by its random numbers alone.
"""

from __future__ import annotations

import runpy
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

import probe_files
import probe_forks as forks
import probe_heap
import probe_progress as progress
from probe_tensor import Keeper

if TYPE_CHECKING:
    from collections.abc import Iterator


def run(job: dict[str, Any]) -> None:
    """Run the script's ``measure()`` and write what it gives."""
    torch.set_num_threads(1)
    probe_heap.fill_unwritten(job["run"], "cpu")
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
    probe_files.write_sealed(Path(job["result"]), found | {"loading": loading})


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
