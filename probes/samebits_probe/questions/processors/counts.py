"""Numbers of tokens and patches that a processor tells of a size alone, as vLLM asks before it has an image.

What a call makes of an image, a video or a sound of that size is counted beside it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from samebits_probe.questions.processors import samples
from samebits_probe.questions.processors.calls import Call, NotAsked, marked, rate_of

Size = tuple[int, ...]
_IMAGES: tuple[Size, ...] = ((97, 64), (224, 224), (480, 360), (30, 200), (1500, 4000))
"""Heights and widths: usual ones, a narrow one, and one above the limits of most processors."""
_VIDEOS: tuple[Size, ...] = ((8, 64, 48), (3, 224, 224), (5, 480, 360))
"""Frames, heights and widths; odd numbers of frames are filled up."""
_SOUNDS: tuple[Size, ...] = ((16_000,), (5_001,), (31 * 16_000,))
"""Samples of a sound: of a second, of less, and of more than most models take at once."""


_MAX_MADE = {"images": 224, "videos": 224, "audio": 16_000}
"""Sides and samples up to which a call gets what the size is of."""


class _Method(NamedTuple):
    name: str
    what: str
    sizes: tuple[Size, ...]
    argument: str = ""
    """Its argument for several sizes; '' if it takes one size, and settings."""
    media: str = ""
    """The argument of a call with media of such a size; '' if its number is none of a call's tokens."""


_METHODS = (
    _Method("get_number_of_image_patches", "an image", _IMAGES),
    _Method("get_num_of_video_patches", "a video", _VIDEOS),
    _Method("_get_num_multimodal_tokens", "an image", _IMAGES, "image_sizes", "images"),
    _Method("_get_num_multimodal_tokens", "a video", _VIDEOS, "video_sizes", "videos"),
    _Method("_get_num_multimodal_tokens", "a sound", _SOUNDS, "audio_lengths", "audio"),
)


def calls(processor: Any, kind: str = "processor") -> dict[str, Call]:
    """Return case -> call for the methods that a processor of a kind has; each size is one case."""
    made: dict[str, Call] = {}
    for method in _METHODS:
        for size in _sizes(processor, method) if _is_asked(processor, method, kind) else ():
            of_size = f"{method.what} of {' x '.join(map(str, size))}"
            name = f"{method.name}, {of_size}"
            made[name] = Call(partial(tuple, size), _calling(method))
            if method.media and max(size[-2:]) <= _MAX_MADE[method.media]:
                written = Call(partial(_media, method.media, size), _writing(method), counted=name)
                made[f"the call, {of_size}"] = written
    return made


def _sizes(processor: Any, method: _Method) -> tuple[Size, ...]:
    """Return the sizes of a method, and for images that of the processor, which one that cuts images leaves whole."""
    images = getattr(processor, "image_processor", processor)
    own = getattr(images, "size", None)
    if method.sizes is not _IMAGES or own is None:
        return method.sizes
    with suppress(KeyError, TypeError):  # it may be the length of an edge
        return tuple(dict.fromkeys((*method.sizes, (int(own["height"]), int(own["width"])))))
    return method.sizes


def _is_asked(processor: Any, method: _Method, kind: str) -> bool:
    """Return True if a release has the method; one with ``**kwargs`` would swallow an argument that it does not know.

    One that is missing is asked where the processor of the same package calls it.
    """
    if (own := getattr(processor, method.name, None)) is None:
        return _is_called(type(processor), f"{kind.replace(' ', '_')}.{method.name}(")
    return method.argument in ("", *inspect.signature(own).parameters)


def _is_called(owner: type, call: str) -> bool:
    try:
        folder = Path(inspect.getfile(owner)).parent
    except (OSError, TypeError):
        return False
    return any(call in path.read_text("utf-8") for path in folder.glob("processing_*.py"))


def _calling(method: _Method) -> Callable[[Any, Size], Mapping[str, Any]]:
    def count(processor: Any, size: Size) -> Mapping[str, Any]:
        own = getattr(processor, method.name)
        given = size if len(size) > 1 else size[0]  # a sound has one length
        result = own(**{method.argument: [given]}) if method.argument else own(*size, {})
        return vars(result) if dataclasses.is_dataclass(result) else {"number": result}

    return count


def _media(kind: str, size: Size) -> Any:
    if kind == "images":
        return samples.picture(*size)
    if kind == "audio":
        return samples.sound(*size)
    count, height, width = size
    return samples.clip(height, width, count)


def _writing(method: _Method) -> Callable[[Any, Any], Mapping[str, int]]:
    """Return a call that counts its own tokens of an image, a video or a sound."""

    def write(processor: Any, media: Any) -> Mapping[str, int]:
        options: dict[str, Any] = {"do_sample_frames": False} if method.media == "videos" else {}
        if method.media == "audio":
            options["sampling_rate"] = rate_of(processor)
        made = processor(
            text=[marked(processor, method.media)],
            return_mm_token_type_ids=True,
            return_tensors="pt",
            **{method.media: [media]},
            **options,
        )
        if not (number := int(np.count_nonzero(made.get("mm_token_type_ids", 0)))):
            raise NotAsked(f"the call does not tell which of its tokens are of {method.what}")
        return {"number": number}

    return write
