"""Every tensor of what a forward returns, by a stable name.

A name is the way to the tensor: ``pooler_output``, ``encoder.last_hidden_state``, ``attentions[0]``,
and ``2[0]`` in a plain tuple. Caches are left out: relations compare what they hold, and their form
differs between releases.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch

from samebits_probe.model.choice import NotFed
from samebits_probe.model.tensor import hash_or_none

CACHES = frozenset({"cache", "past_key_values", "past_buckets_states", "cache_params", "mems"})
"""Names under which the library's models return a cache."""
_RECURRENT = "state"
"""Name of rwkv's states, which are a list; a tensor of that name is an output like any other."""
_PER_KIND = "logits_per_"
_MAX_DEPTH = 8
_NO_OUTPUT = (torch.nn.Module, type, FunctionType, MethodType, ModuleType, str, bytes)

Path = tuple["str | int", ...]

_chosen: str | None = None
"""Name of the output that plays the part of the logits in this process; None: the usual one."""


class NoSuchOutput(NotFed):
    """Forward does not return the output that matrix.yaml names as the logits."""


def use_as_logits(name: str | None) -> None:
    """Choose the output that plays the part of the logits; a process serves one model."""
    global _chosen  # noqa: PLW0603  as for threads, the choice is one of the process
    _chosen = name


def tensors(result: Any) -> dict[str, torch.Tensor]:
    """Return every tensor of what a forward returned by its name, in order; '' for a bare one."""
    return {_name(path): tensor for path, tensor in _walk(result, (), set())}


def logits_of(result: Any) -> torch.Tensor | None:
    """Return what plays the part of the logits; None if forward returns no tensor."""
    return usual_logits_of(result) if _chosen is None else _chosen_of(result, _chosen)


def _chosen_of(result: Any, name: str) -> torch.Tensor:
    named = tensors(result)
    if name in named:
        return named[name]
    listed = ", ".join(sorted(named)) or "no tensor"
    raise NoSuchOutput(
        f"logits: {name} in matrix.yaml is no output of this forward, which returns {listed}"
    )


def usual_logits_of(result: Any) -> torch.Tensor | None:
    """Return a model's logits, or the first tensor of a model without a head, outermost first."""
    logits = getattr(result, "logits", None)
    if isinstance(logits, torch.Tensor):
        return logits
    walked = list(_walk(result, (), set()))
    # a release may return those of two kinds of input in another order, as X-CLIP's of videos and texts
    of_kinds = {path[0]: tensor for path, tensor in walked if _is_per_kind(path)}
    if of_kinds:
        return of_kinds[min(of_kinds, key=str)]
    return min(walked, key=lambda entry: len(entry[0]) > 1)[1] if walked else None


def _is_per_kind(path: Path) -> bool:
    return len(path) == 1 and str(path[0]).startswith(_PER_KIND)


def without_logits(result: Any) -> dict[str, torch.Tensor]:
    """Return every tensor of what a forward returned, but the one that is the logits."""
    named = tensors(result)
    logits = name_of(result, logits_of(result))
    return {name: tensor for name, tensor in named.items() if name != logits}


def name_of(result: Any, tensor: torch.Tensor | None) -> str:
    """Return the first name of a tensor that a forward returned; '' if it has none."""
    return next((name for name, value in tensors(result).items() if value is tensor), "")


def hashes(named: dict[str, torch.Tensor]) -> dict[str, str]:
    """Return the hash of every tensor by name, each computed once; '' for one without bytes."""
    digests: dict[int, str] = {}
    for tensor in named.values():
        if id(tensor) not in digests:
            digests[id(tensor)] = hash_or_none(tensor) or ""
    return {name: digests[id(tensor)] for name, tensor in named.items()}


def _walk(value: Any, path: Path, holders: set[int]) -> Iterator[tuple[Path, torch.Tensor]]:
    """Yield the tensors below a value; ``holders`` are the ids of the containers above it."""
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    if id(value) in holders or len(path) > _MAX_DEPTH or _is_cache(value, path):
        return
    for key, item in _items(value):
        yield from _walk(item, (*path, key), holders | {id(value)})


def _items(value: Any) -> list[tuple[str | int, Any]]:
    if isinstance(value, Mapping):
        named = {str(key): item for key, item in value.items()}
        return [*named.items(), *_former_names(value, named)]
    if isinstance(value, tuple) and (fields := getattr(value, "_fields", None)):
        return list(zip(fields, value, strict=True))
    if isinstance(value, (tuple, list)):
        return list(enumerate(value))
    if isinstance(value, _NO_OUTPUT):
        return []
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        return []
    return [(name, item) for name, item in attributes.items() if not name.startswith("_")]


def _former_names(value: Any, named: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the properties of an output class: names under which users still read a moved output.

    ``image_hidden_states`` of LLaVA is a field through 5.23, and from 5.24 on a property that returns
    ``image_outputs.pooler_output`` (modeling_llava.py).
    """
    for owner in type(value).__mro__:
        for name, member in vars(owner).items():
            if not isinstance(member, property) or name in named or name in CACHES:
                continue
            with suppress(Exception):  # as for an image that was not given
                yield name, getattr(value, name)


def _is_cache(value: Any, path: Path) -> bool:
    if path and (path[-1] in CACHES or path[-1] == _RECURRENT):
        return True
    if any("Cache" in base.__name__ for base in type(value).__mro__):
        return True
    return _is_legacy_cache(value)


def _is_legacy_cache(value: Any) -> bool:
    """Return True for a cache of releases before 4.36: keys and values, layer by layer."""
    return (
        isinstance(value, (tuple, list))
        and bool(value)
        and all(
            isinstance(layer, (tuple, list))
            and 2 <= len(layer) <= 4
            and all(isinstance(item, torch.Tensor) and item.ndim >= 3 for item in layer)
            for layer in value
        )
    )


def _name(path: Path) -> str:
    first, *rest = map(str, path) if path else ("",)
    parts = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in path[1:])
    return first + "".join(parts) if rest else first


def has_numbers(output: Any) -> bool:
    """Return True if the first floats of an output have no NaN and a finite number.

    Some may be infinite: Grounding DINO masks its logits beyond the text.
    """
    first = next((t for t in tensors(output).values() if t.is_floating_point()), None)
    return first is not None and bool(first.isfinite().any()) and not bool(first.isnan().any())
