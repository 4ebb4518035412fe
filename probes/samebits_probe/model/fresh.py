"""A fresh model made from the config, compared by hashes.

It is as large as the observed model, and nearly all of the observed tensors come from the
checkpoint. Its tensors are therefore dropped as soon as it is known which ones will be compared.
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
            KeyError: its tensor was dropped.

        """
        if name not in self._names:
            return "absent"
        if name not in self._hashes:
            self._hashes[name] = tensor_hash(self._tensors[name])
        return "equal" if self._hashes[name] == digest else "differs"

    def keep_hashes_only(self, names: Iterable[str]) -> None:
        """Drop the tensors; only ``names`` and names compared before can be compared afterwards."""
        for name in names:
            if name in self._names and name not in self._hashes:
                try:
                    self._hashes[name] = tensor_hash(self._tensors[name])
                except NotHashable:
                    continue  # the observed model's tensor has no plain bytes to compare either
        self._tensors = {}


def against(fresh: Fresh | None, name: str, digest: str) -> str:
    """Return how a tensor compares with that of the fresh model, if there is one."""
    return "not compared" if fresh is None else fresh.against(name, digest)
