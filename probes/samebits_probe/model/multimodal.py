"""Prompts with images or a sound, for models that take them among their token ids.

How a model takes an image is in no config: the shape of its pixels, what it needs beside them, and how many placeholder
tokens stand for one image. So layouts are tried in a small model that the class makes of the config. One fits if forward
takes it for one row and for two, and what it computes follows from the image. The number of placeholder tokens is the
largest with which it does: a release that does not count them must not decide it. Two images per row are tried in the
same model: an image must change what is computed of its own row, and of no other.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.model import outputs, shrink, tried
from samebits_probe.model.choice import (
    DECODER,
    IMAGE_NAMES,
    IMAGE_PLACES,
    MASK,
    PIXELS,
    TOKENS,
    NotFed,
)
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
Rows = tuple[tuple[int, ...], ...]
"""For each row, the tokens of text before, between and behind its images."""

FEATURES = "input_features"
TOKEN_TYPES, SEGMENTS = "mm_token_type_ids", "token_type_ids"
_PATCH_NUMBERS = "image_patches_indices"
OPTIONAL = (TOKEN_TYPES, SEGMENTS, _PATCH_NUMBERS)
"""What processors of some releases add to the tokens: 5.x has no positions of an image without the first, and no prefix of
PaliGemma without the second; 4.48 has no patches of Fuyu without the third."""
VIDEOS = frozenset({"pixel_values_videos", "pixel_values_video", "videos"})
ONE_IMAGE: Rows = ((1, 8), (1, 4))
"""An image or a sound in each row of a padded batch; a single row is the first of them."""
TWO_IMAGES: Rows = ((1, 0, 8), (1, 4, 4))
"""Two images side by side in one row, and with text between in the other."""
_GRID = (2, 3)
"""Rows and columns of merged patches where the number of patches is free; unequal, so that neither passes for the other."""
_TILES = 5
_MISMATCH = "match"
"""Part of a refusal of a number of tokens."""
_MODELS = 2
"""Small models that are tried: one with fewer layers may not run."""
_ROUNDING = 1e-3
"""Part of an image's effect on its own row that may be an effect on another row."""
_QUESTION_LENGTH = 6
"""Tokens of the text that the Q-Former of InstructBLIP reads beside the image."""
_FILLER = 4
"""Token id at the places of an image where a mask tells them and the config names no placeholder: no text has it."""
_VISIBLE = ("cross_attention_mask", "image_attention_mask")
"""Masks of the images that each token sees."""
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
    "latent_query_num",
    "vision_soft_tokens_per_image",
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

    are_patches: bool = False
    """True for the patches of an image in a row, one for each placeholder, as Fuyu's are."""

    def tensors(self, name: str, rows: int) -> Tensors:
        """Return the arguments; floats depend on the name alone."""
        shape = (rows * self.shape[0], *self.shape[1:]) if self.joined else (rows, *self.shape)
        tensors = {self.main: seeded_numbers(name, self.main, shape)}
        for argument, own, values in self.beside:
            filled = torch.full(own, values) if isinstance(values, int) else torch.tensor(values)
            tensors[argument] = filled.reshape(1, *own).repeat(rows, *[1] * len(own))
        return tensors

    def times(self, count: int) -> Layout:
        """Return the layout of several images per row, along the first size of a row."""
        beside = tuple(
            (
                name,
                (count * own[0], *own[1:]),
                values if isinstance(values, int) else count * values,
            )
            for name, own, values in self.beside
        )
        return self._replace(shape=(count * self.shape[0], *self.shape[1:]), beside=beside)


class Way(NamedTuple):
    """How a model takes images or a sound among the tokens of each row."""

    kind: str
    layout: Layout
    placeholder: int | None
    n_tokens: int
    """Placeholder tokens of one image."""
    is_longer: bool = False
    """True if what forward returns has the features of the image before the tokens, as GIT's does."""
    in_rows: bool | None = None
    """True if the images of a row have a dimension of their own behind that of the rows, False if they are as many rows;
    None for a model that takes no two images per row."""
    no_two: str = ""
    """Why it takes no two of them."""

    def tensors(self, name: str, config: Any, signature: Signature, rows: Rows) -> Tensors:
        """Return the arguments of forward, padded on the left; each row has its tokens of text around its images."""
        made = [self._row(f"{name}[{i}]", config, parts) for i, parts in enumerate(rows)]
        width, count = max(len(ids) for ids, _ in made), len(rows[0]) - 1
        pad = pad_id(token_config(config))
        ids = torch.tensor([[pad] * (width - len(row)) + row for row, _ in made])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row, _ in made])
        images = torch.tensor([[-1] * (width - len(row)) + row for _, row in made])
        is_image = (images >= 0).long()
        tensors = {TOKENS: ids, MASK: mask} | self._of_layout(name, len(rows), count)
        if names := signature.names & {*_VISIBLE}:
            visible = self._visible(images, mask, count)
            tiles = self.layout.shape[1]
            tensors |= {
                n: visible[..., None].repeat(1, 1, 1, tiles) if n == _VISIBLE[0] else visible
                for n in names
            }
        if IMAGE_PLACES in signature.names:
            tensors[IMAGE_PLACES] = is_image
        if self.layout.are_patches:
            tensors[_PATCH_NUMBERS] = torch.where(is_image == 1, is_image.cumsum(1) - 1, -1)
        if "qformer_input_ids" in signature.names:
            tensors |= _question(name, config, len(rows))
        if SEGMENTS in signature.names:
            # gemma3 lets tokens of one image see each other; to others all of it is the first segment
            sees_each_other = hasattr(config, "mm_tokens_per_image")
            tensors[SEGMENTS] = is_image if sees_each_other else torch.zeros_like(ids)
        if self.kind == "image":
            tensors[TOKEN_TYPES] = is_image
        if getattr(config, "is_encoder_decoder", False) and signature.takes(DECODER):
            ids_of_decoder = decoder_ids(name, config, DECODER_LENGTH)
            tensors[DECODER] = torch.tensor([ids_of_decoder] * len(rows))
        return tensors

    def _of_layout(self, name: str, rows: int, count: int) -> Tensors:
        if self.in_rows:
            return self.layout.times(count).tensors(name, rows)
        return self.layout.tensors(name, rows * count)

    def _visible(self, images: torch.Tensor, mask: torch.Tensor, count: int) -> torch.Tensor:
        """Return which images each token sees: those that began before it, or all where they have no place."""
        if self.placeholder is None:
            return mask[..., None].repeat(1, 1, count)
        begun = images.cummax(1).values[..., None] >= torch.arange(count)
        return begun.long() * mask[..., None]

    def _row(self, name: str, config: Any, parts: tuple[int, ...]) -> tuple[list[int], list[int]]:
        """Return the ids of a row, and for each of them the number of its image, or -1."""
        placeholders = [] if self.placeholder is None else [self.placeholder]
        no_text = [*reserved(config), *placeholders]
        text = seeded_ids(name, sum(parts), token_config(config), no_text)
        if not placeholders:
            return text, [-1] * len(text)
        start, end = (_first(config, names) for names in (_STARTS, _ENDS))
        before, behind = ([i] if i is not None else [] for i in (start, end))
        ids, images = list[int](), list[int]()
        for number, length in enumerate(parts):
            if number:
                ids += [*before, *placeholders * self.n_tokens, *behind]
                places = [number - 1] * self.n_tokens
                images += [*[-1] * len(before), *places, *[-1] * len(behind)]
            ids += text[:length]
            images += [-1] * length
            text = text[length:]
        return ids, images


def _question(name: str, config: Any, rows: int) -> Tensors:
    """Return the text of a Q-Former for each row."""
    ids = [
        seeded_ids(f"{name}[{i}]:question", _QUESTION_LENGTH, config.qformer_config)
        for i in range(rows)
    ]
    tensor = torch.tensor(ids)
    return {"qformer_input_ids": tensor, "qformer_attention_mask": torch.ones_like(tensor)}


def kinds(config: Any, signature: Signature, fed: tuple[str, ...]) -> Iterator[str]:
    """Yield ``image`` and ``audio`` if forward takes it beside token ids, and ``fed`` has none."""
    if TOKENS not in signature.names:
        return
    if image_argument(signature) and PIXELS not in fed:
        yield "image"
    has_sound = _part(config, "audio") is not config or _first(config, _PLACEHOLDERS["audio"])
    if FEATURES in signature.names and FEATURES not in fed and has_sound:
        yield "audio"


def image_argument(signature: Signature) -> str:
    """Return the parameter of forward that takes images; '' if there is none."""
    return next((name for name in IMAGE_NAMES if name in signature.names), "")


def way(kind: str, model_class: Any, config: Any, signature: Signature) -> Way:
    """Return how a model takes an image or a sound.

    Raises:
        NotFed: no layout that is known fits, or no small model can be made to try them in.

    """
    placeholder = _placeholder(kind, config, signature)
    named = next((n for n in _PLACEHOLDERS[kind] if _number(config, n) is not None), "")
    if named and placeholder is None:
        msg = f"{named} {_number(config, named)} is outside of the vocabulary of {vocabulary(token_config(config))}"
        raise NotFed(msg)
    reason = "its class makes no small model of the config to try them in"
    for model in islice(tried.small_models(model_class, config), _MODELS):
        reason = "no layout is known"
        trial = _Trial(kind, model, signature, placeholder)
        for layout in _layouts(kind, config, signature):
            if (found := trial.way(layout)) is not None:
                return found._replace(placeholder=placeholder)
            reason = trial.reason or reason
    article = "an image" if kind == "image" else "a sound"
    msg = f"samebits could not find out how the model takes {article} among its tokens: {reason}"
    raise NotFed(msg)


class _Trial:
    """Layouts tried in one small model."""

    def __init__(
        self, kind: str, model: Any, signature: Signature, placeholder: int | None
    ) -> None:
        self.reason = ""
        """Why a layout does not fit: the first reason that is not a number of tokens, as other numbers are tried."""
        self._kind, self._model, self._signature = kind, model, signature
        self._has_placeholder = placeholder is not None
        self._placeholder = _placeholder(kind, model.config, signature)
        self._is_longer = False
        self._is_seen = True
        """False if what forward returns does not follow from the image, as a gate is closed at first."""

    def way(self, layout: Layout) -> Way | None:
        """Return the way to feed images in a layout; None if it does not fit."""
        count = self._count(layout)
        if count is None:
            return None
        way = self._way(layout, count)
        return self._with_two(way) if self._kind == "image" else way

    def _way(self, layout: Layout, count: int) -> Way:
        return Way(self._kind, layout, self._placeholder, count, self._is_longer)

    def _with_two(self, way: Way) -> Way:
        """Return the way with how it takes two images per row."""
        if reason := self._why_one(way):
            return way._replace(no_two=reason)
        layout = way.layout
        self.reason = ""
        may_be_in_rows = layout.are_patches or (layout.shape[0] == 1 and not layout.joined)
        for in_rows in (True, False) if may_be_in_rows else (False,):
            two = way._replace(in_rows=in_rows)
            if self._takes_two(two):
                return two
        return way._replace(no_two=self.reason)

    def _why_one(self, way: Way) -> str:
        """Return why nobody feeds two images per row, even if forward takes them; '' if somebody may."""
        config, names = self._model.config, self._signature.names
        if way.placeholder is None and not names & {*_VISIBLE}:
            return "no token stands for an image"
        if hasattr(config, "qformer_config") or IMAGE_PLACES in names or DECODER in names:
            return "processors of its kind take one image per text"
        return ""

    def _takes_two(self, way: Way) -> bool:
        """Return True if an image changes what forward returns of its own row, and of no other."""
        kwargs = self._kwargs(way, "two", TWO_IMAGES)
        main = kwargs[way.layout.main]
        n_images = 2 * len(TWO_IMAGES)
        try:
            before = self._logits(kwargs)
            for image in (1, 2):  # the second one of the first row, and the first one of the second
                progress.tick("two images per row")
                pixels = main.clone().reshape(n_images, -1)
                pixels[image] = pixels[image].flip(0)
                after = self._logits({**kwargs, way.layout.main: pixels.reshape(main.shape)})
                if (
                    before is None
                    or after is None
                    or not self._is_of_row(image // 2, before, after)
                ):
                    self.reason = (
                        "what forward returns of a row does not follow from its own images"
                    )
                    return False
        except Exception as error:  # noqa: BLE001  a forward may refuse inputs in any way
            self.reason = in_one_line(error, tried.MAX_REASON)
            return False
        return True

    def _is_of_row(self, row: int, before: torch.Tensor, after: torch.Tensor) -> bool:
        """Return True if an image changed this row; experts that all rows share may round otherwise in the others."""
        changes = [float((a - b).abs().max()) for a, b in zip(before, after, strict=True)]
        own = changes.pop(row)
        return max(changes) <= own * _ROUNDING and (own > 0 or not self._is_seen)

    def _count(self, layout: Layout) -> int | None:
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

    def _note(self, reason: str) -> None:
        if not self.reason or _MISMATCH in self.reason:
            self.reason = reason

    def _likely_counts(self, layout: Layout) -> set[int]:
        """Return numbers of features: of the config, of a refusal's message, of what modules return."""
        config = self._model.config
        counts = {1, *(_number(config, name) or 0 for name in _COUNTS), *_patches(config)}
        counts |= _codes(config)
        with _widths_seen(self._model) as seen:
            try:
                self._run(layout, 1, "likely", rows=1)
            except Exception as error:  # noqa: BLE001  its message may tell the number
                self._note(in_one_line(error, tried.MAX_REASON))
                if _MISMATCH in str(error):
                    counts |= {int(number) for number in re.findall(r"\d+", str(error))}
        return {count for count in (counts | seen) if 0 < count <= 1 << 14}

    def _fits(self, layout: Layout, count: int) -> bool:
        try:
            first = self._run(layout, count, "first", rows=1)
            other = self._run(layout, count, "first", rows=1, pixels="other")
            self._run(layout, count, "batch", rows=2)
        except Exception as error:  # noqa: BLE001  a forward may refuse inputs in any way
            self._note(in_one_line(error, tried.MAX_REASON))
            return False
        if first is None or other is None:
            self._note("forward made the row longer, or returned no tensor")
            return False
        self._is_seen = tensor_hash(first) != tensor_hash(other)
        if not self._is_seen and not self._runs_more(layout, count):
            self._note("what forward returns does not follow from the image")
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
        way = self._way(layout, count)
        kwargs = self._kwargs(way, name, ONE_IMAGE[:rows])
        if pixels == "other":
            kwargs |= {layout.main: layout.tensors("other", rows)[layout.main]}
        elif not pixels:
            for argument in (layout.main, *_VISIBLE, IMAGE_PLACES, *(n for n, *_ in layout.beside)):
                kwargs.pop(argument, None)
        return self._logits(kwargs)

    def _kwargs(self, way: Way, name: str, rows: Rows) -> Tensors:
        kwargs = way.tensors(name, self._model.config, self._signature, rows)
        return {k: v for k, v in kwargs.items() if k not in OPTIONAL or k in self._signature.names}

    def _logits(self, kwargs: Tensors) -> torch.Tensor | None:
        with torch.no_grad():
            result = self._model(**kwargs)
        logits = outputs.usual_logits_of(result)
        if logits is None or DECODER in kwargs:
            return logits
        if logits.shape[1] == kwargs[TOKENS].shape[1]:
            return logits
        self._is_longer = not self._has_placeholder
        return logits if self._is_longer else None


def _layouts(kind: str, config: Any, signature: Signature) -> Iterator[Layout]:
    yield from (
        _image_layouts(config, signature) if kind == "image" else _sound_layouts(config, signature)
    )


def _image_layouts(config: Any, signature: Signature) -> Iterator[Layout]:
    vision, pixels = _part(config, "vision"), image_argument(signature)
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
            yield Layout(pixels, (math.prod(grid), *row), joined=True, beside=of_grid)
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
        yield Layout(pixels, (1, tiles, *image), beside=ratios)
        return
    tiles = max(_TILES, 1 + _largest_grid(config, height * width))
    for beside in dict.fromkeys(((), sizes)):
        yield Layout(pixels, image, beside=beside)
        yield Layout(pixels, (1, *image), beside=beside)
        yield Layout(pixels, (tiles, *image), beside=beside)
    if vision is config:
        yield Layout(pixels, (math.prod(_GRID), channels * patch**2), are_patches=True)
    if "spatial_shapes" in signature.names:
        rows, columns = (2 * n for n in _GRID)
        n_patches = rows * columns
        patches = (
            ("spatial_shapes", (2,), (rows, columns)),
            ("pixel_attention_mask", (n_patches,), 1),
        )
        yield Layout(pixels, (n_patches, channels * patch**2), beside=patches)


def _sound_layouts(config: Any, signature: Signature) -> Iterator[Layout]:
    audio = _part(config, "audio")
    if audio is config:
        audio = _part(config, "encoder")
    bins = _any_number(audio, ("num_mel_bins", "input_feat_size", "input_dim", "mel_bins")) or 80
    positions = _any_number(audio, ("max_source_positions", "max_position_embeddings"))
    masks = [n for n in ("feature_attention_mask", "input_features_mask") if n in signature.names]
    for length in dict.fromkeys((2 * (positions or 50), 64)):
        beside = tuple((name, (length,), 1) for name in masks)
        for arguments in dict.fromkeys((beside, ())):
            yield Layout(FEATURES, (bins, length), beside=arguments)
            yield Layout(FEATURES, (length, bins), beside=arguments)


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


def _codes(config: Any) -> set[int]:
    """Return numbers of codes of a quantized image, with and without a token behind each row, as Emu3's have."""
    if getattr(config, "vq_config", None) is None:
        return set()
    height, width = _image_size(_part(config, "vision"), config)
    sides = [(height >> k, width >> k) for k in range(6)]
    return {count for h, w in sides for count in (h * w, h * (w + 1))}


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


def reserved(config: Any) -> list[int]:
    """Return ids that no text has: those of every field that names a token."""
    values = {**token_config(config).to_dict(), **config.to_dict()}
    names = (n for n in values if re.fullmatch(r"\w+_token_(id|index)", n))
    return [values[n] for n in names if isinstance(values[n], int)]


def _placeholder(kind: str, config: Any, signature: Signature) -> int | None:
    """Return the token id that stands for an image or a sound; None if there is none.

    Chameleon and Emu3 name it in a map from tokens to their ids.
    """
    by_token = getattr(config, "vocabulary_map", None) or {}
    placeholder = _first(config, _PLACEHOLDERS[kind])
    if placeholder is None and kind == "image":
        placeholder = by_token.get("<image>", _FILLER if IMAGE_PLACES in signature.names else None)
    return placeholder


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
