"""Tensors of a model: every parameter and buffer by name, and which of them share memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import torch

from samebits_probe.model.tensor import NotHashable, is_same, tensor_hash
from samebits_probe.process import progress


class State(NamedTuple):
    """One name of a tensor in memory."""

    kind: str
    tensor: torch.Tensor
    tied: str
    """The first name of the same memory; '' if this is the first."""


def everything(model: torch.nn.Module) -> dict[str, State]:
    """Return all parameters and buffers by name; those that a checkpoint can hold come first."""
    states: dict[str, State] = {}
    first_names: dict[tuple[Any, ...], str] = {}
    for kind, name, tensor in _named_tensors(model):
        tied = first_names.setdefault(_memory_key(tensor) or (name,), name)
        states[name] = State(kind, tensor.detach(), "" if tied == name else tied)
    return states


def drop_tensors(model: torch.nn.Module) -> None:
    """Free the memory of a model's tensors; names, shapes and dtypes stay.

    For a forked child that needs only those: two models fit where three would not.
    """
    for tensor in (*model.parameters(), *model.buffers()):
        # a tensor whose data cannot be replaced, such as a packed one, stays
        with suppress(RuntimeError, TypeError):
            zero = torch.zeros((), dtype=tensor.dtype, device=tensor.device)
            tensor.data = zero.expand(tensor.shape)


def hashes(
    model: torch.nn.Module,
    first: dict[str, State] | None = None,
    first_hashes: dict[str, str] | None = None,
) -> dict[str, str]:
    """Return the hash of every tensor that has bytes.

    A tensor with the same bytes as that of its name in ``first``, whose hash is in
    ``first_hashes``, is compared only, which is faster than hashing.
    """
    first_hashes = first_hashes or {}
    digests = {}
    for name, state in everything(model).items():
        progress.beat()
        with suppress(NotHashable):
            digest = first_hashes.get(name, "")
            if digest and first and name in first and is_same(first[name].tensor, state.tensor):
                digests[name] = digest
            else:
                digests[name] = tensor_hash(state.tensor)
    return digests


def _named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, str, torch.Tensor]]:
    persistent = set(model.state_dict(keep_vars=True))
    for name, parameter in model.named_parameters(remove_duplicate=False):
        yield "parameter", name, parameter
    buffers = dict(model.named_buffers(remove_duplicate=False))
    for name in [name for name in buffers if name in persistent]:
        yield "buffer", name, buffers[name]
    for name in [name for name in buffers if name not in persistent]:
        yield "non-persistent buffer", name, buffers[name]


def _memory_key(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """Return a key that two names of the same memory share; None where there is no memory."""
    if tensor.is_meta or tensor.layout != torch.strided or tensor.numel() == 0:
        return None
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
