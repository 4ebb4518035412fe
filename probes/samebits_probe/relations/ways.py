"""What does a model compute for the same tokens fed one way or another.

A :class:`Way` says how tokens are fed: in which rows, padded how, cut where, with or without a
cache. :class:`Subject` walks it and returns logits, layer outputs and the cache's contents of
every position, joined over the cuts, so that two ways can be laid side by side. Ways are plain
data: the same way can be walked by the same model in float64.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager, nullcontext
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.model import forks, precision
from samebits_probe.model import layers as model_layers
from samebits_probe.model.inputs import seeded_ids, text_config
from samebits_probe.process import progress
from samebits_probe.relations.state import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator

Ids = tuple[int, ...]

_ENCODER_LENGTH = 29
"""Not a length of any decoder input here, so that the two token axes stay distinct."""
COPY_LIMIT = 1 << 30
"""Bytes of parameters above which no copy of a model is made."""
_MEMORY_LIMIT = 512 << 20
"""Bytes of results kept, so that two relations that walk the same way share it."""


class Way(NamedTuple):
    """How tokens are fed to a model."""

    rows: tuple[Ids, ...]
    mask: tuple[Ids, ...] | None = None
    cuts: tuple[int, ...] = ()
    cached: bool = True
    placed: bool = True
    """Whether forward is told positions and the mask, as generate() tells it."""
    static: bool = False
    encoder_pad: int = 0


class Step(NamedTuple):
    """What one call of forward gave."""

    logits: torch.Tensor
    layers: dict[str, torch.Tensor]
    cache: Any


class Walk(NamedTuple):
    """What a way gave at all positions; the cache as it was at the end."""

    logits: torch.Tensor
    layers: dict[str, torch.Tensor]
    cache: tuple[tuple[str, torch.Tensor], ...]

    def nbytes(self) -> int:
        """Return the size of all tensors."""
        tensors = [self.logits, *self.layers.values(), *(t for _, t in self.cache)]
        return sum(t.numel() * t.element_size() for t in tensors)


class Subject:
    """A model that can be fed in any way, and does not remember what it was fed."""

    def __init__(self, model: Any, head: str, config: Any, *, float64: bool = False) -> None:
        self.head = head
        self.config = config
        self.text = text_config(config)
        self.float64 = float64
        self._own = self._dtype_of(model)
        self.small = sum(p.numel() * p.element_size() for p in model.parameters()) <= COPY_LIMIT
        self.model = precision.promoted_copy(model) if float64 else model
        self._snapshot = Snapshot(self.model, parameters=self.small)
        self._recorder = model_layers.Recorder(self.model)
        self._walks: dict[Way, Walk] = {}
        self._kept = 0
        self._results: dict[Hashable, Any] = {}
        self.keyword = forks.cache_keyword(model)
        self.encoder_decoder = bool(getattr(config, "is_encoder_decoder", False))
        self.decodes = head in {"causal-lm", "seq2seq-lm"}

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of most of the model's numbers."""
        return self._dtype_of(self.model)

    @staticmethod
    def _dtype_of(model: Any) -> torch.dtype:
        return next(p.dtype for p in model.parameters() if p.dtype.is_floating_point)

    @cached_property
    def _device(self) -> torch.device:
        """Return the device that tokens are fed to."""
        return self.model.get_input_embeddings().weight.device

    def in_float64(self) -> Subject:
        """Return the same model in float64."""
        self.settle()
        self.release()
        try:
            return Subject(self.model, self.head, self.config, float64=True)
        finally:
            self._recorder = model_layers.Recorder(self.model)

    def release(self) -> None:
        """Leave the model as it was: walks are no longer possible."""
        self._recorder.remove()

    def once(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return what ``compute`` gives, which is small and the same whenever it is called."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]

    def prompt(self, name: str, length: int) -> Ids:
        """Return seeded ids; an encoder-decoder's begin with its start token."""
        ids = seeded_ids(f"invariants {name}", length, self.text)
        start = getattr(self.config, "decoder_start_token_id", None)
        return (start, *ids[1:]) if self.encoder_decoder and start is not None else tuple(ids)

    def walk(self, way: Way, *, keep: bool = True) -> Walk:
        """Return what the model computes for ``way``."""
        if way not in self._walks:
            walk = self.walk_anew(way)
            if not keep or walk.nbytes() + self._kept > _MEMORY_LIMIT:
                return walk
            self._walks[way] = walk
            self._kept += walk.nbytes()
        return self._walks[way]

    def walk_anew(self, way: Way) -> Walk:
        """Return what the model computes for ``way`` now, whatever was kept of it."""
        steps: list[Step] = []
        cache = self.new_cache(way)
        for start, stop in pairwise((0, *way.cuts, len(way.rows[0]))):
            steps.append(self.step(way, start, stop, cache))
            cache = steps[-1].cache
        kept = tuple((name, t.detach().clone()) for name, t in forks.cache_tensors(cache))
        self.settle()
        return Walk(_joined([s.logits for s in steps]), _joined_layers(steps), kept)

    def new_cache(self, way: Way) -> Any:
        """Return an empty cache where forward does not make its own."""
        if not way.cached or self.keyword != "past_key_values":
            return None
        make = forks.static_cache if way.static else forks.new_cache
        # one more than needed: a cache that is exactly full takes other branches
        return make(self.model, len(way.rows), len(way.rows[0]) + 1, self.dtype)

    def step(self, way: Way, start: int, stop: int, cache: Any) -> Step:
        """Feed the tokens from ``start`` to ``stop`` behind those that the cache holds."""
        kwargs = self._kwargs(way, start, stop)
        if way.cached and self.keyword:
            kwargs[self.keyword] = cache
        with self.arithmetic():
            if self.encoder_decoder:
                kwargs |= self._encoded(way)
            dear = 20 if self.float64 else 4
            with self._recorder.recording() as outputs, progress.forward(kwargs, times=dear):
                result = self.model(**kwargs)
        logits = model_layers.logits_of(result)
        assert logits is not None
        held = self._held(result, cache) if way.cached and self.keyword else None
        shape = (len(way.rows), stop - start)
        layers = {name: t for name, t in outputs if t.shape[:2] == shape}
        return Step(logits.detach().clone(), layers, held)

    def _held(self, result: Any, cache: Any) -> Any:
        """Return the cache that forward gives back, or the one it was given to fill."""
        held = getattr(result, self.keyword or "", None)
        if held is None and cache is None:
            msg = f"{type(self.model).__name__} was asked for a cache and returned none"
            raise LookupError(msg)
        return cache if held is None else held

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Run what is inside without gradients, and in float64 if that is what this is for."""
        claimed = precision.claimed_of(self._own)
        mode = precision.promotion(claimed) if self.float64 else nullcontext()
        with mode, torch.no_grad():
            yield

    def _kwargs(self, way: Way, start: int, stop: int) -> dict[str, Any]:
        ids = torch.tensor([row[start:stop] for row in way.rows], device=self._device)
        kwargs: dict[str, Any] = {
            "decoder_input_ids" if self.encoder_decoder else "input_ids": ids,
        }
        if forks.accepts(self.model, "use_cache"):
            kwargs["use_cache"] = way.cached
        if way.mask is not None or (way.cached and way.placed):
            given = way.mask or ((1,) * len(way.rows[0]),) * len(way.rows)
            mask = torch.tensor([row[:stop] for row in given], device=self._device)
            kwargs |= self._placement(way, start, mask)
        return kwargs

    def _placement(self, way: Way, past: int, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        placed = forks.placement(self.model, past, mask)
        if not way.placed:
            return {"attention_mask": mask}
        if not way.cached:
            placed.pop("cache_position", None)
        if self.encoder_decoder:  # its attention_mask is the encoder's
            placed.pop("attention_mask", None)
        elif not self.decodes:  # an encoder counts positions itself, past its own padding
            placed.pop("position_ids", None)
        return placed

    def _encoded(self, way: Way) -> dict[str, Any]:
        """Return the encoder's part: its input follows from each row's second token alone."""
        seconds = tuple(row[1:2] for row in way.rows)
        key = ("encoded", seconds, way.encoder_pad)
        outputs, mask = self.once(key, lambda: self._encode(seconds, way.encoder_pad))
        return {"encoder_outputs": copy.copy(outputs), "attention_mask": mask}

    def _encode(self, seconds: tuple[Ids, ...], n_pads: int) -> tuple[Any, torch.Tensor]:
        rows = [seeded_ids(f"invariants encoder {s}", _ENCODER_LENGTH, self.text) for s in seconds]
        pad = [0] * n_pads
        ids = torch.tensor([row + pad for row in rows], device=self._device)
        mask = torch.tensor([[1] * len(row) + pad for row in rows], device=self._device)
        with progress.forward({"input_ids": ids}, times=20):
            return self.model.get_encoder()(input_ids=ids, attention_mask=mask), mask

    def generation_inputs(self, way: Way) -> dict[str, Any]:
        """Return what generate() is given for ``way``: ids and mask, or the encoder's."""
        ids = torch.tensor(way.rows, device=self._device)
        if not self.encoder_decoder:
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        with self.arithmetic():
            return {"decoder_input_ids": ids, **self._encoded(way)}

    def settle(self) -> None:
        """Put back what a walk left in the modules."""
        self._snapshot.restore()


def _joined(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _joined_layers(steps: list[Step]) -> dict[str, torch.Tensor]:
    """Return each layer's outputs over all steps, for layers that every step saw."""
    names = [name for name in steps[0].layers if all(name in step.layers for step in steps)]
    return {name: _joined([step.layers[name] for step in steps]) for name in names}
