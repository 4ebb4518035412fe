"""A processor's own code in float64, so that rounding can be told from another function.

Processors name float32 in numpy and torch, and resize images in 8 bits. Inside ``in_float64`` the
modules of transformers and of the model's code get float64 for each smaller float, and images are
resized by ``resampling``, in the place of transformers' own function and of torchvision's. What cannot
be widened is named, and then nothing is concluded from it.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch

from samebits_probe.model import precision
from samebits_probe.questions.processors import resampling

_PACKAGES = ("transformers", "transformers_modules")
_WIDER = {
    "float16": np.float64,
    "float32": np.float64,
    "single": np.float64,
    "half": np.float64,
    "complex64": np.complex128,
    "csingle": np.complex128,
}
_IS_SMALLER = {np.float16, np.float32, np.complex64}
_WHITE = 255.0
_MAX_CHANNELS = 3
"""Pillow weighs the colors of an image with four channels by the last one."""


class _WideNumpy:
    """The module numpy, in which smaller floats are float64."""

    def __getattr__(self, name: str) -> Any:
        return _WIDER.get(name) or getattr(np, name)


class Notes:
    """Why a run in float64 shows nothing; empty if it does."""

    def __init__(self) -> None:
        self.reasons: dict[str, None] = {}

    def add(self, reason: str) -> None:
        """Record a reason, once."""
        self.reasons.setdefault(reason)


@contextmanager
def in_float64() -> Iterator[Notes]:
    """Widen all code of the release and of the model inside; yield what could not be widened."""
    notes = Notes()
    with ExitStack() as stack:
        replaced = {id(function): _resize(function, notes) for function in _resizes()}
        for module in _modules():
            _widen_module(stack, module, replaced)
        _watch_pillow(stack, notes)
        _widen_torchvision(stack, notes)
        stack.enter_context(precision.promotion())
        yield notes


def widened(value: Any) -> Any:
    """Return an input whose float32 arrays are float64, with the same numbers."""
    if isinstance(value, (list, tuple)):
        return type(value)(widened(item) for item in value)
    if isinstance(value, np.ndarray) and value.dtype == np.float32:
        return value.astype(np.float64)
    return value


def _modules() -> list[types.ModuleType]:
    return [
        module
        for name, module in list(sys.modules.items())
        if name.partition(".")[0] in _PACKAGES and isinstance(module, types.ModuleType)
    ]


def _resizes() -> list[Callable[..., Any]]:
    module = sys.modules.get("transformers.image_transforms")
    return [module.resize] if module is not None and hasattr(module, "resize") else []


def _widen_module(
    stack: ExitStack, module: types.ModuleType, replaced: dict[int, Callable[..., Any]]
) -> None:
    names = vars(module)
    changes: dict[str, Any] = {}
    for name, value in list(names.items()):
        if value is np:
            changes[name] = _WideNumpy()
        elif id(value) in replaced:
            changes[name] = replaced[id(value)]
        elif isinstance(value, types.FunctionType):
            _widen_defaults(stack, value)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for member in list(vars(value).values()):
                function = getattr(member, "__func__", member)
                if isinstance(function, types.FunctionType):
                    _widen_defaults(stack, function)
    if changes:
        stack.enter_context(mock.patch.dict(names, changes))


def _widen_defaults(stack: ExitStack, function: types.FunctionType) -> None:
    """Widen the dtypes that are default values, which are bound when a module is imported."""
    defaults, keywords = function.__defaults__, function.__kwdefaults__
    if defaults and any(_is_smaller(value) for value in defaults):
        function.__defaults__ = tuple(map(_wide, defaults))
        stack.callback(setattr, function, "__defaults__", defaults)
    if keywords and any(map(_is_smaller, keywords.values())):
        function.__kwdefaults__ = {name: _wide(value) for name, value in keywords.items()}
        stack.callback(setattr, function, "__kwdefaults__", keywords)


def _is_smaller(value: Any) -> bool:
    return isinstance(value, type) and value in _IS_SMALLER


def _wide(value: Any) -> Any:
    return _WIDER[value.__name__] if _is_smaller(value) else value


def _watch_pillow(stack: ExitStack, notes: Notes) -> None:
    """Note each image that is resized in 8 bits inside the run."""
    if (image := sys.modules.get("PIL.Image")) is None:
        return
    original = image.Image.resize

    def resize(self: Any, *arguments: Any, **options: Any) -> Any:
        notes.add("an image is resized by Pillow itself, in 8 bits")
        return original(self, *arguments, **options)

    resize.__wrapped__ = original  # type: ignore[attr-defined]
    stack.enter_context(mock.patch.object(image.Image, "resize", resize))


_TORCHVISION = ("torchvision.transforms.v2.functional", "torchvision.transforms.functional")
_OF_TORCHVISION = {
    "nearest-exact": 0,
    "lanczos": 1,
    "bilinear": 2,
    "bicubic": 3,
    "box": 4,
    "hamming": 5,
}
"""Value of torchvision's InterpolationMode -> Pillow's number of the same filter. Its ``nearest`` takes
other pixels than Pillow's."""


def _widen_torchvision(stack: ExitStack, notes: Notes) -> None:
    """Replace torchvision's resize, which rounds images of 8 bits to 8 bits."""
    for name in _TORCHVISION:
        module = sys.modules.get(name)
        if module is not None and hasattr(module, "resize"):
            resize = _resize_of_tensors(module.resize, notes)
            stack.enter_context(mock.patch.object(module, "resize", resize))


def _resize_of_tensors(original: Callable[..., Any], notes: Notes) -> Callable[..., Any]:
    """Return torchvision's ``resize`` in float64."""

    def resize(
        image: Any,
        size: Any,
        interpolation: Any = None,
        max_size: int | None = None,
        antialias: bool | None = True,
        **others: Any,
    ) -> Any:
        mode = str(getattr(interpolation, "value", interpolation or "bilinear"))
        kernel = _OF_TORCHVISION.get(mode)
        is_pair = isinstance(size, (list, tuple)) and len(size) == 2
        if reason := _cannot_of_tensors(image, kernel, is_pair and max_size is None, antialias):
            notes.add(reason)
            options = {"interpolation": interpolation} if interpolation is not None else {}
            return original(
                image, size, max_size=max_size, antialias=antialias, **options, **others
            )
        assert kernel is not None
        scale = _WHITE if image.dtype != torch.uint8 and float(image.max()) <= 1.0 else 1.0
        target = int(size[0]), int(size[1])
        results = [
            np.moveaxis(resampling.resampled(np.moveaxis(row, 0, -1), target, kernel), -1, 0)
            / scale
            for row in image.reshape(-1, *image.shape[-3:]).to(torch.float64).numpy() * scale
        ]
        return torch.from_numpy(np.stack(results)).reshape(*image.shape[:-2], *target)

    return resize


def _cannot_of_tensors(image: Any, kernel: int | None, is_plain: bool, antialias: Any) -> str:
    if not isinstance(image, torch.Tensor) or not is_plain or image.dim() < 3 or not image.numel():
        return "an image is resized in a way that has no version in float64"
    if kernel is None or (kernel != resampling.NEAREST and not antialias):
        return "torchvision resizes with a filter that has no version in float64"
    if image.dtype != torch.uint8 and not (
        float(image.min()) >= 0.0 and float(image.max()) <= _WHITE
    ):
        return "an image with values outside of 0..255 is resized"
    return ""


def _resize(original: Callable[..., Any], notes: Notes) -> Callable[..., Any]:
    """Return ``image_transforms.resize`` in float64."""
    transforms = sys.modules["transformers.image_transforms"]

    def resize(
        image: Any,
        size: Any,
        resample: Any = None,
        reducing_gap: Any = None,
        data_format: Any = None,
        return_numpy: bool = True,
        input_data_format: Any = None,
        **others: Any,
    ) -> Any:
        kernel = 2 if resample is None else int(resample)
        layout = input_data_format
        if layout is None and isinstance(image, np.ndarray):
            layout = transforms.infer_channel_dimension_format(image)
        if reason := _cannot(image, layout, kernel, reducing_gap, return_numpy, others):
            notes.add(reason)
            return original(
                image, size, resample, reducing_gap, data_format, return_numpy, layout, **others
            )
        pixels = _channels_last(image, layout)
        scaled = np.asarray(pixels, np.float64) * (_WHITE if _is_in_0_1(image) else 1.0)
        target = int(size[0]), int(size[1])
        result = resampling.resampled(scaled, target, kernel)
        if image.dtype == np.uint8:
            _check(pixels, result, target, kernel, notes)
        result = result / _WHITE if _is_in_0_1(image) else result
        wanted = layout if data_format is None else data_format
        return np.moveaxis(result, -1, 0) if _is_first(wanted) else result

    return resize


def _cannot(image: Any, layout: Any, kernel: int, gap: Any, return_numpy: bool, others: Any) -> str:
    if not isinstance(image, np.ndarray) or not return_numpy or gap is not None or others:
        return "an image is resized in a way that has no version in float64"
    if kernel not in resampling.KERNELS:
        return f"the filter {kernel} is unknown"
    if image.ndim != 3 or _channels_last(image, layout).shape[-1] > _MAX_CHANNELS:
        return "an image with an alpha channel is resized in 8 bits"
    if image.dtype != np.uint8 and not _is_in_0_1(image) and not _is_in_0_255(image):
        return "an image with values outside of 0..255 is resized"
    return ""


def _is_in_0_1(image: np.ndarray) -> bool:
    """Return True if the release scales an image to 8 bits before it resizes it."""
    if image.dtype == np.uint8 or (image.dtype.kind in "iu"):
        return False
    return bool(image.size and image.min() >= 0.0 and image.max() <= 1.0)


def _is_in_0_255(image: np.ndarray) -> bool:
    return bool(image.size and image.min() >= 0.0 and image.max() <= _WHITE)


def _is_first(layout: Any) -> bool:
    return str(getattr(layout, "value", layout)) == "channels_first"


def _channels_last(image: np.ndarray, layout: Any) -> np.ndarray:
    return np.moveaxis(image, 0, -1) if _is_first(layout) else image


def _check(
    pixels: np.ndarray, result: np.ndarray, size: tuple[int, int], kernel: int, notes: Notes
) -> None:
    """Note a Pillow whose bytes are not those of the kernel that it is asked for."""
    own = pixels[:, :, 0] if pixels.shape[-1] == 1 else pixels
    values = resampling.pillow(own, size, kernel).reshape(result.shape)
    bound = resampling.rounding_of(pixels.shape[:2], size, kernel)
    if float(np.abs(values - result).max()) > bound:
        notes.add("Pillow's bytes are not those of the kernel that it is asked for")
