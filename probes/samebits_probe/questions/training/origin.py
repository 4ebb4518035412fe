"""Gradients in checkpoint space: those of the checkpoint's tensors, whatever a release makes of them.

Releases fuse, stack, split, transpose and tie the tensors that they load. A gradient has the shape
of its parameter, so what was done to the weights is undone to the gradients. Every cut is checked
against the bytes of the checkpoint. Parameters of which no cut is known keep their names in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from transformers import pytorch_utils

from samebits_probe.cell.weights import Tracer
from samebits_probe.model.checkpoint import Checkpoint
from samebits_probe.model.tensor import is_plain, same_bytes, tensor_hash

Take = Callable[[torch.Tensor], torch.Tensor]
Piece = tuple[str, str, bool]
"""A checkpoint tensor, the part of it (``[:, 0:4]``) or '', and whether it is transposed."""


class Cut(NamedTuple):
    """A part of a parameter that holds a checkpoint tensor, or a part of it."""

    tensor: str
    part: str
    take: Take
    """Returns that part of the parameter's gradient, in the checkpoint's shape."""


class Places(NamedTuple):
    """Where the checkpoint's tensors are in a model."""

    cuts: dict[str, list[Cut]]
    """Name of a parameter -> what it holds."""
    uncertain: frozenset[str]
    """Checkpoint tensors that hold the bytes of another one and were not matched by name."""


def places(model: torch.nn.Module, checkpoint: Checkpoint | None) -> Places:
    """Return what each parameter of a model as it was loaded holds of its checkpoint."""
    parameters = dict(model.named_parameters())
    if checkpoint is None:
        return Places({name: [Cut(name, "", _same)] for name in parameters}, frozenset())
    tracer = Tracer(checkpoint)
    cuts = {
        name: _cuts(name, parameters[name].detach(), tracer)
        for name in sorted(parameters, key=lambda name: name not in checkpoint)
    }
    by_name = {cut.tensor for name, parts in cuts.items() for cut in parts if cut.tensor == name}
    tensors = {cut.tensor for parts in cuts.values() for cut in parts} & {*checkpoint}
    return Places(cuts, frozenset(_twins(checkpoint, tensors) - by_name))


def gradients(
    model: torch.nn.Module, where: Places
) -> tuple[dict[str, torch.Tensor], dict[str, int], list[str]]:
    """Return the gradients by checkpoint tensor, how many parameters hold each, and those without.

    Where several parameters hold one checkpoint tensor, as after a lost tie, their gradients are
    added.
    """
    parts: dict[tuple[str, str], torch.Tensor] = {}
    holders: dict[str, set[str]] = {}
    without: list[str] = []
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            without += [cut.tensor for cut in where.cuts[name]]
            continue
        gradient = parameter.grad.detach()
        gradient = gradient.to_dense() if gradient.is_sparse else gradient
        for cut in where.cuts[name]:
            key, taken = (cut.tensor, cut.part), cut.take(gradient)
            parts[key] = parts[key] + taken if key in parts else taken
            holders.setdefault(cut.tensor, set()).add(name)
    return (
        _joined(parts),
        {name: len(names) for name, names in holders.items()},
        sorted({*without} - {*holders}),
    )


def frozen(model: torch.nn.Module, where: Places) -> set[str]:
    """Return the checkpoint tensors of parameters whose requires_grad is False."""
    return {
        cut.tensor
        for name, parameter in model.named_parameters()
        if not parameter.requires_grad
        for cut in where.cuts[name]
    }


def linear(model: torch.nn.Module, where: Places) -> set[str]:
    """Return the checkpoint tensors in weights of the layers that peft means by *all-linear*."""
    kinds = (torch.nn.Linear, pytorch_utils.Conv1D)
    held = {id(module.weight) for module in model.modules() if isinstance(module, kinds)}
    return {
        cut.tensor
        for name, parameter in model.named_parameters()
        if id(parameter) in held
        for cut in where.cuts[name]
    }


def weights(model: torch.nn.Module, where: Places) -> dict[str, torch.Tensor]:
    """Return the parameters as they are now, by checkpoint tensor and in its shape.

    Of several parameters that hold one checkpoint tensor, all but the first have their own names.
    """
    parts: dict[tuple[str, str], torch.Tensor] = {}
    for name, parameter in model.named_parameters():
        for cut in where.cuts[name]:
            key = (cut.tensor, cut.part)
            taken = cut.take(parameter.detach())
            parts[key if key not in parts else (f"{cut.tensor} in {name}", cut.part)] = taken
    return _joined(parts)


def _same(gradient: torch.Tensor) -> torch.Tensor:
    return gradient


def _cuts(name: str, weight: torch.Tensor, tracer: Tracer) -> list[Cut]:
    origin = tracer.trace(name, weight) if is_plain(weight) else None
    cuts = _cut(weight, origin.pieces, tracer.checkpoint) if origin is not None else None
    return cuts or [Cut(name, "", _same)]


def _cut(
    weight: torch.Tensor, pieces: tuple[Piece, ...], checkpoint: Checkpoint
) -> list[Cut] | None:
    """Return the cuts of a parameter made of ``pieces``; None if they do not give its bytes."""
    if len(pieces) == 1:
        return _whole(weight, pieces[0], checkpoint)
    return _concatenated(weight, pieces, checkpoint) or _stacked(weight, pieces, checkpoint)


def _whole(weight: torch.Tensor, piece: Piece, checkpoint: Checkpoint) -> list[Cut] | None:
    tensor, part, transposed = piece
    if part:
        return [Cut(tensor, part, _same)]
    source = checkpoint.tensor(tensor).to(weight.dtype)
    shape = tuple(source.shape)
    turned = weight.transpose(-1, -2) if transposed else weight
    if source.numel() != weight.numel() or not same_bytes(source, turned):
        return None

    def take(gradient: torch.Tensor) -> torch.Tensor:
        return (gradient.transpose(-1, -2) if transposed else gradient).reshape(shape)

    return [Cut(tensor, "", take)]


def _concatenated(
    weight: torch.Tensor, pieces: tuple[Piece, ...], checkpoint: Checkpoint
) -> list[Cut] | None:
    for dim in range(weight.ndim):
        if (cuts := _along(weight, pieces, checkpoint, dim)) is not None:
            return cuts
    return None


def _along(
    weight: torch.Tensor, pieces: tuple[Piece, ...], checkpoint: Checkpoint, dim: int
) -> list[Cut] | None:
    cuts: list[Cut] = []
    offset = 0
    for piece in pieces:
        shape = checkpoint.shape(piece[0])
        turned = (*shape[:-2], shape[-1], shape[-2]) if piece[2] and len(shape) > 1 else shape
        if len(turned) != weight.ndim or offset + turned[dim] > weight.shape[dim]:
            return None
        if (inner := _whole(weight.narrow(dim, offset, turned[dim]), piece, checkpoint)) is None:
            return None
        cuts.append(_within(inner[0], dim, offset, turned[dim]))
        offset += turned[dim]
    return cuts if offset == weight.shape[dim] else None


def _stacked(
    weight: torch.Tensor, pieces: tuple[Piece, ...], checkpoint: Checkpoint
) -> list[Cut] | None:
    cuts: list[Cut] = []
    rest = list(pieces)
    for index in range(weight.shape[0] if weight.ndim > 1 else 0):
        layer, own, n = weight[index], [], 0
        while rest and n < layer.numel():
            own.append(rest.pop(0))
            n += checkpoint.tensor(own[-1][0]).numel()
        inner = _cut(layer, tuple(own), checkpoint) if own else None
        if inner is None:
            return None
        cuts += [_at(cut, index) for cut in inner]
    return cuts if cuts and not rest else None


def _within(cut: Cut, dim: int, offset: int, size: int) -> Cut:
    return cut._replace(take=lambda gradient: cut.take(gradient.narrow(dim, offset, size)))


def _at(cut: Cut, index: int) -> Cut:
    return cut._replace(take=lambda gradient: cut.take(gradient[index]))


def _joined(parts: Mapping[tuple[str, str], torch.Tensor]) -> dict[str, torch.Tensor]:
    """Join the gradients of the parts of a tensor, where they are all of it."""
    whole = {tensor: gradient for (tensor, part), gradient in parts.items() if not part}
    by_tensor: dict[str, list[tuple[str, torch.Tensor]]] = {}
    for (tensor, part), gradient in parts.items():
        if part and tensor not in whole:
            by_tensor.setdefault(tensor, []).append((part, gradient))
    for tensor, pieces in by_tensor.items():
        pieces.sort(key=lambda item: _span(item[0]))
        spans, dims = [_span(part) for part, _ in pieces], {part.count(":,") for part, _ in pieces}
        follows = all(a[1] == b[0] for a, b in pairwise(spans))
        if len(dims) == 1 and follows and spans[0][0] == 0:
            whole[tensor] = torch.cat([gradient for _, gradient in pieces], dim=dims.pop())
        else:
            whole |= {f"{tensor}{part}": gradient for part, gradient in pieces}
    return whole


def _span(part: str) -> tuple[int, int]:
    """Return where a part such as ``[:, 4:8]`` starts and stops."""
    start, stop = part.strip("[]").rpartition(" ")[2].split(":")
    return int(start), int(stop)


def _twins(checkpoint: Checkpoint, names: Iterable[str]) -> set[str]:
    by_hash: dict[Any, list[str]] = {}
    for name in names:
        by_hash.setdefault(tensor_hash(checkpoint.tensor(name).reshape(-1)), []).append(name)
    return {name for group in by_hash.values() if len(group) > 1 for name in group}
