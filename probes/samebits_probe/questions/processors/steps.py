"""The steps of a processor: which of its methods ran, with which settings, and what they returned."""

from __future__ import annotations

import functools
import inspect
import json
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np

from samebits_probe.questions.processors import arrays

METHODS = (
    "convert_rgb",
    "convert_to_rgb",
    "resize",
    "center_crop",
    "crop",
    "crop_margin",
    "thumbnail",
    "align_long_axis",
    "rescale",
    "normalize",
    "rescale_and_normalize",
    "normalize_annotation",
    "pad_image",
    "pad",
    "pad_to_square",
    "flip_channel_order",
    "split_image",
    "get_image_patches",
    "sample_frames",
    "zero_mean_unit_var_norm",
    "_extract_fbank_features",
    "_np_extract_fbank_features",
    "_torch_extract_fbank_features",
    "_extract_mel_features",
    "_extract_spectrogram",
    "_get_input_mel",
)
"""Methods of image processors, video processors and feature extractors, as releases name them."""
_MAX_STEPS = 16
_MAX_SETTINGS = 200
_CHANNELS = (1, 3, 4)
_PIXELS = ("image", "images", "videos", "video", "raw_speech", "waveform")
_LAYOUT = ("data_format", "input_data_format")


@contextmanager
def recorded(processor: Any) -> Iterator[list[dict[str, Any]]]:
    """Record the first calls of a processor's steps, without those inside of other steps.

    The class is patched and not the object, whose fields some messages print.
    """
    steps: list[dict[str, Any]] = []
    depth = [0]
    owner = type(processor)
    with ExitStack() as stack:
        for name in METHODS:
            method = inspect.getattr_static(owner, name, None)
            if isinstance(method, (types.FunctionType, staticmethod)):
                step = _recording(name, method, steps, depth)
                stack.enter_context(mock.patch.object(owner, name, step))
        yield steps


def _recording(name: str, method: Any, steps: list[dict[str, Any]], depth: list[int]) -> Any:
    function = getattr(method, "__func__", method)
    is_static = isinstance(method, staticmethod)

    @functools.wraps(function)
    def step(*arguments: Any, **options: Any) -> Any:
        own = arguments if is_static else arguments[1:]
        before = "" if depth[0] or len(steps) >= _MAX_STEPS else _input(own, options)
        depth[0] += 1
        try:
            result = function(*arguments, **options)
        finally:
            depth[0] -= 1
        if not depth[0] and len(steps) < _MAX_STEPS:
            entry = {"name": name, "settings": _settings(own, options)}
            steps.append(entry | {"input": before, "output": _output(result)})
        return result

    return staticmethod(step) if is_static else step


def _settings(arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Return the arguments that are numbers, texts or lists of them, as JSON."""
    values: dict[str, Any] = {
        name: setting(value)
        for name, value in sorted(options.items())
        if name not in (*_PIXELS, *_LAYOUT)
    }
    by_place = [setting(value) for value in arguments]
    values |= {"arguments": shown} if (shown := [v for v in by_place if v is not None]) else {}
    return json.dumps({n: v for n, v in values.items() if v is not None})[:_MAX_SETTINGS]


def setting(value: Any) -> Any:
    """Return a setting as plain JSON; None for one that is not set, or that is no setting."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return str(getattr(value, "value", value)) if isinstance(value, str) else value
    if isinstance(value, (int, float)):
        number = float(value)
        return int(number) if number.is_integer() else number
    if isinstance(value, np.generic):
        return setting(value.item())
    if isinstance(value, dict) or hasattr(value, "shortest_edge"):
        items = value.items() if isinstance(value, dict) else vars(value).items()
        plain = {str(k): setting(v) for k, v in items}
        return {k: v for k, v in sorted(plain.items()) if v is not None}
    is_list = isinstance(value, (list, tuple)) and len(value) <= 8
    if is_list and not any(isinstance(v, np.ndarray) for v in value):
        return [setting(v) for v in value]
    return None


def _input(arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
    """Return the hash of the first array that a step takes; '' if there is none."""
    value = arguments[0] if arguments else next((options[n] for n in options if n in _PIXELS), None)
    taken = _output(value)
    return str(taken["hash"]) if taken else ""


def _output(result: Any) -> dict[str, Any] | None:
    """Return the facts of the first array of a result, channels last and without axes of one."""
    while isinstance(result, (list, tuple)) and len(result):
        result = result[0]
    if hasattr(result, "keys"):
        result = next((result[key] for key in result), None)
        while isinstance(result, (list, tuple)) and len(result):
            result = result[0]
    if result is None:
        return None
    try:
        array = arrays.plain(result)
    except Exception:  # noqa: BLE001  not an array
        return None
    return arrays.facts(_canonical(array)) if array.dtype.kind in "biuf" else None


def _canonical(array: np.ndarray) -> np.ndarray:
    while array.ndim > 1 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 3 and array.shape[0] in _CHANNELS and array.shape[-1] not in _CHANNELS:
        array = np.moveaxis(array, 0, -1)
    if array.ndim == 3 and array.shape[-1] == 1:
        array = array[:, :, 0]
    return array
