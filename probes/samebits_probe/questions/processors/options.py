"""Options that users give to a processor: one in a call, a few pairs, and the same to from_pretrained.

Names are those that the release's own typed arguments and signatures have, and values follow from what
the object is set to. A case is named by both, so releases are compared where they agree in both.
"""

from __future__ import annotations

import copy
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import combinations
from typing import Any

import numpy as np
import transformers

from samebits_probe.questions.processors import calls, samples, steps
from samebits_probe.questions.processors.calls import Call

Options = dict[str, Any]
Asked = Callable[..., Any]
Base = tuple[str, Callable[[], Any], Asked]
"""Name, input and call without an option."""

_NEEDS = {
    "do_resize": "size",
    "do_center_crop": "crop_size",
    "do_rescale": "rescale_factor",
    "do_normalize": "image_mean",
    "do_sample_frames": "num_frames",
}
"""Option -> the setting without which it cannot be switched on."""
_SIZES = ("size", "crop_size")
_NO_SWITCHES = ("return_tensors",)
_FILTERS = (2, 3)
"""Pillow's numbers of two filters."""
_VALUES: Options = {
    "image_mean": [0.25, 0.5, 0.75],
    "image_std": [0.5, 0.25, 0.5],
    "rescale_factor": 2.0**-7,
    "min_pixels": 12_544,
    "max_pixels": 4_096,
}
"""Option of images -> its value; limits of pixels are such that the image of the calls is beyond them."""
_MEANS = ("image_mean", "image_std")
_COMMON = ("TextKwargs", "ImagesKwargs", "AudioKwargs")
"""Typed arguments that every processor has."""
_PAIRS = ("do_resize", "do_rescale", "do_normalize")
_OF_SOUNDS: dict[str, Options] = {
    "max_length": {"padding": "max_length", "max_length": 12_000},
    "truncation": {"padding": "max_length", "max_length": 4_000, "truncation": True},
    "pad_to_multiple_of": {"pad_to_multiple_of": 7_000},
    "return_tensors": {"return_tensors": "pt"},
}
_OF_TEXTS: dict[str, Options] = {
    "pad_to_multiple_of": {"pad_to_multiple_of": 64},
    "add_special_tokens": {"add_special_tokens": False},
    "return_attention_mask": {"return_attention_mask": False},
    "return_offsets_mapping": {"return_offsets_mapping": True},
    "return_special_tokens_mask": {"return_special_tokens_mask": True},
    "return_mm_token_type_ids": {"return_mm_token_type_ids": True},
    "return_token_type_ids": {"return_token_type_ids": True},
    # of texts alone, as sounds have a padding of their own
    "padding": {"text_kwargs": {"padding": "max_length", "max_length": 1024}},
}
"""Option that a release has -> what is given."""
_SIDE, _OFFSETS = "padding_side", "return_text_replacement_offsets"
_VIDEOS, _SAMPLED = "videos_kwargs", "do_sample_frames"
_SAMPLES: list[Options] = [{_SAMPLED: True, "num_frames": 2}, {"return_metadata": True}]
_OTHER_SIDE = {"left": "right", "right": "left"}
_NAMES = "model_input_names"
_PARTS = "parts"
"""The case of a processor whose parts are those of its files."""


def of(kind: str, processor: Any) -> dict[str, Call]:
    """Return case -> call for the options of a part; the first one is without any."""
    if kind == "processor":
        if getattr(processor, "tokenizer", None) is None:
            return {}
        return _of_texts(processor) | _of_own_parts(processor)
    if kind == "feature extractor" and not hasattr(processor, "preprocess"):
        return _of_sounds(processor)
    if kind == "video processor":
        return _of_pixels(processor, ("3 frames", samples.videos()["3 frames"], calls.watch))
    return _of_pixels(processor, ("RGB 97 x 64", samples.pictures()["RGB 97 x 64"], calls.look))


def _of_pixels(processor: Any, base: Base) -> dict[str, Call]:
    alone = dict(_options_of_pixels(processor))
    pairs = [alone[a] | alone[b] for a, b in combinations([p for p in _PAIRS if p in alone], 2)]
    if all(isinstance(alone.get(name, {}).get(name), list) for name in _MEANS):
        pairs.append({name: np.array(alone[name][name]) for name in _MEANS})
    more: list[Options] = [{"data_format": "channels_last"}, {"return_tensors": None}, *_SAMPLES]
    named = [m for m in more if set(m) <= {*_names(processor), "return_tensors"}]
    return _cases(base, [*alone.values(), *pairs, *named], processor)


def _options_of_pixels(processor: Any) -> Iterator[tuple[str, Options]]:
    """Yield each option that the release names, with another value than the one that is set."""
    for name, kind in sorted(_named(processor).items()):
        value = steps.setting(getattr(processor, name, None))
        is_open = value is None and (name.startswith("return_") or _is_switch(kind))
        if isinstance(value, bool) or (is_open and name not in _NO_SWITCHES):
            needs = _NEEDS.get(name)
            if value or needs is None or getattr(processor, needs, None) is not None:
                yield name, {name: not value}
        elif name in _SIZES and (half := _half(value)) is not None:
            yield name, {name: half}
        elif name == "resample" and value in _FILTERS:
            yield name, {name: next(number for number in _FILTERS if number != value)}
        elif name in _VALUES and value is not None and _is_like(value, _VALUES[name]):
            yield name, {name: _VALUES[name]}


def _is_switch(kind: Any) -> bool:
    """Return True for what is annotated as a boolean and nothing else."""
    return "bool" in str(kind) and "str" not in str(kind)


def _is_like(value: Any, expected: Any) -> bool:
    """Return True if both are lists of one length, or none is."""
    lengths = [len(v) if isinstance(v, list) else 0 for v in (value, expected)]
    return lengths[0] == lengths[1]


def _half(value: Any) -> Any:
    """Return half of a size, or of each of its sides; None if that is no whole number."""
    if isinstance(value, dict):
        sides = {name: _half(side) for name, side in value.items()}
        return sides if sides and None not in sides.values() else None
    is_even = isinstance(value, int) and value > 2 and value % 2 == 0
    return value // 2 if is_even else None


def _of_sounds(processor: Any) -> dict[str, Call]:
    names = _names(processor)
    made = samples.sounds()["two of different lengths"][0]
    flips = [
        {name: not getattr(processor, name)}
        for name in sorted(names)
        if isinstance(getattr(processor, name, None), bool)
    ]
    given = [value for name, value in _OF_SOUNDS.items() if name in names]
    side = _OTHER_SIDE.get(getattr(processor, _SIDE, ""))
    only_loaded = [{_SIDE: side}] if side and _SIDE not in names else []
    base = ("two of different lengths", made, _hear)
    return _cases(base, [*flips, *given], processor, only_loaded)


def _hear(processor: Any, sound: Any, **options: Any) -> Any:
    rate = getattr(processor, "sampling_rate", samples.RATE)
    arguments = {"sampling_rate": rate, "padding": True, "return_tensors": "np"}
    return processor(sound, **(arguments | options))


def _of_own_parts(processor: Any) -> dict[str, Call]:
    """Return calls that tell whose parts a processor has, where the caller gives from_pretrained one of them."""
    names = inspect.signature(type(processor).__init__).parameters
    held = {name: getattr(processor, name, None) for name in names}
    parts = {name: part for name, part in held.items() if hasattr(part, "from_pretrained")}
    cases = {_PARTS: Call(lambda: None, _asking_whose([*parts], {}))}
    for name, part in parts.items():
        given = {name: part}
        case = f"{name} of the caller in from_pretrained"
        whose = _asking_whose([*parts], given)
        cases[case] = Call(lambda: None, whose, without=_PARTS, given=given)
    return cases


def _asking_whose(parts: list[str], given: Options) -> Asked:
    def whose(processor: Any, _none: Any) -> Any:
        return {
            name: "of the caller"
            if name in given and getattr(processor, name, None) is given[name]
            else "of the files"
            for name in parts
        }

    return whose


def _of_texts(processor: Any) -> dict[str, Call]:
    """Return calls with the options of texts with images, sounds or videos; {} for a processor that takes none here."""
    cases: dict[str, Call] = {}
    if (base := _first(processor, calls.pairs(processor))) is not None:
        cases = _of_pairs(processor, base)
    if (base := _first(processor, calls.of_videos(processor))) is not None:
        cases |= _of_videos(processor, base)
    return cases


def _first(processor: Any, pairs: Iterator[Base]) -> Base | None:
    """Return the first call that runs."""
    return next((base for base in pairs if _runs(processor, base[1], base[2])), None)


def _of_pairs(processor: Any, base: Base) -> dict[str, Call]:
    typed = _typed(processor)
    names = _names(processor) | {n for part in _parts(typed).values() for n in _annotated(part)}
    holder = getattr(processor, "image_processor", None)
    images = dict(_options_of_pixels(holder))
    texts = {**_OF_TEXTS}
    if side := _OTHER_SIDE.get(getattr(processor.tokenizer, _SIDE, "")):
        texts[_SIDE] = {_SIDE: side}
    given = [value for name, value in texts.items() if name in names]
    given += [images[name] for name in _PAIRS if name in images and name in names]
    by_kind = (("text_kwargs", texts, _SIDE), ("images_kwargs", images, "do_rescale"))
    given += [{k: own[name]} for k, own, name in by_kind if k in _parts(typed) and name in own]
    asked = {name for options in given for name in options}
    flipped = [*_switches(processor), *_flipped_defaults(typed), *_own_switches(processor, typed)]
    given += [{n: v} for n, v in dict.fromkeys(flipped) if n not in asked]
    cases = _cases(base, given, holder, loads=("do_rescale",), part="image_processor")
    if side and _SIDE in names:
        cases |= _set_later(base, texts[_SIDE], "tokenizer")
    if _OFFSETS in {*names, *(n for n, _ in flipped)}:
        cases |= _of_places_in_texts(processor)
    return cases


def _of_places_in_texts(processor: Any) -> dict[str, Call]:
    """Return the call that tells where its images stand, for a text with two of them."""
    several = (base for base in calls.pairs(processor) if "two images" in base[0])
    if (base := _first(processor, several)) is None:
        return {}
    return _cases(base, [{"text_kwargs": {_OFFSETS: True}}], None)


def _of_videos(processor: Any, base: Base) -> dict[str, Call]:
    """Return calls with the options of videos, of the whole call and by their kind."""
    part = _annotated(_typed(processor)).get(_VIDEOS)
    holder = getattr(processor, "video_processor", None)
    own = dict(_options_of_pixels(holder))
    names = {*_annotated(part), *_names(holder)}
    given = [own[name] for name in (*_PAIRS, _SAMPLED) if name in own and name in names]
    if part is not None and "do_rescale" in own:
        given.append({_VIDEOS: own["do_rescale"]})
    given += [options for options in _SAMPLES if set(options) <= names]
    return _cases(base, given, None)


def _switches(processor: Any) -> Iterator[tuple[str, bool]]:
    """Yield the switches in the signature of the call itself, the other way round."""
    for parameter in inspect.signature(processor.__call__).parameters.values():
        if isinstance(parameter.default, bool):
            yield parameter.name, not parameter.default


def _runs(processor: Any, made: Callable[[], Any], ask: Asked) -> bool:
    with suppress(Exception):
        ask(processor, made())
        return True
    return False


def _typed(processor: Any) -> Any:
    """Return the typed arguments of a processor's call; None where the release has none."""
    owner = type(processor)
    own = getattr(sys.modules.get(owner.__module__), f"{owner.__name__}Kwargs", None)
    return own or getattr(owner, "valid_processor_kwargs", None)


def _parts(typed: Any) -> dict[str, Any]:
    kinds = ("text_kwargs", "images_kwargs", "audio_kwargs")
    return {n: part for n, part in _annotated(typed).items() if n in kinds}


def _flipped_defaults(typed: Any) -> Iterator[tuple[str, bool]]:
    """Yield the switches to which the typed arguments give a default, the other way round."""
    for part, defaults in getattr(typed, "_defaults", {}).items():
        if part in _parts(typed):
            yield from ((n, not v) for n, v in defaults.items() if isinstance(v, bool))


def _own_switches(processor: Any, typed: Any) -> Iterator[tuple[str, bool]]:
    """Yield both values of the switches that not every processor has: their defaults differ between releases.

    Some releases name them with the processor, others with its image processor.
    """
    # not imported with this module, as in files.py
    home = transformers.processing_utils
    common = {n for name in _COMMON for n in _annotated(getattr(home, name, None))}
    of_images = getattr(getattr(processor, "image_processor", None), "valid_kwargs", None)
    for part in (*_parts(typed).values(), of_images):
        for name, kind in _annotated(part).items():
            if name not in common and _is_switch(kind):
                yield from ((name, True), (name, False))


def _annotated(typed: Any) -> Mapping[str, Any]:
    return getattr(typed, "__annotations__", None) or {}


def _names(processor: Any) -> set[str]:
    return {*_named(processor)}


def _named(processor: Any) -> dict[str, Any]:
    """Return each option that a release names -> its annotation."""
    named: dict[str, Any] = {}
    for method in ("preprocess", "__call__"):
        # it may have none, or none that can be read
        with suppress(AttributeError, TypeError, ValueError):
            parameters = inspect.signature(getattr(processor, method)).parameters
            named |= {name: parameter.annotation for name, parameter in parameters.items()}
    return named | {**_annotated(getattr(processor, "valid_kwargs", None))}


def _cases(
    base: Base,
    given: list[Options],
    holder: Any,
    only_loaded: list[Options] | None = None,
    loads: tuple[str, ...] | None = None,
    part: str = "",
) -> dict[str, Call]:
    """Return the calls without an option, with each, and of an object that was loaded with it or has it set.

    ``holder`` has the options as attributes: no other one is given to from_pretrained. ``loads`` are
    those that are, None for all; ``part`` is the holder's name in the object. A list or a dict of the holder is
    changed in place, too, and another object is called.
    """
    name, made, ask = base
    cases: dict[str, Call] = {name: Call(made, ask)}
    at_load: dict[str, Call] = {}
    set_later: dict[str, Call] = {}
    for options in given:
        case = f"{name}, {_shown(options)}"
        cases[case] = Call(made, _with(ask, options), without=name)
        may_load = loads is None or set(options) <= set(loads)
        are_held = all(getattr(holder, n, None) is not None for n in options)
        if len(options) == 1 and may_load and are_held:
            loaded = Call(made, ask, without=name, given=options, like=case)
            at_load[f"{case} in from_pretrained"] = loaded
            set_later |= _set_later(base, options, part)
            (changed,) = options.items()
            if _may_change(holder, *changed):
                in_place = _after_change(ask, holder, *changed)
                label = f"{name}, after {_shown(options)} in another object"
                set_later[label] = Call(made, in_place, without=name, given={}, like=name)
    for options in only_loaded or ():
        case = f"{name}, {_shown(options)} in from_pretrained"
        at_load[case] = Call(made, ask, without=name, given=options)
    cases |= at_load | set_later
    if loads is None and (names := getattr(holder, _NAMES, None)):
        cases[_NAMES] = Call(lambda: None, _input_names)
        options = {_NAMES: [*names, "more"]}
        case = f"{_NAMES} in from_pretrained"
        cases[case] = Call(lambda: None, _input_names, without=_NAMES, given=options)
    return cases


def _input_names(processor: Any, _none: Any) -> Any:
    return {_NAMES: list(processor.model_input_names)}


def _with(ask: Asked, options: Options) -> Asked:
    def asked(processor: Any, made: Any) -> Any:
        return ask(processor, made, **copy.deepcopy(options))  # 4.57 takes its options out of dicts

    return asked


def _set_later(base: Base, options: Options, part: str) -> dict[str, Call]:
    """Return the call of an object of its own, on which options are set after the load."""
    name, made, ask = base
    case = f"{name}, {_shown(options)}"
    asked = _setting(ask, options, part)
    return {f"{case} set on the object": Call(made, asked, without=name, given={}, like=case)}


def _setting(ask: Asked, options: Options, part: str) -> Asked:
    def asked(processor: Any, made: Any) -> Any:
        owner = getattr(processor, part) if part else processor
        for name, value in options.items():
            setattr(owner, name, copy.deepcopy(value))
        return ask(processor, made)

    return asked


def _may_change(holder: Any, name: str, value: Any) -> bool:
    own = getattr(holder, name)
    return type(own) is type(value) and isinstance(own, (list, dict))


def _after_change(ask: Asked, holder: Any, name: str, value: Any) -> Asked:
    """Return a call of an object of its own while a list or a dict of ``holder`` is another one in place."""

    def asked(processor: Any, made: Any) -> Any:
        own = getattr(holder, name)
        before = copy.copy(own)
        _put(own, value)
        try:
            return ask(processor, made)
        finally:
            _put(own, before)

    return asked


def _put(own: Any, value: Any) -> None:
    own.clear()
    own.update(value) if isinstance(own, dict) else own.extend(value)


def _shown(options: Options) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in options.items())


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array({value.tolist()})"
    return json.dumps(value, sort_keys=True)
