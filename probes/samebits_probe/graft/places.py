"""Where in a forward can something be taken out, and something else be put in instead?

A place is passed in every forward, in order: cos and sin where they are applied, positions where
they are looked up, a mask where attention takes it, a cache before a step. One set of hooks does
both, so that what the donor takes out is put in exactly where the patient has its own.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from samebits_probe.model import forks
from samebits_probe.model.layers import rotary_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Parts = dict[str, Any]
Fact = dict[str, Any]

ROPE, ROTARY, POSITIONS = "rope", "rotary", "positions"
MASK, ARGUMENT, SCALE, LAYOUT = "mask", "mask argument", "scale", "layout"
KIND, CACHE, HEAD = "kind of cache", "cache", "head"

_SDPA = torch.nn.functional.scaled_dot_product_attention
_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_APPLIES = re.compile(r"^apply_(multimodal_)?rotary")
_POSITIONAL = re.compile(r"(^|\.)(wpe|embed_positions|position_embeddings?|pos_embed\w*)$")
_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)


class Unfit(Exception):  # noqa: N818  what does not fit is a result
    """What the donor has cannot be put in here; the message says why."""


class Places:
    """Watches one run: notes what passes, and puts in what is given.

    ``keep`` turns a tensor into a fact, and nothing is noted without it. ``given`` holds, by place,
    what to put in each time; a single one is put in every time.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        keep: Callable[[torch.Tensor], Fact] | None = None,
        given: dict[str, list[Parts]] | None = None,
    ) -> None:
        self.seen: dict[str, list[Fact]] = {}
        self.used: Counter[str] = Counter()
        self._model = model
        self._keep = keep
        self._given = given or {}
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Places:  # noqa: PYI034  no subclass; 3.10 has no Self
        for module in rotary_modules(self._model):
            self._hook(module.register_forward_pre_hook(self._enter_positions, with_kwargs=True))
            self._hook(module.register_forward_hook(self._leave_rotary))
        for name, module in self._model.named_modules():
            if _POSITIONAL.search(name) and hasattr(module, "weight"):
                self._hook(
                    module.register_forward_pre_hook(self._enter_positions, with_kwargs=True)
                )
            elif _ATTENTION.search(type(module).__name__):
                self._hook(
                    module.register_forward_pre_hook(self._enter_attention, with_kwargs=True)
                )
        self._cache = forks.cache_keyword(self._model)
        self._head = forks.head_keyword(self._model)
        self._hook(self._model.register_forward_pre_hook(self._enter_model, with_kwargs=True))
        for namespace, name, function in list(_applying(self._model)):
            namespace[name] = self._applied(function)
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

    def _pass(self, place: str, parts: Parts) -> Parts:
        """Note what passes a place, and return what to use instead."""
        if self._keep is not None:
            self.seen.setdefault(place, []).append({k: self._fact(v) for k, v in parts.items()})
        given = self._given.get(place)
        if given is None:
            return parts
        index = 0 if len(given) == 1 else self.used[place]
        if index >= len(given):
            msg = f"{place} is passed more than {len(given)} times"
            raise Unfit(msg)
        self.used[place] += 1
        chosen = given[index]
        if chosen.keys() != parts.keys():
            msg = f"{place} takes {', '.join(parts)} here and {', '.join(chosen)} there"
            raise Unfit(msg)
        return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in chosen.items()}

    def _fact(self, value: Any) -> Any:
        assert self._keep is not None
        return self._keep(value) if isinstance(value, torch.Tensor) else value

    # --- positions -----------------------------------------------------------------------------

    def _enter_positions(self, _module: Any, args: Any, kwargs: Parts) -> Any:
        whole = [*enumerate(args), *kwargs.items()]
        found = {where: v for where, v in whole if _are_integers(v)}
        if not found:
            return None
        new = self._pass(POSITIONS, {str(i): v for i, v in enumerate(found.values())})
        put = dict(zip(found, new.values(), strict=True))
        return (
            tuple(put.get(i, arg) for i, arg in enumerate(args)),
            {k: put.get(k, v) for k, v in kwargs.items()},
        )

    def _leave_rotary(self, _module: Any, _args: Any, output: Any) -> Any:
        several = isinstance(output, (tuple, list))
        tables = list(output) if several else [output]
        if not all(isinstance(table, torch.Tensor) for table in tables):
            return None
        new = self._pass(ROTARY, {str(i): table for i, table in enumerate(tables)})
        return type(output)(new.values()) if several else new["0"]

    def _applied(self, function: Any) -> Any:
        signature = inspect.signature(function)

        def applied(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            given = bound.arguments
            tables = {part: given[part] for part in ("cos", "sin")}
            ids = given.get("position_ids")
            if ids is None or tables["cos"].ndim != 2:
                given.update(self._pass(ROPE, tables))
                return function(*bound.args, **bound.kwargs)
            # a table of all positions, from which the function takes its rows by itself
            taken = {part: table[ids] for part, table in tables.items()}
            put = self._pass(ROPE, taken)
            if put is not taken:
                given.update({part: rows.flatten(0, -2) for part, rows in put.items()})
                n = given["cos"].shape[0]
                given["position_ids"] = torch.arange(n, device=ids.device).reshape(ids.shape)
            return function(*bound.args, **bound.kwargs)

        return applied

    # --- attention -----------------------------------------------------------------------------

    def _enter_attention(self, _module: Any, args: Any, kwargs: Parts) -> Any:
        mask = kwargs.get("attention_mask", self)
        if mask is not None and not isinstance(mask, torch.Tensor):
            return None
        return args, kwargs | self._pass(ARGUMENT, {"attention_mask": mask})

    def sdpa(self, args: tuple[Any, ...], kwargs: Parts) -> Any:
        """Run scaled_dot_product_attention with what is given."""
        call = dict(zip(_ARGUMENTS, args, strict=False)) | kwargs
        mask = {"mask": call.get("attn_mask"), "is_causal": bool(call.get("is_causal", False))}
        mask = self._pass(MASK, mask)
        call["attn_mask"], call["is_causal"] = mask["mask"], mask["is_causal"]
        own = call.get("scale")
        scale = {"scale": call["query"].shape[-1] ** -0.5 if own is None else float(own)}
        put = self._pass(SCALE, scale)
        if put != scale:
            call["scale"] = put["scale"]
        layout = _layout(call)
        return _called(call, layout, self._pass(LAYOUT, layout))

    # --- the cache -----------------------------------------------------------------------------

    def _enter_model(self, _module: Any, args: Any, kwargs: Parts) -> Any:
        cache = kwargs.get(self._cache) if self._cache else None
        if cache is not None and KIND not in self.seen and self._keep is not None:
            self._pass(KIND, {"kinds": forks.cache_kinds(cache)})
        held = dict(forks.cache_tensors(cache))
        if held:
            new = self._pass(CACHE, held)
            if CACHE in self._given:
                _put_into(held, new)
        last = kwargs.get(self._head, 0) if self._head else 0
        if not isinstance(last, int):
            return None
        put = self._pass(HEAD, {"positions": last})["positions"]
        return (args, kwargs | {self._head: put}) if self._head and put != last else None


def _put_into(held: dict[str, torch.Tensor], new: dict[str, torch.Tensor]) -> None:
    for name, tensor in held.items():
        if tensor.shape != new[name].shape or tensor.dtype != new[name].dtype:
            sides = f"{list(tensor.shape)} here and {list(new[name].shape)} there"
            msg = f"the cache's {name} is {sides}"
            raise Unfit(msg)
        tensor.copy_(new[name])


class _Calls(TorchFunctionMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    def __init__(self, places: Places) -> None:
        super().__init__()
        self._places = places

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Parts | None = None
    ) -> Any:
        if func is _SDPA:
            return self._places.sdpa(args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _are_integers(value: Any) -> bool:
    """Return True for positions; a tensor without axes is a length."""
    integers = {torch.int64, torch.int32}
    return isinstance(value, torch.Tensor) and value.dtype in integers and value.ndim > 0


def _applying(model: torch.nn.Module) -> Iterator[tuple[Parts, str, Any]]:
    """Yield the functions that the model's files use to turn queries and keys by cos and sin."""
    files = dict.fromkeys(type(module).__module__ for module in model.modules())
    for file in files:
        namespace = vars(sys.modules[file]) if file in sys.modules else {}
        for name, function in list(namespace.items()):
            if not _APPLIES.match(name) or not callable(function):
                continue
            try:
                takes = inspect.signature(function).parameters
            except (TypeError, ValueError):
                continue
            if {"cos", "sin"} <= set(takes):
                yield namespace, name, function


# --- how a kernel is called ------------------------------------------------------------------


def _layout(call: Parts) -> Parts:
    """Return shapes and strides of a call, and whether the kernel shares keys between heads."""
    found: Parts = {"enable_gqa": bool(call.get("enable_gqa", False))}
    for part in ("query", "key", "value"):
        found[part] = [list(call[part].shape), list(call[part].stride())]
    return found


def _called(call: Parts, own: Parts, wanted: Parts) -> Any:
    """Run the kernel on the same numbers, laid out as ``wanted`` says."""
    if wanted == own:
        return _SDPA(**call)
    new = {part: _laid_out(part, call[part], *wanted[part]) for part in ("query", "key", "value")}
    mask = call.get("attn_mask")
    if mask is not None and mask.ndim == 4 and mask.shape[1] > 1:
        heads, rows = new["query"].shape[1:3]
        if tuple(mask.shape[1:3]) != (heads, rows):
            new["attn_mask"] = mask.reshape(mask.shape[0], heads, rows, mask.shape[-1])
    output = _SDPA(**(call | new | {"enable_gqa": wanted["enable_gqa"]}))
    return output.reshape(*call["query"].shape[:-1], output.shape[-1])


def _laid_out(
    part: str, tensor: torch.Tensor, shape: list[int], strides: list[int]
) -> torch.Tensor:
    if list(tensor.shape) != shape:
        tensor = _other_heads(part, tensor, shape)
    if list(tensor.stride()) == strides or 0 in strides:
        return tensor
    turned = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    return turned.copy_(tensor)


def _other_heads(part: str, tensor: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Return a query packed or unpacked, or keys and values repeated or only once for each group.

    Raises:
        Unfit: they do not hold the same numbers.

    """
    mine = list(tensor.shape)
    msg = f"{part} is {mine} here and {shape} there"
    if len(shape) != 4 or mine[0] != shape[0] or mine[3] != shape[3]:
        raise Unfit(msg)
    if part == "query":
        # only one token's heads lie one behind the other in both forms
        if 1 not in {mine[2], shape[2]} or mine[1] * mine[2] != shape[1] * shape[2]:
            raise Unfit(msg)
        return tensor.reshape(shape)
    if mine[2] != shape[2]:
        raise Unfit(msg)
    if shape[1] % mine[1] == 0:
        return tensor.repeat_interleave(shape[1] // mine[1], dim=1)
    step = mine[1] // shape[1]
    once = tensor[:, ::step]
    if mine[1] % shape[1] or not _same_bytes(once.repeat_interleave(step, dim=1), tensor):
        raise Unfit(msg)
    return once


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    return bool(one.contiguous().view(torch.uint8).equal(other.contiguous().view(torch.uint8)))
