"""A fresh model made from the config, compared by hashes.

Nearly all of the observed tensors come from the checkpoint, so a fresh model is made without values
of parameters first: its buffers are real, and its parameters cost neither time nor memory. A whole
one is made only if a tensor that has no value there is compared. Its tensors are dropped as soon as
it is known which ones will be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress

import torch

from samebits_probe.model.tensor import NotHashable, tensor_hash

Tensors = dict[str, torch.Tensor]


class Fresh:
    """The parameters and buffers of a fresh model.

    ``make_whole`` returns those of a whole one, for tensors that are absent from ``tensors`` or on
    the meta device; it returns None if a whole one cannot be made. Without it, ``tensors`` are
    those of a whole one.
    """

    def __init__(
        self, tensors: Tensors, make_whole: Callable[[], Tensors | None] | None = None
    ) -> None:
        self._names = frozenset(tensors)
        self._tensors = tensors
        self._make_whole = make_whole
        self._hashes: dict[str, str] = {}
        self.is_whole_refused = False
        """True if a whole model was needed and could not be made."""

    def against(self, name: str, digest: str) -> str:
        """Return how the tensor of that name and hash compares with the fresh one.

        Raises:
            NotHashable: the fresh one has no plain bytes.
            KeyError: its tensor was dropped.

        """
        if name not in self._hashes:
            if self._is_without_value(name):
                self._use_whole()
            if self._is_without_value(name) and self.is_whole_refused:
                return "not compared"
            if name not in self._names:
                return "absent"
            self._hashes[name] = tensor_hash(self._tensors[name])
        return "equal" if self._hashes[name] == digest else "differs"

    def keep_hashes_only(self, names: Iterable[str]) -> None:
        """Drop the tensors; only ``names`` and names compared before can be compared afterwards."""
        for name in names:
            # what is not hashable here is not in the observed model either
            with suppress(NotHashable):
                self.against(name, "")
        self._tensors = {}
        self._make_whole = None

    def _is_without_value(self, name: str) -> bool:
        if name not in self._tensors:
            return True
        return bool(self._tensors[name].is_meta)

    def _use_whole(self) -> None:
        """Replace the tensors by those of a whole model, if there may be one and is none yet."""
        if self._make_whole is None:
            return
        tensors, self._make_whole = self._make_whole(), None
        if tensors is None:
            self.is_whole_refused = True
            return
        self._tensors, self._names = tensors, frozenset(tensors)


def against(fresh: Fresh | None, name: str, digest: str) -> str:
    """Return how a tensor compares with that of the fresh model, if there is one."""
    return "not compared" if fresh is None else fresh.against(name, digest)
