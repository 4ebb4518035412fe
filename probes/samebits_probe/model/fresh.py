"""What does a model that is made anew from the config hold: hashes by name.

Its tensors are let go as soon as it is known which of them somebody will ask about: it is as large
as the model that is observed, and nearly all of that comes from the checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits_probe.model.tensor import NotHashable, tensor_hash

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch


class Fresh:
    """The parameters and buffers of a fresh model."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self._names = frozenset(tensors)
        self._tensors = tensors
        self._hashes: dict[str, str] = {}

    def against(self, name: str, digest: str) -> str:
        """Return how the tensor of that name and hash compares with the fresh one.

        Raises:
            NotHashable: the fresh one has no plain bytes.
            KeyError: it was let go.

        """
        if name not in self._names:
            return "absent"
        if name not in self._hashes:
            self._hashes[name] = tensor_hash(self._tensors[name])
        return "equal" if self._hashes[name] == digest else "differs"

    def keep_hashes_only(self, names: Iterable[str]) -> None:
        """Let the tensors go: those named, and those asked about before, can be asked about."""
        for name in names:
            if name in self._names and name not in self._hashes:
                try:
                    self._hashes[name] = tensor_hash(self._tensors[name])
                except NotHashable:
                    continue  # neither has one in the model that is observed any bytes to ask about
        self._tensors = {}


def against(fresh: Fresh | None, name: str, digest: str) -> str:
    """Return how a tensor compares with the fresh model's, if there is one."""
    return "not compared" if fresh is None else fresh.against(name, digest)
