"""Attention calls of a forward: the Python function, its arguments, and the ATen kernel.

They are observed, not derived from the config. A TorchFunctionMode sees calls of torch's
scaled_dot_product_attention, however they were imported. A TorchDispatchMode sees their kernels,
and the softmax of an attention that is written out in Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from samebits_probe.model.tensor import dtype_name
from samebits_probe.process.paths import is_of_probes, is_of_torch, package_path

Keep = Callable[[str, dict[str, Any]], None]

SDPA = torch.nn.functional.scaled_dot_product_attention
_SDPA_ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_EAGER_OPS = frozenset({"bmm", "baddbmm", "_softmax", "_safe_softmax"})
_PRODUCTS = {
    torch.matmul: 0,
    torch.Tensor.matmul: 0,
    torch.Tensor.__matmul__: 0,
    torch.bmm: 0,
    torch.Tensor.bmm: 0,
    torch.baddbmm: 1,
    torch.Tensor.baddbmm: 1,
}
"""Functions for products of stacks of matrices -> index of their first operand."""
_SOFTMAX_FUNCTIONS = frozenset({torch.softmax, torch.Tensor.softmax, torch.nn.functional.softmax})


class _RunningModule(NamedTuple):
    """A module whose forward runs, and the innermost running module that is not of torch.nn."""

    module: torch.nn.Module
    owner: torch.nn.Module | None
    attends: bool
    """True if the owner is an attention module."""


class Watch:
    """Watches one forward; :attr:`calls` then holds the attention calls in order.

    ``keep`` is called for each of them with the module's name and its inputs and output by part.
    """

    def __init__(self, model: torch.nn.Module, keep: Keep | None = None) -> None:
        self.calls: list[dict[str, Any]] = []
        self._keep = keep
        self._products: dict[int, list[tuple[Any, Any, Any]]] = {}
        self._eager_parts: dict[int, tuple[dict[str, Any], tuple[int, ...]]] = {}
        self._names = {id(module): name for name, module in model.named_modules()}
        self._running: list[_RunningModule] = []
        self._in_sdpa: dict[str, Any] | None = None
        self._ops_by_module: dict[int, list[str]] = {}
        self._functions = _FunctionWatch(self)
        self._ops = _OpWatch(self)
        self._ops_since: int | None = None
        """Number of running modules when watching of ATen ops began; None while it is off."""

    def __enter__(self) -> Watch:  # noqa: PYI034  no subclass; 3.10 has no Self
        register = torch.nn.modules.module
        self._hooks = [
            register.register_module_forward_pre_hook(self._enter_module),
            register.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        self._functions.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._running.clear()
        self._update_op_watching()
        self._functions.__exit__(*exc)
        for hook in self._hooks:
            hook.remove()

    def enter_running(self, module: torch.nn.Module) -> None:
        """Register a module whose forward began before watching."""
        self._enter_module(module, None)

    @property
    def keeps(self) -> bool:
        """True if the tensors are passed to ``keep``."""
        return self._keep is not None

    def sdpa(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run scaled_dot_product_attention and record its arguments and its kernels."""
        arguments = sdpa_arguments(args, kwargs)
        call = self._call_facts(_sdpa_facts(arguments))
        self.calls.append(call)
        self._in_sdpa = call
        try:
            with self._ops if self._ops_since is None else nullcontext():
                output = SDPA(*args, **kwargs)
        finally:
            self._in_sdpa = None
        if self._keep is not None:
            parts = {part: arguments[part] for part in ("query", "key", "value")}
            mask = arguments.get("attn_mask")
            self._keep(call["module"], parts | {"mask": mask, "output": output})
        return output

    def product_or_softmax(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a matrix product or a softmax and record its part in an attention in Python code.

        The product with the shape of the softmax's input is that of query and key. The next product
        with the shape of the softmax's output as its first operand is that with the values. If two
        products could be that of query and key, nothing is recorded.
        """
        owner = self._running_attention()
        output = func(*args, **kwargs)
        if owner is None or not isinstance(output, torch.Tensor):
            return output
        if func in _SOFTMAX_FUNCTIONS:
            self._record_scores(owner, args[0] if args else kwargs["input"], output)
            return output
        operands = (
            *args[_PRODUCTS[func] :],
            *(kwargs[k] for k in ("batch1", "batch2", "mat2") if k in kwargs),
        )
        if len(operands) < 2:
            return output
        first, second = operands[:2]
        parts, shape = self._eager_parts.get(id(owner), ({}, ()))
        if parts and _matrix_size(first) == shape:
            del self._eager_parts[id(owner)]
            assert self._keep is not None
            self._keep(self._names.get(id(owner), ""), parts | {"value": second, "output": output})
            return output
        # copied at once, because a rotary embedding may change them in place later
        product = (first.detach().clone(), second.detach().clone(), _matrix_size(output))
        self._products.setdefault(id(owner), []).append(product)
        return output

    def _record_scores(self, owner: torch.nn.Module, scores: Any, weights: Any) -> None:
        products = self._products.pop(id(owner), [])
        matches = [product for product in products if product[2] == _matrix_size(scores)]
        if len(matches) == 1:
            query, key, _ = matches[0]
            parts = {"query": query, "key": key.transpose(-1, -2)}
            self._eager_parts[id(owner)] = parts, _matrix_size(weights)

    def aten(self, name: str) -> None:
        """Record one ATen op as part of the running sdpa call, or as an attention of its own."""
        if self._in_sdpa is not None:
            _append_once(
                self._in_sdpa["aten"], f"aten::{name}", "attention" in name or _is_eager_op(name)
            )
            return
        if (owner := self._running_attention()) is None:
            return
        ops = self._ops_by_module.setdefault(id(owner), [])
        _append_once(ops, f"aten::{name}", _is_eager_op(name))
        if name in {"_softmax", "_safe_softmax"} or "flash_attn" in name:
            self.calls.append(self._call_facts(None) | {"aten": ops})

    def _call_facts(self, sdpa: dict[str, Any] | None) -> dict[str, Any]:
        function, source = calling_function()
        module = self._running[-1].owner if self._running else None
        return {
            "module": self._names.get(id(module), "") if module is not None else "",
            "module_class": type(module).__name__ if module is not None else "",
            "function": function,
            "source": source,
            "sdpa": sdpa,
            "aten": [],
        }

    def _running_attention(self) -> torch.nn.Module | None:
        """Return the innermost running module outside torch.nn if it is an attention."""
        innermost = self._running[-1] if self._running else None
        return innermost.owner if innermost is not None and innermost.attends else None

    def _update_op_watching(self) -> None:
        """Watch ATen ops only while an attention runs: a watched op takes as long as ten others."""
        if self._ops_since is None:
            if self._running_attention() is not None:
                self._ops_since = len(self._running)
                self._ops.__enter__()
        elif len(self._running) < self._ops_since:
            self._ops_since = None
            self._ops.__exit__(None, None, None)

    def _enter_module(self, module: torch.nn.Module, _args: Any) -> None:
        running = _RunningModule(module, module, is_attention(module))
        if type(module).__module__.startswith("torch.nn"):
            outer = self._running[-1] if self._running else _RunningModule(module, None, False)
            running = outer._replace(module=module)
        self._running.append(running)
        self._update_op_watching()

    def _leave_module(self, module: torch.nn.Module, _args: Any, _output: Any) -> None:
        self._ops_by_module.pop(id(module), None)
        self._products.pop(id(module), None)
        self._eager_parts.pop(id(module), None)
        if self._running and self._running[-1].module is module:
            self._running.pop()
            self._update_op_watching()


class _FunctionWatch(TorchFunctionMode):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is SDPA:
            return self._watch.sdpa(args, kwargs or {})
        if self._watch.keeps and (func in _PRODUCTS or func in _SOFTMAX_FUNCTIONS):
            return self._watch.product_or_softmax(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


class _OpWatch(TorchDispatchMode):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._watch.aten(func.name().removeprefix("aten::").split(".")[0])
        return func(*args, **(kwargs or {}))


def _matrix_size(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the size and last two axes, which a stack of matrices shares with its views."""
    return (tensor.numel(), *tensor.shape[-2:])


def _is_eager_op(name: str) -> bool:
    return name in _EAGER_OPS


def _append_once(ops: list[str], op: str, is_relevant: bool) -> None:
    if is_relevant and op not in ops:
        ops.append(op)


def is_attention(module: torch.nn.Module) -> bool:
    """Return True for a module whose class is one of attention, by its name."""
    name = type(module).__name__.lower()
    return "attention" in name or "attn" in name


def sdpa_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call of scaled_dot_product_attention by name."""
    return dict(zip(_SDPA_ARGUMENTS, args, strict=False)) | kwargs


def _sdpa_facts(arguments: dict[str, Any]) -> dict[str, Any]:
    mask, scale = arguments.get("attn_mask"), arguments.get("scale")
    return {
        "enable_gqa": bool(arguments.get("enable_gqa", False)),
        "is_causal": bool(arguments.get("is_causal", False)),
        "mask": None if mask is None else f"{dtype_name(mask.dtype)}{list(mask.shape)}",
        "scale": None if scale is None else float(scale),
        "dropout_p": float(arguments.get("dropout_p", 0.0)),
        **{part: _layout(arguments[part]) for part in ("query", "key", "value")},
    }


def _layout(tensor: torch.Tensor) -> str:
    shape, strides = list(tensor.shape), list(tensor.stride())
    return f"{dtype_name(tensor.dtype)}{shape} strides {strides}"


def calling_function() -> tuple[str, str]:
    """Return the innermost function outside torch and the probes, and its file and line."""
    frame = calling_frame()
    return ("", "") if frame is None else (function_of(frame), place_of(frame))


def calling_frame(*passed_over: str) -> Any:
    """Return the frame of the innermost function outside torch, the probes and files whose paths end so; None without one."""
    for frame in _frames():
        path = frame.f_code.co_filename.replace("\\", "/")
        is_between = is_of_torch(path) or is_of_probes(path) or path.startswith("<")
        if not is_between and not path.endswith(passed_over):
            return frame
    return None


def function_of(frame: Any) -> str:
    """Return the name of a frame's function, with its class where Python knows it."""
    return str(getattr(frame.f_code, "co_qualname", frame.f_code.co_name))


def place_of(frame: Any) -> str:
    """Return the file of a frame in its package, and the line."""
    return f"{package_path(frame.f_code.co_filename)}:{frame.f_lineno}"


def _frames() -> Iterator[Any]:
    frame = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back  # type: ignore[assignment]  # the loop ends on None
