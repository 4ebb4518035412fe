"""How users call a model's processors: each case with its input and its call."""

from __future__ import annotations

import copy
import inspect
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

import numpy as np
import transformers

from samebits_probe.cell.tokenizer import BOXES, boxes_of, takes
from samebits_probe.questions.processors import files, samples

if TYPE_CHECKING:
    Media = tuple[str, Any]
    """Its type in a conversation, and an image, a video or a sound."""

_MODES = ("gray", "RGBA", "palette")
"""Kinds of images that a processor converts by its own defaults."""
_MAPS = "trimaps"
_CHANNELS = (1, 3, 4)
_SOUND_EACH = "two texts of different lengths, a sound each"
_VIDEO_EACH = "two texts of different lengths, a video each"
_USUAL, _USUAL_OF_VIDEO = "<image>", "<video>"
_OF_TEXTS_ALONE = {"input_ids", "attention_mask", "token_type_ids"}
_NO_MEDIA = "apply_chat_template returns nothing of the images and videos of the conversation"
_OTHER_PLACEHOLDERS = ("boi_token", "fake_image_token", "start_image_token", "image_placeholder")
"""Attributes of processors for what stands for an image in a text, where it is not image_token."""


class NotAsked(Exception):  # noqa: N818  that a release cannot be asked is a result
    """The release does not do what a case is about; the message says why."""


class Call(NamedTuple):
    """One case: how to make its input, and how to call the processor with it."""

    made: Callable[[], Any]
    called: Callable[[Any, Any], Any]
    """From the processor and the input to its outputs."""
    without: str = ""
    """The case of the same call without its option."""
    given: dict[str, Any] | None = None
    """Arguments of from_pretrained for an object of its own; None for the one that is there."""
    like: str = ""
    """The case that gives the option in the call instead; ``without`` itself if the call is to have no option."""
    counted: str = ""
    """The case of a method that tells the number which this one counts."""


def of(kind: str, processor: Any, *, talks: bool = False) -> dict[str, Call]:
    """Return case -> call for a part of a kind; ``talks`` if the checkpoint has a chat template for it."""
    if kind == "feature extractor":
        if hasattr(processor, "preprocess"):
            return _of_images(processor)  # a feature extractor of images, which releases still load
        return _of_sounds()
    if kind == "video processor":
        return _of_videos()
    if kind == "processor":
        return _of_texts(processor, talks=talks or _has_own_template(processor))
    return _of_images(processor)


def _of_images(processor: Any) -> dict[str, Call]:
    calls = {
        name: Call(made, look)
        for name, made in (samples.arrays() | samples.tensors() | samples.pictures()).items()
    }
    if _takes_videos(processor):
        clips = samples.videos() | samples.several_videos()
        calls |= {
            f"a video: {n}" if n in samples.videos() else n: Call(made, _look_at_videos)
            for n, made in clips.items()
        }
    return calls


def _takes_videos(processor: Any) -> bool:
    """Return True for an image processor that takes videos, as VideoMAE's, and Qwen2-VL's up to 4.57."""
    return "videos" in _taken(processor)


def _taken(processor: Any) -> set[str]:
    with suppress(AttributeError, TypeError, ValueError):
        return {*inspect.signature(processor.preprocess).parameters}
    return set()


def _look_at_videos(processor: Any, videos: Any) -> Any:
    frames = [[*video] for video in (videos if isinstance(videos, list) else [videos])]
    images = {"images": None} if "images" in _taken(processor) else {}
    return processor(**images, videos=frames, return_tensors=_tensors(processor))


def _tensors(processor: Any) -> str:
    return "pt" if backend_of(processor) == "torchvision" else "np"


def look(processor: Any, image: Any, **options: Any) -> Any:
    """Call an image processor as users do."""
    given = {"return_tensors": _tensors(processor), **_with_map(processor, image)}
    return processor(images=image, **(given | options))


def _with_map(processor: Any, image: Any) -> dict[str, Any]:
    """Return a trimap of each image for a processor that takes one, as VitMatte's: none runs without it."""
    if _MAPS not in _taken(processor):
        return {}
    several = isinstance(image, (list, tuple))
    return {_MAPS: [*map(_trimap, image)] if several else _trimap(image)}


def _trimap(image: Any) -> np.ndarray:
    """Return background, unknown and foreground, side by side, in the size of an image."""
    height, width = _height_and_width(image)
    return np.tile(np.array([0, 128, 255], np.uint8)[np.arange(width) * 3 // width], (height, 1))


def _height_and_width(image: Any) -> tuple[int, int]:
    if not hasattr(image, "shape"):
        return image.size[1], image.size[0]
    shape = tuple(map(int, image.shape))
    first = len(shape) == 3 and shape[0] in _CHANNELS and shape[-1] not in _CHANNELS
    height, width = shape[-2:] if first else shape[:2]
    return height, width


def watch(processor: Any, video: Any, **options: Any) -> Any:
    """Call a video processor as users do."""
    return processor(videos=[video], **({"return_tensors": "pt"} | options))


def _known(*videos: Any) -> dict[str, Any]:
    """Return the argument with what a user knows of videos, of which each later one is slower."""
    # not imported with this module, as in the module files
    typed = getattr(transformers.processing_utils, "VideosKwargs", None)
    if "video_metadata" not in getattr(typed, "__annotations__", {}):
        raise NotAsked("a video is taken without its metadata")
    speeds = [4.0 / place for place in range(1, len(videos) + 1)]
    metadata = [samples.metadata(len(v), fps) for v, fps in zip(videos, speeds, strict=True)]
    return {"video_metadata": metadata}


def _of_videos() -> dict[str, Call]:
    calls = {name: Call(made, watch) for name, made in samples.videos().items()}
    calls |= {
        name: Call(made, lambda processor, videos: processor(videos=videos, return_tensors="pt"))
        for name, made in samples.several_videos().items()
    }
    calls["8 frames 64 x 48, its metadata"] = Call(
        samples.videos()["8 frames 64 x 48"],
        lambda processor, video: watch(processor, video, **_known(video)),
    )
    calls["3 frames, a list of images"] = Call(samples.film, watch)
    calls["RGBA, to RGB"] = Call(lambda: samples.frames(4), _converted)
    calls["opaque RGBA, to RGB"] = Call(lambda: samples.frames(4, opaque=True), _converted)
    calls["channels first"] = Call(lambda: np.moveaxis(samples.frames(3), -1, 1), watch)
    calls["opaque RGBA, channels first, to RGB"] = Call(
        lambda: np.moveaxis(samples.frames(4, opaque=True), -1, 1),
        partial(_converted, input_data_format="channels_first"),
    )
    return calls


def _converted(processor: Any, video: Any, **options: Any) -> Any:
    return processor(videos=[video], do_convert_rgb=True, return_tensors="pt", **options)


def _of_sounds() -> dict[str, Call]:
    calls = {name: Call(made, _hearing(rate)) for name, (made, rate) in samples.sounds().items()}
    short = samples.sounds()["1 s"][0]
    several = samples.sounds()["two of different lengths"][0]
    calls["1 s, attention mask"] = Call(short, _hearing(samples.RATE, return_attention_mask=True))
    calls["two, padded"] = Call(several, _hearing(samples.RATE, padding=True))
    calls["two, padded, attention mask"] = Call(
        several, _hearing(samples.RATE, padding=True, return_attention_mask=True)
    )
    calls["1 s, cut"] = Call(
        short, _hearing(samples.RATE, truncation=True, max_length=4_000, padding="max_length")
    )
    return calls


def _hearing(rate: int, **options: Any) -> Callable[[Any, Any], Any]:
    def hear(processor: Any, sound: Any) -> Any:
        return processor(sound, sampling_rate=rate, return_tensors="np", **options)

    return hear


def _of_texts(processor: Any, *, talks: bool) -> dict[str, Call]:
    """Return calls of a processor of several kinds of inputs: texts with images or sounds."""
    calls: dict[str, Call] = {}
    if getattr(processor, "image_processor", None) is not None:
        token = placeholder(processor, "image_token", _USUAL)
        calls |= _of_pairs(token)
        if own := _other_placeholder(processor, token):
            calls |= _of_pairs(own)
    calls |= _of_texts_and_videos(processor)
    calls |= _of_places(processor)
    calls |= _of_words(processor)
    if calls and getattr(processor, "tokenizer", None) is not None:
        calls |= _of_one_kind(processor)
    if talks:
        calls |= _of_conversations(processor)
    if _hears(processor):
        token = placeholder(processor, "audio_token", "")
        sound = _sound_of(processor)
        calls["a sound"] = Call(sound, _read_sound)
        calls["a text and a sound"] = Call(
            lambda: ([f"{token} what is it"], sound()), _read_text_and_sound
        )
        if token:
            calls["a text that names a sound, alone"] = Call(lambda: [f"a {token}"], _read_texts)
        calls[_SOUND_EACH] = Call(lambda: _of_two_sounds(processor), _read_padded_sounds)
    if not calls and getattr(processor, "tokenizer", None) is None:
        return _of_sounds() if hasattr(processor, "sampling_rate") else _of_images(processor)
    return calls


def _of_one_kind(processor: Any) -> dict[str, Call]:
    """Return calls with texts alone, as of a conversation before its first image, and with an image alone."""
    calls = {
        "a text alone": Call(lambda: ["what is a cat"], _read_texts),
        "two texts of different lengths alone": Call(
            lambda: ["what is a cat", "hello"], partial(_read_texts, padding=True)
        ),
    }
    if getattr(processor, "image_processor", None) is not None:
        calls["an image alone"] = Call(_one, look)
        token = placeholder(processor, "image_token", _USUAL)
        calls["a text that names an image, alone"] = Call(lambda: [f"a {token} cat"], _read_texts)
    return calls


def _read_texts(processor: Any, texts: list[str], **options: Any) -> Any:
    return processor(text=texts, return_tensors="pt", **options)


def _of_pairs(token: str) -> dict[str, Call]:
    """Return calls with texts and images at a placeholder, which the case names: releases may have another one."""
    pictures = samples.pictures()
    calls = {
        "a text and an image": Call(lambda: ([f"{token} a cat"], [_one()]), _read_images),
        "a text and an image, no tensors": Call(
            lambda: ([f"{token} a cat"], [_one()]), _plain("images")
        ),
        "a text and two images": Call(lambda: ([f"{token}{token} two cats"], _two()), _read_images),
        "a text between two images": Call(
            lambda: ([f"{token} a cat, and here {token} two"], _two()), _read_images
        ),
        "two texts of different lengths, an image each": Call(
            lambda: (_texts(token), _two()), _read_padded
        ),
        "two texts of different lengths, a list of an image each": Call(
            lambda: (_texts(token), [[image] for image in _two()]), _read_padded
        ),
        "two texts, the first with two images and the second with one": Call(
            lambda: ([f"{token} or {token}", f"{token} a cat"], [_two(), [_one()]]), _read_padded
        ),
    }
    for mode in _MODES:
        calls[f"a text and an image, {mode}"] = Call(pictures[mode], _reading(f"{token} a cat"))
    return calls if token == _USUAL else {f"{n}, at {token}": c for n, c in calls.items()}


def _of_texts_and_videos(processor: Any) -> dict[str, Call]:
    """Return calls with texts and videos, for a processor that has a token for a video or a part for it."""
    if not _sees_videos(processor):
        return {}
    token = placeholder(processor, "video_token", _USUAL_OF_VIDEO)
    clip, longer = samples.videos()["3 frames"], samples.videos()["8 frames 64 x 48"]
    several = samples.several_videos()
    alike, unlike = several["two videos of one shape"], several["two videos of different shapes"]
    calls = {
        "a text and a video": Call(lambda: ([f"{token} a cat"], [clip()]), _read_videos),
        "a text and a video, no tensors": Call(
            lambda: ([f"{token} a cat"], [clip()]), _plain("videos")
        ),
        "a text and a video of one frame": Call(
            lambda: ([f"{token} a cat"], [samples.videos()["one frame"]()]), _read_videos
        ),
        "a text and a video, its metadata": Call(
            lambda: ([f"{token} a cat"], [longer()]),
            lambda processor, case: _read_videos(processor, case, **_known(case[1][0])),
        ),
        "a text and two videos": Call(
            lambda: ([f"{token} a cat, and here {token} two"], alike()), _read_videos
        ),
        "a text and two videos of different shapes": Call(
            lambda: ([f"{token} a cat, and here {token} two"], unlike()), _read_videos
        ),
        "a text and two videos of different speeds, their metadata": Call(
            lambda: ([f"{token} a cat, and here {token} two"], [longer(), longer()]),
            lambda processor, case: _read_videos(processor, case, **_known(*case[1])),
        ),
        _VIDEO_EACH: Call(lambda: (_texts(token), alike()), _read_padded_videos),
    }
    if getattr(processor, "image_processor", None) is not None:
        image = placeholder(processor, "image_token", _USUAL)
        calls["a text with an image and a video"] = Call(
            lambda: ([f"{image} a cat, and here {token}"], [clip()]),
            lambda processor, case: _read_videos(processor, case, images=[_one()]),
        )
    return calls


def _of_places(processor: Any) -> dict[str, Call]:
    """Return calls with boxes and points, one or more in each of two images, and in one of them alone.

    A release takes the points of an image as a list, or as one list for each object of the image.
    """
    taken = inspect.signature(processor.__call__).parameters
    text = {"text": ["a cat", "two dogs"]} if getattr(processor, "tokenizer", None) else {}
    first, second, third = [10, 10, 20, 20], [4, 6, 30, 40], [0, 8, 16, 24]
    given: dict[str, dict[str, Any]] = {}
    if "input_boxes" in taken:
        given |= {
            "a box each": {"input_boxes": [[first], [second]]},
            "a box in the second": {"input_boxes": [None, [second]]},
            "a box in the first and two in the second": {"input_boxes": [[first], [second, third]]},
        }
    if "input_points" in taken:
        points = [[first[:2]], [second[:2], third[:2]]]
        labels = [[1], [1, 0]]
        given["a point in the first and two in the second"] = {
            "input_points": points,
            "input_labels": labels,
        }
        given["a point in the first and two in the second, by objects"] = {
            "input_points": [[image] for image in points],
            "input_labels": [[image] for image in labels],
        }
    return {
        f"two images, {what}": Call(_two, _placed(text | options))
        for what, options in given.items()
    }


def _of_words(processor: Any) -> dict[str, Call]:
    """Return calls with a page's words in their boxes, for a processor whose tokenizer takes them: it takes no plain text."""
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None or not takes(tokenizer, BOXES):
        return {}
    words, boxes = ["what", "a", "cat"], boxes_of(3)
    rows = {"text": [words, words[:2]], "boxes": [boxes, boxes[:2]], "padding": True}
    asked = {"text": "is it", "text_pair": words, "boxes": boxes}
    return {
        "a page and its words": Call(_one, _placed({"text": words, "boxes": boxes})),
        "a page, a question and its words": Call(_one, _placed(asked)),
        "two pages with unlike numbers of words": Call(_two, _placed(rows)),
    }


def _placed(options: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """Return a call with images and options, which a processor may change."""
    return lambda processor, images: processor(
        images=images, return_tensors="pt", **copy.deepcopy(options)
    )


def _sees_videos(processor: Any) -> bool:
    parts = ("video_processor", "video_token")
    return any(getattr(processor, name, None) is not None for name in parts)


def _of_conversations(processor: Any) -> dict[str, Call]:
    """Return conversations, whose media are given beside the text of the template, and to the template itself."""
    clip = samples.videos()["3 frames"]
    made: dict[str, Callable[[], list[Media]]] = {}
    if getattr(processor, "image_processor", None) is not None:
        made["an image"] = lambda: [("image", _one())]
        made["two images"] = lambda: [("image", image) for image in _two()]
    if _sees_videos(processor):
        made["a video"] = lambda: [("video", clip())]
        made["two videos"] = lambda: [
            ("video", v) for v in samples.several_videos()["two videos of one shape"]()
        ]
    if _hears(processor):
        made["a sound"] = lambda: [("audio", _sound_of(processor)())]
    calls = {f"a conversation with {what}": Call(media, _converse) for what, media in made.items()}
    if "an image" in made:
        calls["two conversations of different lengths with an image each, in one call"] = Call(
            _two, _converse_in_a_batch
        )
    at_once = {
        f"a conversation with {what}, in one call": Call(media, _converse_at_once)
        for what, media in (made | _of_several_kinds(processor, made)).items()
    }
    kinds = {"a video": "video", "a sound": "audio"}
    for what in (name for name in kinds if name in made):
        at_once[f"a conversation with {what} by its path"] = Call(
            lambda: None, _converse_by_path(kinds[what])
        )
    if "an image" in made:
        at_once["a conversation with an image by its path"] = Call(
            samples.png_file, _converse_of_file
        )
    at_once["a conversation of text alone, in one call"] = Call(list, _converse_in_text)
    if "tool_calls" in str(getattr(processor, "chat_template", "")):
        at_once["a conversation with a call of a tool, in one call"] = Call(
            lambda: None, _converse_with_a_tool
        )
    return calls | at_once


def _of_several_kinds(
    processor: Any, made: dict[str, Callable[[], list[Media]]]
) -> dict[str, Callable[[], list[Media]]]:
    """Return two sounds, and one of each kind that a processor takes, in this order and the other way round."""
    several: dict[str, Callable[[], list[Media]]] = {}
    if "a sound" in made:
        several["two sounds"] = lambda: [("audio", s) for s in _of_two_sounds(processor)[1]]
    names = [name for name in ("an image", "a video", "a sound") if name in made]
    for order in (names, names[::-1]) if len(names) > 1 else ():
        several[" and ".join(order)] = partial(_joined, [made[name] for name in order])
    return several


def _joined(made: list[Callable[[], list[Media]]]) -> list[Media]:
    return [part for each in made for part in each()]


def _hears(processor: Any) -> bool:
    return getattr(processor, "feature_extractor", None) is not None


def rate_of(processor: Any) -> int:
    """Return the sampling rate of a processor's sounds."""
    return int(getattr(processor.feature_extractor, "sampling_rate", samples.RATE))


def _sound_of(processor: Any, seed: int = 0) -> Callable[[], Any]:
    """Return what makes a sound of a second at the processor's own rate."""
    return lambda: samples.sound(rate_of(processor), seed)


def marked(processor: Any, kind: str) -> str:
    """Return a text with a place for media of a kind of argument."""
    names = {"images": "image_token", "videos": "video_token", "audio": "audio_token"}
    usual = {"images": _USUAL, "videos": _USUAL_OF_VIDEO}.get(kind, "")
    token = placeholder(processor, names[kind], usual)
    if kind == "images":
        token = _other_placeholder(processor, token) or token
    return f"{token} a cat"


def of_videos(processor: Any) -> Iterator[tuple[str, Callable[[], Any], Callable[..., Any]]]:
    """Yield name, input and call of two texts with a video each, for a processor that takes them."""
    if (call := _of_texts_and_videos(processor).get(_VIDEO_EACH)) is not None:
        yield _VIDEO_EACH, call.made, _read_padded_videos


def pairs(processor: Any) -> Iterator[tuple[str, Callable[[], Any], Callable[..., Any]]]:
    """Yield name, input and call of two texts with an image or a sound each, as processors take them."""
    if getattr(processor, "image_processor", None) is None:
        if _hears(processor):
            yield _SOUND_EACH, lambda: _of_two_sounds(processor), _read_padded_sounds
        return
    token = placeholder(processor, "image_token", _USUAL)
    for place in (token, _other_placeholder(processor, token)):
        for name, call in _of_pairs(place).items() if place else ():
            if call.called is _read_padded:
                yield name, call.made, _read_padded


def _reading(text: str) -> Callable[[Any, Any], Any]:
    def read(processor: Any, image: Any) -> Any:
        return _read_images(processor, (text, image))

    return read


def _one() -> Any:
    return samples.pictures()["RGB 97 x 64"]()


def _two() -> list[Any]:
    return list(samples.pictures()["two images"]())


def _texts(token: str) -> list[str]:
    return [f"{token} a cat", f"what do you see here? {token}"]


def _other_placeholder(processor: Any, token: str) -> str:
    """Return what stands for an image where ``token`` does not; '' if it does, or nothing else is known.

    Gemma 3 takes its token of the begin of an image, and Llama 4 one that is not in the model's ids.
    """
    names = [placeholder(processor, name, "") for name in _OTHER_PLACEHOLDERS]
    for other in ("", *(name for name in dict.fromkeys(names) if name not in ("", token))):
        with suppress(Exception):
            _read_images(processor, ([f"{other or token} a cat"], [_one()]))
            return other
    return ""


def placeholder(processor: Any, name: str, default: str) -> str:
    """Return the text that stands for an image, a video or a sound, by the processor's attribute."""
    token = getattr(processor, name, None)
    return str(getattr(token, "content", token)) if token is not None else default


def _read_images(processor: Any, case: Any) -> Any:
    texts, images = case
    return processor(text=texts, images=images, return_tensors="pt")


def _read_videos(processor: Any, case: Any, **media: Any) -> Any:
    texts, videos = case
    return processor(text=texts, videos=videos, padding=True, return_tensors="pt", **media)


def _read_padded_videos(processor: Any, case: Any, **options: Any) -> Any:
    return _read_padded(processor, case, named="videos", **options)


def _plain(named: str) -> Callable[[Any, Any], Any]:
    """Return a call without an option: its outputs are lists."""

    def read(processor: Any, case: Any) -> Any:
        texts, media = case
        return processor(text=texts, **{named: media})

    return read


def _message(parts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    question = {"type": "text", "text": "what do you see?"}
    return [{"role": "user", "content": [*parts, question]}]


def _converse(processor: Any, media: list[Media]) -> Any:
    """Return what users get of a conversation: the text of the template, and what is made of it and the media."""
    prompt = processor.apply_chat_template(
        _message({"type": kind} for kind, _ in media), tokenize=False, add_generation_prompt=True
    )
    given = [value for _, value in media]
    if media[0][0] == "audio":
        return {"prompt": prompt, **_read_text_and_sound(processor, ([prompt], given[0]))}
    read = _read_videos if media[0][0] == "video" else _read_images
    return {"prompt": prompt, **read(processor, ([prompt], given))}


def _converse_at_once(processor: Any, media: list[Media]) -> Any:
    """Return what the template makes of a conversation that holds the media itself."""
    made = _templated(processor, ({"type": kind, kind: value} for kind, value in media))
    if set(made) <= _OF_TEXTS_ALONE:
        raise NotAsked(_NO_MEDIA)
    return made


def _converse_in_a_batch(processor: Any, images: list[Any]) -> Any:
    asked = [_message([{"type": "image", "image": image}]) for image in images]
    asked[1] += [{"role": "assistant", "content": [{"type": "text", "text": "a cat, it seems"}]}]
    made = processor.apply_chat_template(
        asked, tokenize=True, padding=True, return_dict=True, return_tensors="pt"
    )
    if set(made) <= _OF_TEXTS_ALONE:
        raise NotAsked(_NO_MEDIA)
    return made


def _templated(processor: Any, parts: Iterable[dict[str, Any]]) -> Any:
    return processor.apply_chat_template(
        _message(parts),
        tokenize=True,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
    )


def _converse_in_text(processor: Any, parts: list[dict[str, Any]]) -> Any:
    """Return what the template makes of a conversation without media, of a release that gives it to the processor."""
    owner, calls = type(processor), []
    plain = owner.__call__

    @wraps(plain)
    def noted(self: Any, *arguments: Any, **named: Any) -> Any:
        calls.append(named)
        return plain(self, *arguments, **named)

    with mock.patch.object(owner, "__call__", noted):
        made = _templated(processor, parts)
    if not calls:
        raise NotAsked("apply_chat_template does not call the processor")
    return made


def _converse_with_a_tool(processor: Any, _none: Any) -> Any:
    """Return what the template makes of a message that calls a tool and has no content, as models give them."""
    called = {"name": "look", "arguments": {"at": "it"}}
    answer = {"role": "assistant", "tool_calls": [{"type": "function", "function": called}]}
    return processor.apply_chat_template(
        [*_message(()), answer, *_message(())],
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )


def _converse_of_file(processor: Any, content: bytes) -> Any:
    """Return what the template makes of a conversation that names a file with an image."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "made.png")
        path.write_bytes(content)
        made = _templated(processor, [{"type": "image", "path": str(path)}])
    if set(made) <= _OF_TEXTS_ALONE:
        raise NotAsked(_NO_MEDIA)
    return made


def _converse_by_path(kind: str) -> Callable[[Any, Any], Any]:
    """Return a call of the template with a file, which gives what the file is asked for as well."""
    stand_in, noted = files.READ[kind]

    def converse(processor: Any, _none: Any) -> Any:
        asked: list[int] = []
        if (reading := stand_in(asked)) is None:
            raise NotAsked(f"apply_chat_template reads no {kind}")
        with reading:
            made = _templated(processor, [{"type": kind, "path": f"made.{kind}"}])
        if not asked:
            raise NotAsked(f"apply_chat_template reads no {kind} by its path")
        return {**made, noted: np.array(asked)}

    return converse


def _has_own_template(processor: Any) -> bool:
    """Return True for a class with a template in its code, as SmolVLM's for videos."""
    base = getattr(transformers, "ProcessorMixin", object)
    own = getattr(type(processor), "apply_chat_template", None)
    return own is not None and own is not getattr(base, "apply_chat_template", own)


def _read_padded(processor: Any, case: Any, *, named: str = "images", **options: Any) -> Any:
    texts, media = case
    given = {"text": texts, named: media}
    padded, common = {"padding": True}, {"return_tensors": "pt"}
    if any(name.endswith("_kwargs") for name in options):
        # all by kind, as the library documents it: up to 4.57 what stands beside the kinds is dropped
        options["text_kwargs"] = padded | options.get("text_kwargs", {})
        return processor(**given, common_kwargs=common, **options)
    return processor(**given, **(padded | common | options))


def _read_sound(processor: Any, sound: Any) -> Any:
    return processor(audio=sound, sampling_rate=rate_of(processor), return_tensors="pt")


def _read_text_and_sound(processor: Any, case: Any) -> Any:
    texts, sound = case
    return processor(text=texts, audio=sound, sampling_rate=rate_of(processor), return_tensors="pt")


def _of_two_sounds(processor: Any) -> Any:
    sound = _sound_of(processor)()
    token = placeholder(processor, "audio_token", "")
    return _texts(token), [sound, _sound_of(processor, 3)()[: len(sound) // 2]]


def _read_padded_sounds(processor: Any, case: Any, **options: Any) -> Any:
    return _read_padded(processor, case, named="audio", **options)


def backend_of(processor: Any) -> str:
    """Return what computes: ``torchvision``, ``pil``, or ``python`` for numpy and all else."""
    backend = getattr(processor, "backend", None)
    if isinstance(backend, str):
        return backend
    names = [base.__name__ for base in type(processor).__mro__]
    if any(name in ("BaseImageProcessorFast", "BaseVideoProcessor") for name in names):
        return "torchvision"
    return "pil" if "BaseImageProcessor" in names else "python"
