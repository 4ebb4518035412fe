"""Numbers of tokens and patches that a processor tells of a size alone, as vLLM asks before it has an image."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from samebits_probe.questions.processors.calls import Call

Size = tuple[int, ...]
_IMAGES: tuple[Size, ...] = ((97, 64), (224, 224), (480, 360), (30, 200), (1500, 4000))
"""Heights and widths: usual ones, a narrow one, and one above the limits of most processors."""
_VIDEOS: tuple[Size, ...] = ((8, 64, 48), (3, 224, 224), (5, 480, 360))
"""Frames, heights and widths; odd numbers of frames are filled up."""
_SOUNDS: tuple[Size, ...] = ((16_000,), (5_001,), (31 * 16_000,))
"""Samples of a sound: of a second, of less, and of more than most models take at once."""


class _Method(NamedTuple):
    name: str
    what: str
    sizes: tuple[Size, ...]
    argument: str = ""
    """Its argument for several sizes; '' if it takes one size, and settings."""


_METHODS = (
    _Method("get_number_of_image_patches", "an image", _IMAGES),
    _Method("get_num_of_video_patches", "a video", _VIDEOS),
    _Method("_get_num_multimodal_tokens", "an image", _IMAGES, "image_sizes"),
    _Method("_get_num_multimodal_tokens", "a video", _VIDEOS, "video_sizes"),
    _Method("_get_num_multimodal_tokens", "a sound", _SOUNDS, "audio_lengths"),
)


def calls(processor: Any) -> dict[str, Call]:
    """Return case -> call for the methods that a processor has; each size is one case."""
    return {
        f"{method.name}, {method.what} of {' x '.join(map(str, size))}": Call(
            partial(tuple, size), _calling(method)
        )
        for method in _METHODS
        if _has(processor, method)
        for size in method.sizes
    }


def _has(processor: Any, method: _Method) -> bool:
    """Return True if a release has the method; one with ``**kwargs`` would swallow an argument that it does not know."""
    own = getattr(processor, method.name, None)
    return own is not None and method.argument in ("", *inspect.signature(own).parameters)


def _calling(method: _Method) -> Callable[[Any, Size], Mapping[str, Any]]:
    def count(processor: Any, size: Size) -> Mapping[str, Any]:
        own = getattr(processor, method.name)
        given = size if len(size) > 1 else size[0]  # a sound has one length
        result = own(**{method.argument: [given]}) if method.argument else own(*size, {})
        return vars(result) if dataclasses.is_dataclass(result) else {"number": result}

    return count
