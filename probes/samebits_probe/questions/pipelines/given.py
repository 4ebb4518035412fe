"""A model inside a pipeline: what it is fed first, and outputs that are the same in every release.

With the same outputs, an answer shows what the pipeline makes of them, and never how the model rounds.
The numbers are exact in float32; given as float64, they show what rounds behind the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from samebits_probe.model.tensor import dtype_name, tensor_hash
from samebits_probe.questions.processors.samples import uniform

Facts = dict[str, Any]
_NOT_DATA = ("cache_position", "position_ids")
"""Tensors that releases pass or leave out as they like."""
_NEUTRAL = {"attention_mask": 1, "pixel_mask": 1, "decoder_attention_mask": 1, "token_type_ids": 0}
"""Input -> the value that all of it has where it says nothing."""
_SPREAD = 16.0
"""Distance of the largest from the smallest number that is given: labels then have clear scores."""


class Watch:
    """A forward hook that notes the first inputs, and replaces outputs if it has a dtype for them."""

    def __init__(self, dtype: torch.dtype | None, *, of_tokens: bool) -> None:
        """Replace outputs by numbers of a dtype; ``of_tokens``: one row of logits for all positions."""
        self.fed: Facts | None = None
        self._dtype = dtype
        self._of_tokens = of_tokens
        self._n_calls = 0

    def __call__(self, module: Any, args: Any, kwargs: Facts, output: Any) -> Any:
        """Note the inputs of the first call, and replace the floating tensors of the output."""
        if self.fed is None:
            first = {getattr(module, "main_input_name", "input_ids"): args[0]} if args else {}
            self.fed = _described(first | kwargs)
        self._n_calls += 1
        if self._dtype is None or not hasattr(output, "items"):
            return output
        for name, value in list(output.items()):
            if torch.is_tensor(value) and value.is_floating_point() and value.dim():
                output[name] = self._given(name, value)
        return output

    def _given(self, name: str, value: torch.Tensor) -> torch.Tensor:
        is_row = self._of_tokens and name == "logits" and value.dim() == 3
        # how many positions have logits is the release's own affair: generate() reads the last ones
        shape = [value.shape[0], 1, value.shape[2]] if is_row else list(value.shape)
        key = hashlib.sha256(f"{name}:{self._n_calls}".encode()).digest()
        numbers = uniform(int.from_bytes(key[:4], "little"), int(torch.Size(shape).numel()))
        given = torch.from_numpy(numbers).float().to(self._dtype).reshape(shape)
        given = given if "box" in name else (given - 0.5) * _SPREAD
        return given.expand(value.shape).contiguous() if is_row else given


@contextmanager
def watched(
    model: Any, dtype: torch.dtype | None = None, *, of_tokens: bool = False
) -> Iterator[Watch]:
    """Watch the forwards of a model; with a dtype, its outputs are given numbers."""
    watch = Watch(dtype, of_tokens=of_tokens)
    with model.register_forward_hook(watch, with_kwargs=True):
        yield watch


def _described(inputs: Facts) -> Facts:
    """Return input -> dtype and shape, and the hash of its values; what says nothing is left out."""
    described = {}
    for name, value in inputs.items():
        if not torch.is_tensor(value) or name in _NOT_DATA:
            continue
        if name in _NEUTRAL and bool((value == _NEUTRAL[name]).all()):
            continue
        tensor = value if value.is_floating_point() else value.to(torch.int64)
        described[name] = {
            "dtype": dtype_name(tensor.dtype),
            "shape": list(tensor.shape),
            "hash": tensor_hash(tensor),
        }
    return described
