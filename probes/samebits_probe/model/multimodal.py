"""Prompts with an image or a sound, for models that take one among their token ids.

How a model takes an image is in no config: the shape of its pixels, what it needs beside them, and how many placeholder
tokens stand for one image. So layouts are tried in a small model that the class makes of the config. One fits if forward
takes it for one row and for two, and what it computes follows from the image. The number of placeholder tokens is the
largest with which it does: a release that does not count them must not decide it.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.model import outputs, shrink, tried
from samebits_probe.model.choice import DECODER, MASK, PIXELS, TOKENS, NotFed
from samebits_probe.model.inputs import (
    DECODER_LENGTH,
    decoder_ids,
    pad_id,
    seeded_ids,
    seeded_numbers,
    token_config,
    vocabulary,
)
from samebits_probe.model.tensor import tensor_hash
from samebits_probe.process import progress
from samebits_probe.process.failure import in_one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits_probe.model.choice import Signature

Tensors = dict[str, torch.Tensor]

FEATURES = "input_features"
TOKEN_TYPES, SEGMENTS = "mm_token_type_ids", "token_type_ids"
OPTIONAL = (TOKEN_TYPES, SEGMENTS)
"""What processors of some releases add to the tokens: 5.x has no positions of an image without the first, and no prefix of
PaliGemma without the other."""
VIDEOS = frozenset({"pixel_values_videos", "pixel_values_video", "videos"})
LENGTHS = (9, 5)
"""Tokens of text of the two rows of a batch; a single row is as long as the first."""
_GRID = (2, 3)
"""Rows and columns of merged patches where the number of patches is free; unequal, so that neither passes for the other."""
_TILES = 5
_PLACEHOLDERS = {
    "image": ("image_token_id", "image_token_index", "img_token_id", "im_token_id"),
    "audio": ("audio_token_id", "audio_token_index", "audio_token"),
}
_STARTS = ("vision_start_token_id", "image_start_token_id", "boi_token_id", "boi_token_index")
_ENDS = ("vision_end_token_id", "image_end_token_id", "eoi_token_id", "eoi_token_index")
_COUNTS = (
    "num_query_tokens",
    "mm_tokens_per_image",
    "image_seq_length",
    "image_seq_len",
    "num_image_tokens",
    "num_tokens_per_image",
    "perceiver_n_latents",
    "resampler_n_latents",
)
"""Fields of a config for the number of features of an image."""


class Layout(NamedTuple):
    """The arguments for one image or sound per row, by name and shape of all rows."""

    main: str
    shape: tuple[int, ...]
    """Shape of one row; its first size counts rows where it is joined."""
    joined: bool = False
    """True if the rows are joined along the first dimension, as patches of Qwen2-VL are."""
    beside: tuple[tuple[str, tuple[int, ...], tuple[int, ...] | int], ...] = ()
    """Further argument, shape of one row, and its values, or the one value of all."""

    def tensors(self, name: str, rows: int) -> Tensors:
        """Return the arguments; floats depend on the name alone."""
        shape = (rows * self.shape[0], *self.shape[1:]) if self.joined else (rows, *self.shape)
        tensors = {self.main: seeded_numbers(name, self.main, shape)}
        for argument, own, values in self.beside:
            filled = torch.full(own, values) if isinstance(values, int) else torch.tensor(values)
            tensors[argument] = filled.reshape(1, *own).repeat(rows, *[1] * len(own))
        return tensors


class Way(NamedTuple):
    """How a model takes one image or sound per row."""

    kind: str
    layout: Layout
    placeholder: int | None
    n_tokens: int
    """Placeholder tokens of one image."""

    def tensors(
        self, name: str, config: Any, signature: Signature, lengths: tuple[int, ...]
    ) -> Tensors:
        """Return the arguments of forward for rows of text with one image each, padded on the left."""
        rows = [self._row(f"{name}[{i}]", config, n) for i, n in enumerate(lengths)]
        width = max(map(len, rows))
        pad = pad_id(token_config(config))
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows])
        is_image = (
            (ids == self.placeholder) & (mask == 1) if self.placeholder is not None else ids < 0
        )
        tensors = {TOKENS: ids, MASK: mask} | self.layout.tensors(name, len(rows))
        if "cross_attention_mask" in signature.names:
            tiles = self.layout.shape[1]
            tensors["cross_attention_mask"] = mask[:, :, None, None].repeat(1, 1, 1, tiles)
        if SEGMENTS in signature.names:
            # gemma3 lets tokens of one image see each other; to others all of it is the first segment
            sees_each_other = hasattr(config, "mm_tokens_per_image")
            tensors[SEGMENTS] = is_image.long() if sees_each_other else torch.zeros_like(ids)
        if self.kind == "image":
            tensors[TOKEN_TYPES] = is_image.long()
        if getattr(config, "is_encoder_decoder", False) and signature.takes(DECODER):
            ids_of_decoder = decoder_ids(name, config, DECODER_LENGTH)
            tensors[DECODER] = torch.tensor([ids_of_decoder] * len(rows))
        return tensors

    def _row(self, name: str, config: Any, length: int) -> list[int]:
        text = seeded_ids(name, length, token_config(config), _reserved(config))
        if self.placeholder is None:
            return text
        start, end = (_first(config, names) for names in (_STARTS, _ENDS))
        around = ([start] if start is not None else []), ([end] if end is not None else [])
        return [text[0], *around[0], *[self.placeholder] * self.n_tokens, *around[1], *text[1:]]


def kinds(config: Any, signature: Signature, fed: tuple[str, ...]) -> Iterator[str]:
    """Yield ``image`` and ``audio`` if forward takes it beside token ids, and ``fed`` has none."""
    if TOKENS not in signature.names:
        return
    if PIXELS in signature.names and PIXELS not in fed:
        yield "image"
    has_sound = _part(config, "audio") is not config or _first(config, _PLACEHOLDERS["audio"])
    if FEATURES in signature.names and FEATURES not in fed and has_sound:
        yield "audio"


def way(kind: str, model_class: Any, config: Any, signature: Signature) -> Way:
    """Return how a model takes an image or a sound.

    Raises:
        NotFed: no layout that is known fits, or no small model can be made to try them in.

    """
    placeholder = _first(config, _PLACEHOLDERS[kind])
    named = next((n for n in _PLACEHOLDERS[kind] if _number(config, n) is not None), "")
    if named and placeholder is None:
        msg = f"{named} {_number(config, named)} is outside of the vocabulary of {vocabulary(token_config(config))}"
        raise NotFed(msg)
    reason = "no layout is known"
    for model in tried.small_models(model_class, config):
        trial = _Trial(kind, model, signature, placeholder)
        for layout in _layouts(kind, config, signature):
            if (count := trial.count(layout)) is not None:
                return Way(kind, layout, placeholder, count)
            reason = trial.reason or reason
        break
    else:
        reason = "its class makes no small model of the config to try them in"
    article = "an image" if kind == "image" else "a sound"
    msg = f"samebits could not find out how the model takes {article} among its tokens: {reason}"
    raise NotFed(msg)


class _Trial:
    """Layouts tried in one small model."""

    def __init__(
        self, kind: str, model: Any, signature: Signature, placeholder: int | None
    ) -> None:
        self.reason = ""
        self._kind, self._model, self._signature = kind, model, signature
        self._has_placeholder = placeholder is not None
        self._placeholder = _first(model.config, _PLACEHOLDERS[kind])

    def count(self, layout: Layout) -> int | None:
        """Return the number of placeholder tokens with which a layout fits; None if it does not."""
        progress.tick("layouts of an image")
        if not self._has_placeholder:
            return 0 if self._fits(layout, 0) else None
        likely = self._likely_counts(layout)
        fitting = [count for count in sorted(likely, reverse=True) if self._fits(layout, count)]
        if not fitting:
            return None
        # a forward that does not count them takes any number: one stands for the image, as in its processor
        return fitting[0] if not self._fits(layout, max(likely) + 1) else 1

    def _likely_counts(self, layout: Layout) -> set[int]:
        """Return numbers of features: of the config, of a refusal's message, of what modules return."""
        config = self._model.config
        counts = {1, *(_number(config, name) or 0 for name in _COUNTS), *_patches(config)}
        with _widths_seen(self._model) as seen:
            try:
                self._run(layout, 1, "likely", rows=1)
            except Exception as error:  # noqa: BLE001  its message may tell the number
                self.reason = in_one_line(error, tried.MAX_REASON)
                if "match" in str(error):
                    counts |= {int(number) for number in re.findall(r"\d+", str(error))}
        return {count for count in (counts | seen) if 0 < count <= 1 << 14}

    def _fits(self, layout: Layout, count: int) -> bool:
        try:
            first = self._run(layout, count, "first", rows=1)
            other = self._run(layout, count, "first", rows=1, pixels="other")
            self._run(layout, count, "batch", rows=2)
        except Exception as error:  # noqa: BLE001  a forward may refuse inputs in any way
            self.reason = in_one_line(error, tried.MAX_REASON)
            return False
        if first is None or other is None:
            self.reason = "forward made the row longer, or returned no tensor"
            return False
        if tensor_hash(first) == tensor_hash(other) and not self._runs_more(layout, count):
            self.reason = "what forward returns does not follow from the image"
            return False
        return True

    def _runs_more(self, layout: Layout, count: int) -> bool:
        """Return True if modules run that do not run without the image: a gate may be closed at first."""
        with _called(self._model) as with_image:
            self._run(layout, count, "first", rows=1)
        with _called(self._model) as without:
            try:
                self._run(layout, count, "first", rows=1, pixels="")
            except Exception:  # noqa: BLE001  then it does not run without an image
                return True
        return bool(with_image - without)

    def _run(
        self, layout: Layout, count: int, name: str, *, rows: int, pixels: str = "same"
    ) -> torch.Tensor | None:
        """Return the first output; None if forward made the row longer, as if a token were an image."""
        model = self._model
        way = Way(self._kind, layout, self._placeholder, count)
        kwargs = way.tensors(name, model.config, self._signature, LENGTHS[:rows])
        if pixels == "other":
            kwargs |= {layout.main: way.layout.tensors("other", rows)[layout.main]}
        elif not pixels:
            for argument in (layout.main, "cross_attention_mask", *(n for n, *_ in layout.beside)):
                kwargs.pop(argument, None)
        kwargs = {
            k: v for k, v in kwargs.items() if k not in OPTIONAL or k in self._signature.names
        }
        with torch.no_grad():
            result = model(**kwargs)
        logits = outputs.usual_logits_of(result)
        is_decoder = DECODER in kwargs
        if logits is None or not (is_decoder or logits.shape[1] == kwargs[TOKENS].shape[1]):
            return None
        return logits


def _layouts(kind: str, config: Any, signature: Signature) -> Iterator[Layout]:
    yield from (
        _image_layouts(config, signature) if kind == "image" else _sound_layouts(config, signature)
    )


def _image_layouts(config: Any, signature: Signature) -> Iterator[Layout]:
    vision = _part(config, "vision")
    channels = _any_number(vision, ("num_channels", "in_channels", "in_chans")) or 3
    patch = _any_number(vision, ("patch_size", "spatial_patch_size")) or 14
    if "image_grid_thw" in signature.names:
        merge = (
            _any_number(vision, ("spatial_merge_size",))
            or _number(config, "spatial_merge_size")
            or 2
        )
        frames = _any_number(vision, ("temporal_patch_size",)) or 1
        grid = (1, _GRID[0] * merge, _GRID[1] * merge)
        of_grid = (("image_grid_thw", (3,), grid),)
        for row in (
            (channels * frames * patch**2,),
            (channels * patch**2,),
            (channels, patch, patch),
        ):
            yield Layout(PIXELS, (math.prod(grid), *row), joined=True, beside=of_grid)
        return
    height, width = _image_size(vision, config)
    image = (channels, height, width)
    sizes = (("image_sizes", (2,), (height, width)),) if "image_sizes" in signature.names else ()
    if "aspect_ratio_ids" in signature.names:
        tiles = _any_number(vision, ("max_num_tiles",)) or 4
        ratios = (
            ("aspect_ratio_ids", (1,), 1),
            ("aspect_ratio_mask", (1, tiles), (1, *[0] * (tiles - 1))),
        )
        yield Layout(PIXELS, (1, tiles, *image), beside=ratios)
        return
    tiles = max(_TILES, 1 + _largest_grid(config, height * width))
    for beside in dict.fromkeys(((), sizes)):
        yield Layout(PIXELS, image, beside=beside)
        yield Layout(PIXELS, (1, *image), beside=beside)
        yield Layout(PIXELS, (tiles, *image), beside=beside)
    if "spatial_shapes" in signature.names:
        rows, columns = (2 * n for n in _GRID)
        n_patches = rows * columns
        patches = (
            ("spatial_shapes", (2,), (rows, columns)),
            ("pixel_attention_mask", (n_patches,), 1),
        )
        yield Layout(PIXELS, (n_patches, channels * patch**2), beside=patches)


def _sound_layouts(config: Any, signature: Signature) -> Iterator[Layout]:
    audio = _part(config, "audio")
    if audio is config:
        audio = _part(config, "encoder")
    bins = _any_number(audio, ("num_mel_bins", "input_feat_size", "input_dim", "mel_bins")) or 80
    positions = _any_number(audio, ("max_source_positions", "max_position_embeddings"))
    masks = [n for n in ("feature_attention_mask", "input_features_mask") if n in signature.names]
    for length in dict.fromkeys((2 * (positions or 50), 64)):
        beside = tuple((name, (length,), 1) for name in masks)
        for choice in dict.fromkeys((beside, ())):
            yield Layout(FEATURES, (bins, length), beside=choice)
            yield Layout(FEATURES, (length, bins), beside=choice)


def _image_size(vision: Any, config: Any) -> tuple[int, int]:
    size = getattr(vision, "image_size", None) or getattr(config, "image_size", None) or 32
    if isinstance(size, dict):
        size = (size["height"], size["width"])
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    return int(height), int(width)


def _patches(config: Any) -> set[int]:
    """Return numbers of patches of a whole image: all of them, and where squares of them are merged."""
    vision = _part(config, "vision")
    patch = getattr(vision, "patch_size", None)
    if not isinstance(patch, int):
        return set()
    height, width = (size // patch for size in _image_size(vision, config))
    return {height * width // merged**2 for merged in (1, 2, 3, 4)}


def _largest_grid(config: Any, area: int) -> int:
    """Return the most tiles into which llava_next cuts an image."""
    pinpoints = getattr(config, "image_grid_pinpoints", None) or ()
    return max((int(h) * int(w) // area for h, w in pinpoints), default=0)


@contextmanager
def _widths_seen(model: Any) -> Iterator[set[int]]:
    """Collect how many vectors of the text's width each module returned for one row, as features may be."""
    width = shrink.hidden_size(token_config(model.config).to_dict())
    seen: set[int] = set()

    def note(_module: Any, _args: Any, output: Any) -> None:
        for tensor in outputs.tensors(output).values():
            if tensor.ndim > 1 and tensor.shape[-1] == width:
                seen.add(tensor.numel() // width)

    hook = torch.nn.modules.module.register_module_forward_hook(note)
    try:
        yield seen
    finally:
        hook.remove()


@contextmanager
def _called(model: Any) -> Iterator[set[str]]:
    """Collect the names of the modules that are called."""
    names = {id(module): name for name, module in model.named_modules()}
    called: set[str] = set()

    def note(module: Any, _args: Any) -> None:
        called.add(names.get(id(module), ""))

    hook = torch.nn.modules.module.register_module_forward_pre_hook(note)
    try:
        yield called
    finally:
        hook.remove()


def _reserved(config: Any) -> list[int]:
    """Return ids that no text has: those of every field that names a token."""
    values = {**token_config(config).to_dict(), **config.to_dict()}
    names = (n for n in values if re.fullmatch(r"\w+_token_(id|index)", n))
    return [values[n] for n in names if isinstance(values[n], int)]


def _part(config: Any, kind: str) -> Any:
    """Return the part of a config that describes images or sounds; the config itself without one."""
    part = getattr(config, f"{kind}_config", None)
    return config if part is None else part


def _number(config: Any, name: str) -> int | None:
    value = getattr(config, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _any_number(config: Any, names: tuple[str, ...]) -> int | None:
    return next((n for n in (_number(config, name) for name in names) if n), None)


def _first(config: Any, names: tuple[str, ...]) -> int | None:
    """Return the first of these token ids that the vocabulary has."""
    size = vocabulary(token_config(config))
    parts = (config, token_config(config))
    ids = (_number(part, name) for name in names for part in parts)
    return next((n for n in ids if n is not None and 0 <= n < size), None)
