"""What the hidden states of a forward's output are: which layer's output each of them holds.

Hooks on the layers take copies as each layer returns. An entry of the output that is none of them was taken at
another place, or was changed in place afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import torch

from samebits_probe.model import layers
from samebits_probe.model.distance import same_bytes

_FIELDS = ("hidden_states", "encoder_hidden_states", "decoder_hidden_states")
_ELSEWHERE = ""


def held(
    model: Any, prompts: Mapping[str, dict[str, Any]], restore: Callable[[], None]
) -> dict[str, dict[str, list[str]]]:
    """Return prompt -> field -> for each entry the layer whose output it holds, '' for none.

    A layer has its number in its own list, as releases name the lists otherwise. A prompt with which the forward
    raises has no entry.
    """
    facts: dict[str, dict[str, list[str]]] = {}
    for name, kwargs in prompts.items():
        answer, outputs = _answer(model, kwargs)
        restore()
        for field in _FIELDS:
            entries = answer.get(field)
            if isinstance(entries, (tuple, list)):
                facts.setdefault(name, {})[field] = [_holder(entry, outputs) for entry in entries]
    return facts


def _answer(
    model: Any, kwargs: dict[str, Any]
) -> tuple[Mapping[str, Any], list[layers.LayerOutput]]:
    """Return the output of a forward and the outputs of its layers; nothing if it raises or has no fields."""
    with layers.recorded(model) as outputs, torch.no_grad():
        with suppress(Exception):
            answer = model(**kwargs, output_hidden_states=True)
            return (answer if hasattr(answer, "get") else {}), outputs
        return {}, outputs


def _holder(entry: Any, outputs: list[layers.LayerOutput]) -> str:
    if not isinstance(entry, torch.Tensor):
        return _ELSEWHERE
    # the last one: a layer that changes nothing passes on what the one before it gave
    names = (name for name, tensor in reversed(outputs) if _is_same(entry, tensor))
    return _shown(next(names, _ELSEWHERE))


def _is_same(entry: torch.Tensor, tensor: torch.Tensor) -> bool:
    """Return True for the same numbers, in another shape also in another order.

    A layer may return the tokens that its model then lays out as a map, or the map itself, as those of D-FINE do.
    """
    if entry.dtype != tensor.dtype or entry.numel() != tensor.numel():
        return False
    if entry.shape != tensor.shape:
        entry, tensor = (each.flatten().sort().values for each in (entry, tensor))
    return same_bytes(entry, tensor)


def _shown(name: str) -> str:
    number = name.rpartition(".")[2]
    return f"layer {number}" if number.isdecimal() else name
