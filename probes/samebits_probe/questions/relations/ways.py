"""Ways to feed tokens to a model, and the subject that runs them.

A :class:`Way` describes how tokens are fed: the rows, the padding, the cuts, with or without a
cache. :class:`Subject` runs it and returns the logits, layer outputs and cache contents of every
position, joined over the cuts, so that two ways can be compared. Ways are plain data, so the same
model in float64 can run the same way.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from samebits_probe.model import forks, layers, load, named, outputs, precision
from samebits_probe.model.inputs import in_dtype, seeded_ids, text_config
from samebits_probe.process import progress
from samebits_probe.questions.relations import experts
from samebits_probe.questions.relations.state import Snapshot

Ids = tuple[int, ...]

_SEED = "invariants"
"""First word of every seed: the former name of relations, so that their tokens stay the same."""
_ENCODER_LENGTH = 29
"""Different from the length of every decoder input, so the two token axes stay distinct."""
COPY_LIMIT = 1 << 30
"""Bytes of parameters above which no copy of a model is made."""
_MAX_CACHED_BYTES = 512 << 20
"""Bytes of cached results, which relations with the same way share."""


class Way(NamedTuple):
    """How tokens are fed to a model."""

    rows: tuple[Ids, ...]
    mask: tuple[Ids, ...] | None = None
    cuts: tuple[int, ...] = ()
    cached: bool = True
    placed: bool = True
    """Whether forward gets positions and the mask, as generate() passes them."""
    static: bool = False
    encoder_pad: int = 0
    turned: bool = False
    """Whether experts are numbered from the last to the first."""


class Step(NamedTuple):
    """The result of one call of forward."""

    logits: torch.Tensor
    layers: dict[str, torch.Tensor]
    cache: Any


class Walk(NamedTuple):
    """The result of a way at all positions, and the cache at the end."""

    logits: torch.Tensor
    layers: dict[str, torch.Tensor]
    cache: tuple[tuple[str, torch.Tensor], ...]

    def nbytes(self) -> int:
        """Return the size of all tensors."""
        tensors = [self.logits, *self.layers.values(), *(t for _, t in self.cache)]
        return sum(t.numel() * t.element_size() for t in tensors)


class Subject:
    """A model that can be fed in any way, and whose state is restored after each."""

    def __init__(self, model: Any, head: str, config: Any, *, float64: bool = False) -> None:
        self.head = head
        self.config = config
        self.text = text_config(config)
        self.float64 = float64
        self._native_dtype = self._dtype_of(model)
        self.small = load.n_bytes(model) <= COPY_LIMIT
        self.model = precision.promoted_copy(model) if float64 else model
        self._snapshot = Snapshot(self.model, parameters=self.small)
        self._recorder = layers.Recorder(self.model)
        self._walks: dict[Way, Walk] = {}
        self._cached_bytes = 0
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
        return self.model.get_input_embeddings().weight.device

    def in_float64(self) -> Subject:
        """Return the same model in float64."""
        self.settle()
        self.release()
        try:
            return Subject(self.model, self.head, self.config, float64=True)
        finally:
            self._recorder = layers.Recorder(self.model)

    def release(self) -> None:
        """Remove the hooks from the model; no more ways can be run."""
        self._recorder.remove()

    def memoized(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the cached result of ``compute``, which must be small and always the same."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]

    def prompt(self, name: str, length: int) -> Ids:
        """Return seeded ids; an encoder-decoder's begin with its start token."""
        ids = seeded_ids(f"{_SEED} {name}", length, self.text)
        start = getattr(self.config, "decoder_start_token_id", None)
        return (start, *ids[1:]) if self.encoder_decoder and start is not None else tuple(ids)

    def walk(self, way: Way, *, keep: bool = True) -> Walk:
        """Return the result of ``way``, from the cache if it ran before."""
        if way not in self._walks:
            walk = self.walk_anew(way)
            if not keep or walk.nbytes() + self._cached_bytes > _MAX_CACHED_BYTES:
                return walk
            self._walks[way] = walk
            self._cached_bytes += walk.nbytes()
        return self._walks[way]

    def walk_anew(self, way: Way) -> Walk:
        """Run ``way`` and return the result, without the cache of results."""
        steps: list[Step] = []
        cache = self.new_cache(way)
        with experts.turned_round(self.model) if way.turned else nullcontext():
            for start, stop in pairwise((0, *way.cuts, len(way.rows[0]))):
                steps.append(self.step(way, start, stop, cache))
                cache = steps[-1].cache
        cache_contents = tuple((name, t.detach().clone()) for name, t in forks.cache_tensors(cache))
        self.settle()
        return Walk(_join([s.logits for s in steps]), _join_layers(steps), cache_contents)

    def new_cache(self, way: Way) -> Any:
        """Return an empty cache; None if forward makes its own."""
        if not way.cached or not forks.takes_kv_cache(self.model):
            return None
        make_cache = forks.static_cache if way.static else forks.new_cache
        # one more than needed: a cache that is exactly full takes other branches
        return make_cache(self.model, len(way.rows), len(way.rows[0]) + 1, self.dtype)

    def step(self, way: Way, start: int, stop: int, cache: Any) -> Step:
        """Feed the tokens from ``start`` to ``stop`` after those in the cache."""
        kwargs = self._kwargs(way, start, stop)
        if way.cached and self.keyword:
            kwargs[self.keyword] = cache
        with self.arithmetic():
            if self.encoder_decoder:
                kwargs |= self._encoder_arguments(way)
            cost = 20 if self.float64 else 4
            with self._recorder.recording() as recorded, progress.forward(kwargs, times=cost):
                result = self.model(**kwargs)
        logits = outputs.usual_logits_of(result)  # those have a row for each token
        assert logits is not None
        cache_after = self._cache_after(result, cache) if way.cached and self.keyword else None
        shape = (len(way.rows), stop - start)
        layer_outputs = {name: t for name, t in recorded if t.shape[:2] == shape}
        return Step(logits.detach().clone(), layer_outputs, cache_after)

    def _cache_after(self, result: Any, cache: Any) -> Any:
        """Return the cache that forward returns, or the one that it filled."""
        returned = getattr(result, self.keyword or "", None)
        if returned is None and cache is None:
            raise LookupError(
                f"{type(self.model).__name__} was asked for a cache and returned none"
            )
        return cache if returned is None else returned

    @contextmanager
    def arithmetic(self) -> Iterator[None]:
        """Run the body without gradients, and in float64 if this subject is in float64."""
        claimed = precision.claimed_of(self._native_dtype)
        mode = precision.promotion(claimed) if self.float64 else nullcontext()
        with mode, torch.no_grad():
            yield

    def _kwargs(self, way: Way, start: int, stop: int) -> dict[str, Any]:
        ids = torch.tensor([row[start:stop] for row in way.rows], device=self._device)
        kwargs: dict[str, Any] = {"decoder_input_ids" if self.encoder_decoder else "input_ids": ids}
        if not self.encoder_decoder:
            kwargs |= self._beside(ids)
        if not way.cached:
            kwargs |= forks.uncached(self.model)
        elif forks.accepts(self.model, "use_cache"):
            kwargs["use_cache"] = True
        if way.mask is not None or (way.cached and way.placed):
            rows_of_mask = way.mask or ((1,) * len(way.rows[0]),) * len(way.rows)
            mask = torch.tensor([row[:stop] for row in rows_of_mask], device=self._device)
            kwargs |= self._placement(way, start, mask)
        return kwargs

    def _beside(self, ids: torch.Tensor) -> dict[str, Any]:
        return in_dtype(named.beside(self.model, ids), self.dtype)

    def _placement(self, way: Way, past: int, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        arguments = forks.placement(self.model, past, mask)
        if not way.placed:
            return {"attention_mask": mask}
        if not way.cached:
            arguments.pop("cache_position", None)
        if self.encoder_decoder:  # its attention_mask is the encoder's
            arguments.pop("attention_mask", None)
        elif not self.decodes:  # an encoder counts positions itself, past its own padding
            arguments.pop("position_ids", None)
        return arguments

    def _encoder_arguments(self, way: Way) -> dict[str, Any]:
        """Return the encoder's outputs and mask; its input depends on each row's second token."""
        seconds = tuple(row[1:2] for row in way.rows)
        key = ("encoded", seconds, way.encoder_pad, way.turned)
        encoded, mask = self.memoized(key, lambda: self._encode(seconds, way.encoder_pad))
        return {"encoder_outputs": copy.copy(encoded), "attention_mask": mask}

    def _encode(self, seconds: tuple[Ids, ...], n_pads: int) -> tuple[Any, torch.Tensor]:
        rows = [seeded_ids(f"{_SEED} encoder {s}", _ENCODER_LENGTH, self.text) for s in seconds]
        pad = [0] * n_pads
        ids = torch.tensor([row + pad for row in rows], device=self._device)
        mask = torch.tensor([[1] * len(row) + pad for row in rows], device=self._device)
        with progress.forward({"input_ids": ids}, times=20):
            encoder = self.model.get_encoder()
            return encoder(input_ids=ids, attention_mask=mask, **self._beside(ids)), mask

    def generation_inputs(self, way: Way) -> dict[str, Any]:
        """Return generate()'s inputs for ``way``: ids and mask, or the encoder's."""
        ids = torch.tensor(way.rows, device=self._device)
        if not self.encoder_decoder:
            return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        with self.arithmetic():
            return {"decoder_input_ids": ids, **self._encoder_arguments(way)}

    def settle(self) -> None:
        """Restore the state that a run left in the modules."""
        self._snapshot.restore()


def _join(parts: list[torch.Tensor]) -> torch.Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _join_layers(steps: list[Step]) -> dict[str, torch.Tensor]:
    """Return each layer's outputs over all steps, for layers that are in every step."""
    names = [name for name in steps[0].layers if all(name in step.layers for step in steps)]
    return {name: _join([step.layers[name] for step in steps]) for name in names}
