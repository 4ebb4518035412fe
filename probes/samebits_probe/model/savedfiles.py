"""Files of a save that are compared with the original's before they are written.

Most models are saved as they were loaded. Their tensors are compared in memory with the original
files, which is several times as fast as writing and reading them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from transformers import modeling_utils

from samebits_probe.model.checkpoint import Checkpoint
from samebits_probe.model.tensor import dtype_name, is_plain, same_bytes
from samebits_probe.process import progress

_SAVE_FILE = "safe_save_file"
"""The name of safetensors' ``save_file`` in transformers' module, from 4.48 to 5.x."""


class _File(NamedTuple):
    tensors: dict[str, torch.Tensor]
    path: str
    metadata: dict[str, str] | None


class Writer:
    """Takes the place of safetensors' ``save_file`` during a save.

    It holds the files as long as they are those of ``checkpoint``. From the first other file on it
    writes them, the held ones first; with ``may_write`` False it drops them. Without a checkpoint,
    or with a pickled one, everything is written at once.
    """

    def __init__(self, checkpoint: Checkpoint | None, *, may_write: bool) -> None:
        self._checkpoint = checkpoint
        self._may_write = may_write
        self._held: list[_File] = []
        self._compares = checkpoint is not None and not checkpoint.is_pickled
        self._save_file: Any = None
        self.tensors: dict[str, str] | None = None
        """Name -> dtype and shape of all tensors of the save; None: it does not go through ``save_file``."""

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Take the place of ``save_file`` inside, if this release has it under the known name."""
        self._save_file = getattr(modeling_utils, _SAVE_FILE, None)
        if self._save_file is None:
            self._compares = False
            yield
            return
        self.tensors = {}
        with mock.patch.object(modeling_utils, _SAVE_FILE, self._save):
            yield

    def is_same(self) -> bool:
        """Return True if the save gave exactly the tensors and files of the checkpoint."""
        if not self._compares or self._checkpoint is None:
            return False
        return {name for file in self._held for name in file.tensors} == set(self._checkpoint)

    def write_held(self) -> None:
        """Write the files that are held, and from now on every other one."""
        self._compares = False
        held, self._held = self._held, []
        for file in held:
            self._write(file)

    def _save(self, tensors: dict[str, torch.Tensor], filename: Any, metadata: Any = None) -> None:
        file = _File(tensors, str(filename), metadata)
        assert self.tensors is not None
        self.tensors |= {
            name: f"{dtype_name(tensor.dtype)} {list(tensor.shape)}"
            for name, tensor in tensors.items()
        }
        if self._compares and self._is_original(file):
            self._held.append(file)
            return
        self.write_held()
        self._write(file)

    def _write(self, file: _File) -> None:
        if self._may_write:
            self._save_file(file.tensors, file.path, metadata=file.metadata)

    def _is_original(self, file: _File) -> bool:
        checkpoint = self._checkpoint
        if checkpoint is None or not file.tensors:
            return False
        if set(file.tensors) != checkpoint.names_in(Path(file.path).name):
            return False
        original_metadata = checkpoint.metadata(next(iter(file.tensors)))
        if (file.metadata or {}).get("format") != original_metadata.get("format"):
            return False
        places = {tensor.data_ptr() for tensor in file.tensors.values() if is_plain(tensor)}
        if len(places) < len(file.tensors):
            return False  # safetensors refuses to write tensors that share memory
        return all(_is_same(checkpoint, name, tensor) for name, tensor in file.tensors.items())


def _is_same(checkpoint: Checkpoint, name: str, tensor: torch.Tensor) -> bool:
    """Return True if a tensor would be written with the dtype, shape and bytes of the original."""
    progress.beat()
    if not tensor.is_contiguous() or tuple(tensor.shape) != checkpoint.shape(name):
        return False
    stored = checkpoint.tensor(name)
    return stored.dtype == tensor.dtype and same_bytes(stored, tensor)
