"""Origin of every parameter and persistent buffer: checkpoint, formula, random, or never written.

A tensor is *loaded* if its bytes are those of checkpoint tensors, possibly cast, reshaped,
transposed, cut, concatenated or stacked. These are the layouts of transformers' weight conversions
(5.x core_model_loading.py). Names are used only to choose between tensors with equal bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from samebits_probe.model.checkpoint import Checkpoint
from samebits_probe.model.fresh import Fresh, against
from samebits_probe.model.heap import holds_pattern
from samebits_probe.model.state import everything
from samebits_probe.model.tensor import (
    Keeper,
    NotHashable,
    dtype_name,
    is_plain,
    raw_bytes,
    same_bytes,
)
from samebits_probe.process import hashing, progress


class Origin(NamedTuple):
    """How a tensor is made of checkpoint tensors: layout, and (name, part, transposed) of each."""

    layout: str
    pieces: tuple[tuple[str, str, bool], ...]


def _bytes_key(tensor: torch.Tensor) -> bytes:
    """Return a digest of a tensor's dtype and bytes that does not depend on its shape."""
    progress.beat()  # some tensors are searched in every part of a checkpoint
    digest = hashing.hasher(dtype_name(tensor.dtype).encode())
    digest.update(raw_bytes(tensor))
    return bytes(digest.digest())


class Tracer:
    """Finds the checkpoint tensors that a tensor in memory is made of.

    The checkpoint is cast to the dtype in memory before it is compared, so there is one index per
    dtype, and per number of elements, so that only tensors that can match are read. It holds hashes, not bytes, so memory is bounded by the largest tensor. Floats are cast
    to integers, and numbers to booleans, only for the tensor of the same name: cast this way, any
    norm is a mask of True, and a small bias is zeros.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.used: set[str] = set()
        self._names_of_size: dict[int, list[str]] = {}
        for name in checkpoint:
            self._names_of_size.setdefault(math.prod(checkpoint.shape(name)), []).append(name)
        self._whole_index: dict[tuple[torch.dtype, int], dict[bytes, list[str]]] = {}
        self._first_slice_index: dict[
            tuple[torch.dtype, int], dict[tuple[Any, ...], list[str]]
        ] = {}

    def trace(self, name: str, tensor: torch.Tensor) -> Origin | None:
        """Return how ``tensor`` is made of the checkpoint, or None if it is not."""
        if not tensor.numel():
            return self._same_name(name, tensor)  # an empty tensor is a part of every tensor
        origin = self._whole_tensor(name, tensor)
        if origin is None and tensor.ndim >= 1:
            origin = self._concatenated(name, tensor) or self._sliced(tensor)
        if origin is None and tensor.ndim >= 3:
            origin = self._stacked(name, tensor)
        if origin is not None:
            self.used.update(piece[0] for piece in origin.pieces)
        return origin

    def _whole_tensor(self, name: str, tensor: torch.Tensor) -> Origin | None:
        """Match one whole checkpoint tensor: unchanged, reshaped, or transposed."""
        if (same_name := self._same_name(name, tensor)) is not None:
            return same_name
        if not (whole := self._by_whole_tensor(tensor)):
            return None
        if matches := whole.get(_bytes_key(tensor)):
            chosen = self._choose(name, matches, tuple(tensor.shape))
            reshaped = self.checkpoint.shape(chosen) != tuple(tensor.shape)
            return Origin("reshape" if reshaped else "", ((chosen, "", False),))
        if tensor.ndim < 2 or min(tensor.shape[-2:]) == 1:
            return None
        if not (transposed := whole.get(_bytes_key(tensor.transpose(-1, -2)))):
            return None
        chosen = self._choose(name, transposed, None)
        return Origin("transpose", ((chosen, "", True),))

    def _same_name(self, name: str, tensor: torch.Tensor) -> Origin | None:
        """Match the checkpoint tensor of the same name, which is preferred among equal ones.

        Nearly every tensor matches here, and comparing bytes is many times faster than hashing.
        """
        if name not in self.checkpoint:
            return None
        source = self.checkpoint.tensor(name).to(tensor.dtype)
        if not same_bytes(source, tensor):
            return None
        return Origin("reshape" if source.shape != tensor.shape else "", ((name, "", False),))

    def _concatenated(self, name: str, tensor: torch.Tensor) -> Origin | None:
        """Match several checkpoint tensors concatenated along one dimension."""
        for dim in range(tensor.ndim):
            pieces = self._pieces_in_row(name, tensor, dim)
            if pieces and len(pieces) > 1:
                return Origin(f"concat dim {dim}", tuple((piece, "", False) for piece in pieces))
        return None

    def _pieces_in_row(self, name: str, tensor: torch.Tensor, dim: int) -> list[str] | None:
        firsts = self._by_first_slice(tensor.dtype, dim)
        pieces: list[str] = []
        offset = 0
        while offset < tensor.shape[dim]:
            if (piece := self._piece_at(name, tensor, dim, offset, firsts)) is None:
                return None
            pieces.append(piece)
            offset += self.checkpoint.shape(piece)[dim]
        return pieces

    def _piece_at(
        self,
        name: str,
        tensor: torch.Tensor,
        dim: int,
        offset: int,
        firsts: dict[tuple[Any, ...], list[str]],
    ) -> str | None:
        candidates = firsts.get(_slice_key(tensor, dim, offset), [])
        fitting = []
        for candidate in candidates:
            size = self.checkpoint.shape(candidate)[dim]
            if size > tensor.shape[dim] - offset:
                continue
            part = tensor.narrow(dim, offset, size)
            if candidate in self._by_whole_tensor(part).get(_bytes_key(part), []):
                fitting.append(candidate)
        return self._choose(name, fitting, None) if fitting else None

    def _sliced(self, tensor: torch.Tensor) -> Origin | None:
        """Match a contiguous part of one larger checkpoint tensor along one dimension."""
        for dim in range(tensor.ndim):
            for candidate in self._larger_tensors(tensor, dim):
                if (start := self._offset_of(tensor, candidate, dim)) is not None:
                    stop = start + tensor.shape[dim]
                    part = "[" + ":, " * dim + f"{start}:{stop}]"
                    return Origin(f"split dim {dim}", ((candidate, part, False),))
        return None

    def _larger_tensors(self, tensor: torch.Tensor, dim: int) -> Iterator[str]:
        size = tuple(tensor.shape)
        for candidate in self.checkpoint:
            shape = self.checkpoint.shape(candidate)
            if len(shape) != len(size) or shape[dim] <= size[dim]:
                continue
            if all(shape[d] == size[d] for d in range(len(size)) if d != dim):
                yield candidate

    def _offset_of(self, tensor: torch.Tensor, candidate: str, dim: int) -> int | None:
        if (source := self._cast(candidate, tensor.dtype)) is None:
            return None
        size = tensor.shape[dim]
        first, whole = _bytes_key(tensor.narrow(dim, 0, 1)), _bytes_key(tensor)
        for start in range(source.shape[dim] - size + 1):
            if _bytes_key(source.narrow(dim, start, 1)) != first:
                continue
            if _bytes_key(source.narrow(dim, start, size)) == whole:
                return start
        return None

    def _stacked(self, name: str, tensor: torch.Tensor) -> Origin | None:
        """Match a stack along dimension 0 of which every layer matches the checkpoint."""
        layers = []
        for index in range(tensor.shape[0]):
            layer = tensor[index]
            origin = self._whole_tensor(f"{name}.{index}", layer)
            origin = origin or self._concatenated(f"{name}.{index}", layer)
            origin = origin or self._transposed_concatenation(f"{name}.{index}", layer)
            if origin is None:
                return None
            layers.append(origin)
        layouts = sorted({layer.layout for layer in layers if layer.layout})
        inner = f" of {', '.join(layouts)}" if layouts else ""
        return Origin(f"stack{inner}", tuple(p for layer in layers for p in layer.pieces))

    def _transposed_concatenation(self, name: str, layer: torch.Tensor) -> Origin | None:
        if layer.ndim != 2 or (origin := self._concatenated(name, layer.transpose(0, 1))) is None:
            return None
        pieces = tuple((piece, part, True) for piece, part, _ in origin.pieces)
        return Origin(f"transpose of {origin.layout}", pieces)

    def trace_of_experts(self, name: str, tensor: torch.Tensor) -> Origin | None:
        """Return how the part of an adapter that 5.x makes of those of all experts is made of them.

        The columns of the experts take turns; those of one expert are a tensor, or two on a diagonal.
        """
        rows, columns = tensor.shape
        for n in (n for n in range(2, columns + 1) if columns % n == 0):
            pieces: list[tuple[str, str, bool]] = []
            for part in tensor.reshape(rows, columns // n, n).unbind(-1):
                if not (expert_pieces := self._of_expert(name, part.contiguous())):
                    break
                pieces += expert_pieces
            else:
                self.used.update(piece[0] for piece in pieces)
                return Origin(f"columns of {n} in turn", tuple(pieces))
        return None

    def _of_expert(self, name: str, part: torch.Tensor) -> list[tuple[str, str, bool]]:
        if (whole := self._whole_tensor(name, part)) is not None:
            return list(whole.pieces)
        row, column = part.shape[0] // 2, part.shape[1] // 2
        blocks = part[:row, :column].contiguous(), part[row:, column:].contiguous()
        if (
            part[:row, column:].any()
            or part[row:, :column].any()
            or not all(map(torch.numel, blocks))
        ):
            return []
        origins = [self._whole_tensor(name, block) for block in blocks]
        if not all(origins):
            return []
        return [piece for origin in origins if origin for piece in origin.pieces]

    def _choose(self, name: str, names: list[str], shape: tuple[int, ...] | None) -> str:
        """Choose between checkpoint tensors of equal bytes.

        Preferred in this order: same name, same shape, not used yet, most similar name.
        """

        def rank(candidate: str) -> tuple[bool, bool, bool, int, str]:
            fits = shape is None or self.checkpoint.shape(candidate) == shape
            return (
                candidate != name,
                not fits,
                candidate in self.used,
                -_common_parts(candidate, name),
                candidate,
            )

        return min(names, key=rank)

    def _cast(self, name: str, dtype: torch.dtype) -> torch.Tensor | None:
        """Return a checkpoint tensor in a dtype; None if that would change the kind of number."""
        source = self.checkpoint.tensor(name)
        return source.to(dtype) if torch.can_cast(source.dtype, dtype) else None

    def _by_whole_tensor(self, tensor: torch.Tensor) -> dict[bytes, list[str]]:
        """Return the index of the checkpoint tensors with as many elements as ``tensor``."""
        dtype, size = tensor.dtype, tensor.numel()
        if (dtype, size) not in self._whole_index:
            index: dict[bytes, list[str]] = {}
            for name in self._names_of_size.get(size, ()):
                if (source := self._cast(name, dtype)) is not None:
                    index.setdefault(_bytes_key(source), []).append(name)
            self._whole_index[dtype, size] = index
        return self._whole_index[dtype, size]

    def _by_first_slice(self, dtype: torch.dtype, dim: int) -> dict[tuple[Any, ...], list[str]]:
        if (dtype, dim) not in self._first_slice_index:
            index: dict[tuple[Any, ...], list[str]] = {}
            for name in self.checkpoint:
                shape = self.checkpoint.shape(name)
                if len(shape) <= dim or 0 in shape:
                    continue
                if (source := self._cast(name, dtype)) is not None:
                    index.setdefault(_slice_key(source, dim, 0), []).append(name)
            self._first_slice_index[dtype, dim] = index
        return self._first_slice_index[dtype, dim]


def _slice_key(tensor: torch.Tensor, dim: int, offset: int) -> tuple[Any, ...]:
    other_sizes = tuple(n for d, n in enumerate(tensor.shape) if d != dim)
    return (tensor.ndim, other_sizes, _bytes_key(tensor.narrow(dim, offset, 1)))


def _common_parts(first: str, second: str) -> int:
    second_parts = second.split(".")
    return sum(part in second_parts for part in first.split("."))


def named_state(model: torch.nn.Module) -> dict[str, tuple[str, torch.Tensor, list[str]]]:
    """Return name -> (kind, tensor, aliases) of parameters and persistent buffers."""
    named: dict[str, tuple[str, torch.Tensor, list[str]]] = {}
    for name, state in everything(model).items():
        if state.kind == "non-persistent buffer":
            continue
        if state.tied:
            named[state.tied][2].append(name)
        else:
            named[name] = (state.kind, state.tensor, [])
    return named


def weights(
    model: torch.nn.Module,
    checkpoint: Checkpoint | None,
    adapter: Checkpoint | None,
    keeper: Keeper,
    run: str,
    fresh: Callable[[], Fresh | None],
    reloaded: Callable[[dict[str, str]], dict[str, str]],
    skip: Callable[[str, NotHashable], None],
) -> dict[str, Any]:
    """Return the weights signal: every parameter and persistent buffer with its origin.

    ``fresh`` returns a model made from the config; ``reloaded`` takes the hashes by name that are
    known of ``model`` and returns those after a load with another seed. Both are called only if a tensor needs them. ``skip`` is called with the name of
    each tensor without plain bytes and the reason.
    """
    tracer = Tracer(checkpoint) if checkpoint is not None else None
    added = Tracer(adapter) if adapter is not None else None
    tracers = [each for each in (tracer, added) if each is not None]
    state = named_state(model)
    tensors: dict[str, Any] = {}
    unexplained = []
    ordered = list(_same_names_first(state, checkpoint))
    for i, (name, (kind, tensor, aliases)) in enumerate(ordered, 1):
        size = tensor.numel() * tensor.element_size()
        progress.tick(name, i, len(ordered), allowance=progress.moving(2 * size))
        try:
            traced = (each.trace(name, tensor) for each in tracers if is_plain(tensor))
            origin = next(filter(None, traced), None)
            if origin is None and added is not None and tensor.ndim == 2 and is_plain(tensor):
                origin = added.trace_of_experts(name, tensor)
            ref = keeper.ref(tensor, keep=origin is None)
        except NotHashable as reason:
            skip(name, reason)
            continue
        tensors[name] = {"ref": ref, "kind": kind, "aliases": aliases, **_origin_facts(origin)}
        if origin is None:
            unexplained.append(name)
    _explain_rest(unexplained, tensors, state, run, fresh, reloaded)
    return {
        "tensors": {name: tensors[name] for name in state if name in tensors},
        "checkpoint_tensors": len(checkpoint) if checkpoint is not None else 0,
        "unused": sorted(set(checkpoint or ()) - (tracer.used if tracer else set())),
        "unlisted": checkpoint.unlisted if checkpoint is not None else (),
        "adapter_lost": _lost(added, state) if added is not None else {},
        "frozen": [
            n for n, p in model.named_parameters(remove_duplicate=False) if not p.requires_grad
        ],
    }


def _lost(added: Tracer, state: dict[str, tuple[str, torch.Tensor, list[str]]]) -> dict[str, str]:
    """Return the adapter's tensors whose bytes no tensor holds -> the one of the same name and shape, or ''.

    One that a load converts has no such name or shape.
    """
    memory = {name: tensor for name, (_, tensor, _) in state.items() if is_plain(tensor)}
    own_names = {_of_adapter(name): name for name in memory if _ADAPTER in name.split(".")}
    lost: dict[str, str] = {}
    for name in sorted(set(added.checkpoint) - added.used):
        stored = added.checkpoint.tensor(name)
        if any(_holds(tensor, stored) for tensor in memory.values()):
            continue
        own = own_names.get(_of_adapter(name), "")
        lost[name] = own if own and memory[own].shape == stored.shape else ""
    return lost


_ADAPTER = "default"
"""The name that transformers gives an adapter beside a model."""


def _of_adapter(name: str) -> str:
    """Return the name of an adapter's tensor without what the file or the memory alone has."""
    parts = name.removeprefix("base_model.model.").removesuffix(".weight").split(".")
    return ".".join(part for part in parts if part not in (_ADAPTER, "modules_to_save"))


def _holds(tensor: torch.Tensor, stored: torch.Tensor) -> bool:
    if tensor.numel() != stored.numel():
        return False
    return same_bytes(stored.to(tensor.dtype).reshape(tensor.shape), tensor)


def untraced(
    model: torch.nn.Module, keeper: Keeper, skip: Callable[[str, NotHashable], None]
) -> dict[str, Any]:
    """Return the weights signal without the origins of the tensors, for a short run."""
    state = named_state(model)
    tensors: dict[str, Any] = {}
    for i, (name, (kind, tensor, aliases)) in enumerate(state.items(), 1):
        size = tensor.numel() * tensor.element_size()
        progress.tick(name, i, len(state), allowance=progress.moving(size))
        try:
            ref = keeper.ref(tensor, keep=False)
        except NotHashable as reason:
            skip(name, reason)
            continue
        tensors[name] = {"ref": ref, "kind": kind, "aliases": aliases, "origin": "untraced"}
    return {"tensors": tensors, "checkpoint_tensors": 0}


def _same_names_first(
    state: dict[str, tuple[str, torch.Tensor, list[str]]], checkpoint: Checkpoint | None
) -> Iterable[tuple[str, tuple[str, torch.Tensor, list[str]]]]:
    """Return tensors whose names are in the checkpoint before the renamed ones.

    Where several checkpoint tensors hold equal bytes, such as all-zero biases, tensors of the same
    name are matched first, and the renamed ones get the remaining ones.
    """
    names = checkpoint if checkpoint is not None else ()
    return sorted(state.items(), key=lambda item: item[0] not in names)


def _origin_facts(origin: Origin | None) -> dict[str, Any]:
    if origin is None:
        return {"origin": "unexplained"}
    pieces = [
        {"tensor": t, "part": p, "transposed": transposed} for t, p, transposed in origin.pieces
    ]
    return {"origin": "loaded", "layout": origin.layout, "pieces": pieces}


def _explain_rest(
    names: list[str],
    tensors: dict[str, Any],
    state: dict[str, tuple[str, torch.Tensor, list[str]]],
    run: str,
    fresh: Callable[[], Fresh | None],
    reloaded: Callable[[dict[str, str]], dict[str, str]],
) -> None:
    if not names:
        return
    hashes = {
        alias: facts["ref"]["hash"]
        for name, facts in tensors.items()
        for alias in (name, *facts["aliases"])
    }
    # before fresh(), so that this model is freed before another is made
    reloaded_hashes = reloaded(hashes)
    twin = fresh()
    for name in names:
        tensor, digest = state[name][1], tensors[name]["ref"]["hash"]
        if holds_pattern(tensor, run):
            tensors[name]["origin"] = "unwritten"
        elif reloaded_hashes.get(name, digest) != digest:
            tensors[name]["origin"] = "reinitialised"
        elif against(twin, name, digest) == "equal":
            tensors[name]["origin"] = "derived"
