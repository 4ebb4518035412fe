"""Inputs of a model without token ids that takes more than an image or a sound: a tower, an encoder, a decoder of latents.

What shape such an argument has, and which grid, positions or mask it needs beside it, is in no config. So layouts are
tried in a small model that the class makes of the config. One fits if forward takes it for one row and for two, and if
what it computes is finite and follows from the input.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import torch

from samebits_probe.model import inputs, outputs, tried
from samebits_probe.model.choice import (
    NO_DATA,
    PIXELS,
    TOKENS,
    VALUES,
    WAVE,
    NotFed,
    Parameter,
    Signature,
)
from samebits_probe.model.media_layouts import (
    Beside,
    Layout,
    Tensors,
    any_number,
    image_size,
    layouts_of,
    patch_layouts,
)
from samebits_probe.model.tensor import hash_or_none
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line

_GRIDS = ("grid_thw", "image_grid_thw")
_VECTORS = "hidden_states"
_KINDS = ("image", "video", "audio")
_LENGTH, _SAMPLES = 12, 3200
_LONG = 4
"""Times as many samples for a head that joins many frames into one, as those of speakers do."""
_WIDTH_SUFFIXES = ("dim", "size", "bins", "channels", "d_model", "width")
_MOST_WIDTHS, _MAX_WIDTH = 12, 4096
_MULTIPLE = re.compile(r"multiple of [^,.]*?(\d+)\)?(?:[,.]|$)")
"""A refusal that tells which lengths a sound may have."""
_BLIND = "what forward returns does not follow from its input"
"""As of a codec whose code book is empty at first: this fits where nothing better does."""
_CONTEXT = "encoder_hidden_states"
"""What the layers of a decoder attend to; forward lists it as optional, and many need it."""


class Alone(NamedTuple):
    """Layouts of a forward's arguments, one for each that takes numbers."""

    layouts: tuple[Layout, ...]

    def tensors(self, name: str, rows: int = 1) -> Tensors:
        """Return the arguments of a prompt."""
        return {k: t for layout in self.layouts for k, t in layout.tensors(name, rows).items()}

    def longer(self, step: int) -> Alone:
        """Return sounds of a length that is a multiple of a number."""
        return Alone(tuple(_longer(layout, step) for layout in self.layouts))


def _longer(layout: Layout, step: int) -> Layout:
    length = max(layout.shape)
    new = -(-length // step) * step

    def stretched(shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(new if n == length else n for n in shape)

    beside = tuple((name, stretched(shape), value) for name, shape, value in layout.beside)
    return layout._replace(shape=stretched(layout.shape), beside=beside)


def takes(signature: Signature) -> bool:
    """Return True for a forward that may be fed so: it lists no token ids, but some input."""
    return TOKENS not in signature.names and bool(_inputs(signature))


def fitting(
    model_class: Any, config: Any, signature: Signature, plain: tuple[str, ...]
) -> Alone | None:
    """Return the layouts that fit; None if those arguments of the plain shapes do, or if nothing can be tried."""
    reason, blind = "", None
    for model in islice(tried.small_models(model_class, config), 1):
        if plain and not (reason := _refusal(model, plain)):
            return None
        pairs = zip(
            _candidates(model.config, signature), _candidates(config, signature), strict=False
        )
        for small, whole in pairs:
            progress.tick("inputs of a part")
            why = _reason(model, small)
            layouts = whole
            if why and (match := _MULTIPLE.search(why)):
                step = int(match[1])
                why, layouts = _reason(model, small.longer(step)), whole.longer(step)
            if not why:
                return layouts
            blind = blind or (layouts if why == _BLIND else None)
            reason = reason or why
    if blind is not None:
        return blind
    if not reason:
        return None
    raise NotFed(f"samebits could not find out what its forward takes: {reason}")


def _refusal(model: Any, names: tuple[str, ...]) -> str:
    """Return why a model refuses arguments of the shapes that model.inputs gives them; '' if it takes them."""
    try:
        _numbers(model, {n: inputs.values("plain", n, model.config) for n in names})
    except Exception as error:  # noqa: BLE001  a forward may refuse inputs in any way
        return in_one_line(error, tried.MAX_REASON)
    return ""


def _reason(model: Any, alone: Alone) -> str:
    """Return why these inputs do not fit; '' if they do."""
    try:
        hashes = [_numbers(model, alone.tensors(name)) for name in ("one", "other")]
        _numbers(model, alone.tensors("one", 2))
    except Exception as error:  # noqa: BLE001  a forward may refuse inputs in any way
        return in_one_line(error, tried.MAX_REASON)
    return _BLIND if len({*hashes}) == 1 else ""


def _numbers(model: Any, kwargs: Tensors) -> tuple[Any, ...]:
    """Return the hashes of the floats that forward returns. Raises if one is not finite."""
    torch.manual_seed(0)
    with torch.no_grad():
        named = outputs.tensors(model(**kwargs)).values()
    floats = [tensor for tensor in named if tensor.is_floating_point()]
    if not floats or not bool(torch.isfinite(floats[0]).all()):
        raise ValueError("forward returns no finite numbers")
    return tuple(map(hash_or_none, floats))


def _candidates(config: Any, signature: Signature) -> Iterator[Alone]:
    """Yield what to try, the likeliest first."""
    names = signature.names
    for grid in filter(names.__contains__, _GRIDS):
        main = PIXELS if PIXELS in names else _VECTORS
        for layout in patch_layouts(main, grid, 1, config, signature):
            yield Alone((layout,))
    for kind in _KINDS:
        for layout in layouts_of(kind, config, signature):
            if layout.main in names and WAVE in names:  # a video with its sound
                yield Alone((layout, Layout(WAVE, (1, _SAMPLES))))
            if layout.main in names:
                yield Alone((layout, *_like(layout, signature)))
    if WAVE in names:
        channels = any_number(config, ("audio_channels", "num_channels", "channels")) or 1
        yield Alone((Layout(WAVE, (channels, _SAMPLES)),))
        yield Alone((Layout(WAVE, (_SAMPLES,)),))
        yield Alone((Layout(WAVE, (_LONG * _SAMPLES,)),))
    if PIXELS in names and (frames := any_number(config, ("num_frames",))):
        shape = (frames, any_number(config, ("num_channels",)) or 3, *image_size(config, config))
        yield Alone((Layout(PIXELS, shape, joined=True),))
    yield from _of_vectors(config, signature)


def _like(layout: Layout, signature: Signature) -> Iterator[Layout]:
    """Yield further pictures that forward requires, of the shape of the first."""
    beside = {layout.main, *(name for name, *_ in layout.beside)}
    for parameter in signature.parameters:
        if parameter.required and parameter.name not in beside:
            yield Layout(parameter.name, layout.shape, layout.joined)


def _of_vectors(config: Any, signature: Signature) -> Iterator[Alone]:
    """Yield vectors of each width that the config names, their transposes, a picture and a sound of that name."""
    wanted = _inputs(signature)
    mains = [p.name for p in wanted if "mask" not in p.name]
    if not mains or any(name in VALUES for name in mains):
        return
    masks = [p for p in wanted if "mask" in p.name]
    channels = any_number(config, ("num_channels", "in_channels", "channels"))
    shapes: list[tuple[int, ...]] = [
        shape for width in _widths(config) for shape in ((_LENGTH, width), (width, _LENGTH))
    ]
    shapes += [(channels or 3, *image_size(config, config)), (channels or 1, _SAMPLES)]
    contexts = [()] if _CONTEXT not in signature.names else [_context(config), ()]
    for shape in shapes:
        for filled in (True, False) if masks else (True,):
            length = max(shape) if len(shape) > 2 else shape[0]
            beside: Beside = tuple((p.name, (length,), _ones(p, filled)) for p in masks)
            for context in contexts:
                first, *rest = (Layout(name, shape) for name in mains)
                yield Alone((first._replace(beside=beside), *rest, *context))


def _ones(mask: Parameter, filled: bool) -> float:
    """Return the value of a mask without padding, which some mark by True and others by False."""
    is_bool = "Bool" in mask.annotation or not filled
    return filled if is_bool else 1


def _context(config: Any) -> tuple[Layout, ...]:
    width = any_number(
        config, ("encoder_hidden_size", "cross_attention_hidden_size", "hidden_size")
    )
    return (Layout(_CONTEXT, (_LENGTH - 3, width)),) if width else ()


def _widths(config: Any) -> list[int]:
    """Return the sizes that a vector may have, those of hidden states first."""
    values = config.to_dict()
    likely = ("hidden_size", "d_model", "input_dim", "input_size", "model_in_dim", "num_mel_bins")
    named = [*likely, *(n for n in values if n.endswith(_WIDTH_SUFFIXES))]
    sizes = (any_number(config, (name,)) or 0 for name in named)
    return [*dict.fromkeys(n for n in sizes if 1 < n <= _MAX_WIDTH)][:_MOST_WIDTHS]


def _inputs(signature: Signature) -> list[Parameter]:
    """Return what forward requires, or the first input that it lists."""
    required = [p for p in signature.parameters if p.required]
    return required or [p for p in signature.parameters if p.name not in NO_DATA][:1]
