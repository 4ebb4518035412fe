"""Places in a forward where a value can be taken out and another one put in.

A forward passes its places in order: cos and sin where they are applied, positions where they are
looked up, a mask where attention takes it, a cache before a step. The same hooks take out and put
in, so a donor's value goes exactly where the patient has its own.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from samebits_probe.model import forks
from samebits_probe.model.attention import SDPA, is_attention, sdpa_arguments
from samebits_probe.model.layers import rotary_modules
from samebits_probe.model.tensor import same_bytes

Parts = dict[str, Any]
Fact = dict[str, Any]

ROPE, ROTARY, POSITIONS = "rope", "rotary", "positions"
MASK, ARGUMENT, SCALE, LAYOUT = "mask", "mask argument", "scale", "layout"
KIND, CACHE, HEAD = "kind of cache", "cache", "head"

_ROTARY_NAME = re.compile(r"^apply_(multimodal_)?rotary")
_POSITION_EMBEDDING_NAME = re.compile(
    r"(^|\.)(wpe|embed_positions|position_embeddings?|pos_embed\w*)$"
)


class Unfit(Exception):  # noqa: N818  a value that does not fit is a result
    """The donor's value cannot be put in here; the message says why."""


class Places:
    """Watches one run: records the values that pass, and puts in ``substitutes``.

    ``keep`` turns a tensor into a fact; without it nothing is recorded. ``substitutes`` holds, by
    place, the value for each time that the place is passed; a single value is used every time.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        keep: Callable[[torch.Tensor], Fact] | None = None,
        substitutes: dict[str, list[Parts]] | None = None,
    ) -> None:
        self.seen: dict[str, list[Fact]] = {}
        self.used: Counter[str] = Counter()
        self._model = model
        self._keep = keep
        self._substitutes = substitutes or {}
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Places:  # noqa: PYI034  no subclass; 3.10 has no Self
        for module in rotary_modules(self._model):
            self._hook(module.register_forward_pre_hook(self._enter_positions, with_kwargs=True))
            self._hook(module.register_forward_hook(self._leave_rotary))
        for name, module in self._model.named_modules():
            if _POSITION_EMBEDDING_NAME.search(name) and hasattr(module, "weight"):
                self._hook(
                    module.register_forward_pre_hook(self._enter_positions, with_kwargs=True)
                )
            elif is_attention(module):
                self._hook(
                    module.register_forward_pre_hook(self._enter_attention, with_kwargs=True)
                )
        self._cache = forks.cache_keyword(self._model)
        self._head = forks.head_keyword(self._model)
        self._hook(self._model.register_forward_pre_hook(self._enter_model, with_kwargs=True))
        for namespace, name, function in list(_rotary_functions(self._model)):
            namespace[name] = self._wrap_rotary(function)
            self._undo.append(partial(namespace.__setitem__, name, function))
        self._calls = _Calls(self)
        self._calls.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._calls.__exit__(*exc)
        for undo in reversed(self._undo):
            undo()

    def _hook(self, handle: Any) -> None:
        self._undo.append(handle.remove)

    def _exchange(self, place: str, parts: Parts) -> Parts:
        """Record the value that passes a place, and return the value to use."""
        if self._keep is not None:
            self.seen.setdefault(place, []).append({k: self._fact(v) for k, v in parts.items()})
        if (values := self._substitutes.get(place)) is None:
            return parts
        index = 0 if len(values) == 1 else self.used[place]
        if index >= len(values):
            raise Unfit(f"{place} is used more than {len(values)} times")
        self.used[place] += 1
        chosen = values[index]
        if chosen.keys() != parts.keys():
            raise Unfit(
                f"{place} takes {', '.join(parts)} in the candidate and {', '.join(chosen)} in the reference"
            )
        return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in chosen.items()}

    def _fact(self, value: Any) -> Any:
        assert self._keep is not None
        return self._keep(value) if isinstance(value, torch.Tensor) else value

    # --- positions -----------------------------------------------------------------------------

    def _enter_positions(self, _module: Any, args: Any, kwargs: Parts) -> Any:
        positions = {at: v for at, v in [*enumerate(args), *kwargs.items()] if _are_integers(v)}
        if not positions:
            return None
        substitutes = self._exchange(
            POSITIONS, {str(i): v for i, v in enumerate(positions.values())}
        )
        replaced = dict(zip(positions, substitutes.values(), strict=True))
        return (
            tuple(replaced.get(i, arg) for i, arg in enumerate(args)),
            {k: replaced.get(k, v) for k, v in kwargs.items()},
        )

    def _leave_rotary(self, _module: Any, _args: Any, output: Any) -> Any:
        is_sequence = isinstance(output, (tuple, list))
        tables = list(output) if is_sequence else [output]
        if not all(isinstance(table, torch.Tensor) for table in tables):
            return None
        substitutes = self._exchange(ROTARY, {str(i): table for i, table in enumerate(tables)})
        return type(output)(substitutes.values()) if is_sequence else substitutes["0"]

    def _wrap_rotary(self, function: Any) -> Any:
        signature = inspect.signature(function)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            arguments = bound.arguments
            tables = {part: arguments[part] for part in ("cos", "sin")}
            ids = arguments.get("position_ids")
            if ids is None or tables["cos"].ndim != 2:
                arguments.update(self._exchange(ROPE, tables))
                return function(*bound.args, **bound.kwargs)
            # a table of all positions, from which the function takes the rows itself
            rows = {part: table[ids] for part, table in tables.items()}
            new_tables = self._exchange(ROPE, rows)
            if new_tables is not rows:
                arguments.update({part: rows.flatten(0, -2) for part, rows in new_tables.items()})
                n = arguments["cos"].shape[0]
                arguments["position_ids"] = torch.arange(n, device=ids.device).reshape(ids.shape)
            return function(*bound.args, **bound.kwargs)

        return wrapped

    # --- attention -----------------------------------------------------------------------------

    def _enter_attention(self, _module: Any, args: Any, kwargs: Parts) -> Any:
        mask = kwargs.get("attention_mask", self)
        if mask is not None and not isinstance(mask, torch.Tensor):
            return None
        return args, kwargs | self._exchange(ARGUMENT, {"attention_mask": mask})

    def sdpa(self, args: tuple[Any, ...], kwargs: Parts) -> Any:
        """Run scaled_dot_product_attention with the values put in."""
        call = sdpa_arguments(args, kwargs)
        mask = {"mask": call.get("attn_mask"), "is_causal": bool(call.get("is_causal", False))}
        mask = self._exchange(MASK, mask)
        call["attn_mask"], call["is_causal"] = mask["mask"], mask["is_causal"]
        given_scale = call.get("scale")
        scale = {
            "scale": call["query"].shape[-1] ** -0.5 if given_scale is None else float(given_scale)
        }
        new_scale = self._exchange(SCALE, scale)
        if new_scale != scale:
            call["scale"] = new_scale["scale"]
        layout = _layout(call)
        return _run_kernel(call, layout, self._exchange(LAYOUT, layout))

    # --- the cache -----------------------------------------------------------------------------

    def _enter_model(self, _module: Any, args: Any, kwargs: Parts) -> Any:
        cache = kwargs.get(self._cache) if self._cache else None
        if cache is not None and KIND not in self.seen and self._keep is not None:
            self._exchange(KIND, {"kinds": forks.cache_kinds(cache)})
        if contents := dict(forks.cache_tensors(cache)):
            substitutes = self._exchange(CACHE, contents)
            if CACHE in self._substitutes:
                _overwrite_cache(contents, substitutes)
        last = kwargs.get(self._head, 0) if self._head else 0
        if not isinstance(last, int):
            return None
        new_last = self._exchange(HEAD, {"positions": last})["positions"]
        return (args, kwargs | {self._head: new_last}) if self._head and new_last != last else None


def _overwrite_cache(
    contents: dict[str, torch.Tensor], substitutes: dict[str, torch.Tensor]
) -> None:
    for name, tensor in contents.items():
        if tensor.shape != substitutes[name].shape or tensor.dtype != substitutes[name].dtype:
            sides = f"{list(tensor.shape)} in the candidate and {list(substitutes[name].shape)} in the reference"
            raise Unfit(f"the cache's {name} is {sides}")
        tensor.copy_(substitutes[name])


class _Calls(TorchFunctionMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    def __init__(self, places: Places) -> None:
        super().__init__()
        self._places = places

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is SDPA:
            return self._places.sdpa(args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _are_integers(value: Any) -> bool:
    """Return True for positions; a tensor without axes is a length instead."""
    integers = {torch.int64, torch.int32}
    return isinstance(value, torch.Tensor) and value.dtype in integers and value.ndim > 0


def _rotary_functions(model: torch.nn.Module) -> Iterator[tuple[Parts, str, Any]]:
    """Yield the functions of the model's files that rotate queries and keys by cos and sin."""
    for file in dict.fromkeys(type(module).__module__ for module in model.modules()):
        namespace = vars(sys.modules[file]) if file in sys.modules else {}
        for name, function in list(namespace.items()):
            if not _ROTARY_NAME.match(name) or not callable(function):
                continue
            try:
                parameters = inspect.signature(function).parameters
            except (TypeError, ValueError):
                continue
            if {"cos", "sin"} <= set(parameters):
                yield namespace, name, function


def _layout(call: Parts) -> Parts:
    """Return shapes and strides of a call, and whether the kernel shares keys between heads."""
    layout: Parts = {"enable_gqa": bool(call.get("enable_gqa", False))}
    for part in ("query", "key", "value"):
        layout[part] = [list(call[part].shape), list(call[part].stride())]
    return layout


def _run_kernel(call: Parts, layout: Parts, target: Parts) -> Any:
    """Run the kernel on the same numbers in the layout ``wanted``."""
    if target == layout:
        return SDPA(**call)
    tensors = {
        part: _with_layout(part, call[part], *target[part]) for part in ("query", "key", "value")
    }
    mask = call.get("attn_mask")
    if mask is not None and mask.ndim == 4 and mask.shape[1] > 1:
        heads, rows = tensors["query"].shape[1:3]
        if tuple(mask.shape[1:3]) != (heads, rows):
            tensors["attn_mask"] = mask.reshape(mask.shape[0], heads, rows, mask.shape[-1])
    output = SDPA(**(call | tensors | {"enable_gqa": target["enable_gqa"]}))
    return output.reshape(*call["query"].shape[:-1], output.shape[-1])


def _with_layout(
    part: str, tensor: torch.Tensor, shape: list[int], strides: list[int]
) -> torch.Tensor:
    if list(tensor.shape) != shape:
        tensor = _with_heads(part, tensor, shape)
    if list(tensor.stride()) == strides or 0 in strides:
        return tensor
    restrided = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    return restrided.copy_(tensor)


def _with_heads(part: str, tensor: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Return a query packed or unpacked, or keys and values repeated or once for each group."""
    current = list(tensor.shape)
    msg = f"{part} is {current} in the candidate and {shape} in the reference"
    if len(shape) != 4 or current[0] != shape[0] or current[3] != shape[3]:
        raise Unfit(msg)
    if part == "query":
        # only the heads of a single token are contiguous in both forms
        if 1 not in {current[2], shape[2]} or current[1] * current[2] != shape[1] * shape[2]:
            raise Unfit(msg)
        return tensor.reshape(shape)
    if current[2] != shape[2]:
        raise Unfit(msg)
    if shape[1] % current[1] == 0:
        return tensor.repeat_interleave(shape[1] // current[1], dim=1)
    step = current[1] // shape[1]
    once = tensor[:, ::step]
    if current[1] % shape[1] or not same_bytes(once.repeat_interleave(step, dim=1), tensor):
        raise Unfit(msg)
    return once
