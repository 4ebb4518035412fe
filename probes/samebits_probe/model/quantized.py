"""Quantised weights that only a GPU loads: a machine without one says nothing about the release.

A quantizer refuses in its validate_environment, for a package, an option or the machine. Which of them it
was is tried: the same check is made once more as if there were a GPU.
"""

from __future__ import annotations

import inspect
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import transformers
from transformers.quantizers.base import HfQuantizer
from transformers.utils import import_utils

from samebits_probe.process.devices import DeviceMissing
from samebits_probe.process.failure import in_one_line

_CHECK = "validate_environment"
_CAPABILITY = (12, 0)
"""Of a GPU that no quantizer is known to refuse."""
_DRIVER_LIBRARY = re.compile(r"lib(cu|nv)\w*\.so")
"""Libraries of CUDA and its driver, which the packages of some methods load at import."""
_DRIVER_FRAMES = (("torch/cuda/__init__.py", "_lazy_init"), ("triton/runtime/driver.py", ""))
"""Where torch and Triton raise for want of a device: the end of a file's path, and a function of it."""
_ADVICE = (
    ": run these cells on a machine with one, with --devices cuda (--shard, --on, --store), or compare the "
    "checkpoint that was quantised"
)


def require_gpu(error: BaseException | None) -> None:
    """Raise DeviceMissing if a quantised load raised ``error`` because this machine has no GPU."""
    if error is None or torch.cuda.is_available():
        return
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    values = [value for frame in frames for value in frame.f_locals.values()]
    quantizer = next((value for value in values if isinstance(value, HfQuantizer)), None)
    if quantizer is None or not (_is_refused_here(error, frames) or _misses_a_driver(error)):
        return
    method = getattr(quantizer.quantization_config, "quant_method", "")
    raise DeviceMissing(
        "this machine has no GPU, and transformers "
        f"{transformers.__version__} loads weights of {getattr(method, 'value', method)} on a GPU only "
        f"({in_one_line(error)})",
        _ADVICE,
    )


def _is_refused_here(error: BaseException, frames: list[Any]) -> bool:
    """Return True if the quantizer's check ends in another way where there is a GPU."""
    frame = next((frame for frame in frames if frame.f_code.co_name == _CHECK), None)
    if frame is None or not isinstance(frame.f_locals.get("self"), HfQuantizer):
        return False
    check = getattr(frame.f_locals["self"], _CHECK)
    arguments = _arguments(check, frame.f_locals)
    with _as_if_there_were_a_gpu():
        return _raised(lambda: check(*arguments.args, **arguments.kwargs)) != _text(error)


def _arguments(check: Callable[..., Any], values: dict[str, Any]) -> inspect.BoundArguments:
    signature = inspect.signature(check)
    bound = signature.bind_partial()
    bound.arguments.update({name: values[name] for name in signature.parameters if name in values})
    return bound


def _raised(call: Callable[[], Any]) -> str:
    try:
        call()
    except Exception as error:  # noqa: BLE001  any other end is an answer
        return _text(error)
    return ""


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


@contextmanager
def _as_if_there_were_a_gpu() -> Iterator[None]:
    answers = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": _CAPABILITY,
    }
    _forget_answers()
    try:
        with mock.patch.multiple(
            torch.cuda, **{name: mock.Mock(return_value=value) for name, value in answers.items()}
        ):
            yield
    finally:
        _forget_answers()


def _forget_answers() -> None:
    """Empty the caches of transformers' questions about packages and devices."""
    for function in vars(import_utils).values():
        if hasattr(function, "cache_clear"):
            function.cache_clear()


def _misses_a_driver(error: BaseException) -> bool:
    """Return True for the exceptions of torch, Triton and the dynamic linker about a missing GPU."""
    if isinstance(error, ImportError | OSError):
        return bool(_DRIVER_LIBRARY.search(str(error)))
    last = traceback.extract_tb(error.__traceback__)[-1]
    return any(
        last.filename.replace("\\", "/").endswith(file) and function in ("", last.name)
        for file, function in _DRIVER_FRAMES
    )
