"""Shapes that an image, a video or a sound may have as arguments of forward, from the config."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from samebits_probe.model import forks
from samebits_probe.model.choice import IMAGE_NAMES, Signature
from samebits_probe.model.inputs import seeded_numbers

Tensors = dict[str, torch.Tensor]
Beside = tuple[tuple[str, tuple[int, ...], tuple[int, ...] | float], ...]
"""For each further argument its name, the shape of one row, and its values, or the one value of all."""

FEATURES = "input_features"
VIDEOS = ("pixel_values_videos", "pixel_values_video", "videos")
"""Parameters for a video."""
_GRID = (2, 3)
"""Rows and columns of merged patches where the number of patches is free; unequal, so that neither passes for the other."""
_PLACES = ("pixel_position_ids", "image_position_ids")
_TILES = 5
_STACKED = 4
"""Frames that are one vector where no field says how many: a delta and a stack of two each, as of Granite Speech."""
_FRAMES = 2
"""Frames of a video, or its temporal patches: the fewest of which the order can be wrong."""
_FRAMES_OF_PATCHES = ("temporal_patch_size", "patch_temporal")
_SECONDS = 1.5
"""Seconds between temporal patches: not 1, the default of forwards that take them, and no whole number."""


class Layout(NamedTuple):
    """The arguments for one image, video or sound per row, by name and shape of all rows."""

    main: str
    shape: tuple[int, ...]
    """Shape of one row; its first size counts rows where it is joined."""
    joined: bool = False
    """True if the rows are joined along the first dimension, as patches of Qwen2-VL are."""
    beside: Beside = ()

    are_patches: bool = False
    """True for the patches of an image in a row, one for each placeholder, as Fuyu's are."""
    runs: int = 1
    """Runs of placeholders for one video: a time stands before each frame of Qwen3-VL."""
    more: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """The name and the shape of one row of further pixels, as DeepSeek-VL's of a higher resolution."""

    def tensors(self, name: str, rows: int) -> Tensors:
        """Return the arguments; floats depend on the name alone."""
        shape = (rows * self.shape[0], *self.shape[1:]) if self.joined else (rows, *self.shape)
        tensors = {self.main: seeded_numbers(name, self.main, shape)}
        tensors |= {key: seeded_numbers(name, key, (rows, *own)) for key, own in self.more}
        for argument, own, values in self.beside:
            filled = torch.tensor(values) if isinstance(values, tuple) else torch.full(own, values)
            tensors[argument] = filled.reshape(1, *own).repeat(rows, *[1] * len(own))
        return tensors

    def times(self, count: int) -> Layout:
        """Return the layout of several images per row, along the first size of a row."""
        beside = tuple(
            (
                name,
                (count * own[0], *own[1:]),
                count * values if isinstance(values, tuple) else values,
            )
            for name, own, values in self.beside
        )
        more = tuple((name, (count * own[0], *own[1:])) for name, own in self.more)
        return self._replace(
            shape=(count * self.shape[0], *self.shape[1:]), beside=beside, more=more
        )


def image_argument(signature: Signature) -> str:
    """Return the parameter of forward that takes images; '' if there is none."""
    return next((name for name in IMAGE_NAMES if name in signature.names), "")


def video_argument(signature: Signature) -> str:
    """Return the parameter of forward that takes videos; '' if there is none."""
    return next((name for name in VIDEOS if name in signature.names), "")


def layouts_of(kind: str, config: Any, signature: Signature) -> Iterator[Layout]:
    """Yield the layouts to try, the likeliest first."""
    layouts = {"image": _image_layouts, "video": _video_layouts, "audio": _sound_layouts}
    yield from layouts[kind](config, signature)


def _video_layouts(config: Any, signature: Signature) -> Iterator[Layout]:
    video = video_argument(signature)
    if "video_grid_thw" not in signature.names:
        vision = part(config, "vision")
        own = any_number(vision, ("num_frames", "frames_per_clip")) or _FRAMES
        for frames in dict.fromkeys((_FRAMES, own)):
            yield Layout(video, (frames, _channels(vision), *image_size(vision, config)))
        return
    names = signature.names & {"second_per_grid_ts", "video_second_per_grid"}
    seconds = tuple((name, (), _SECONDS) for name in names)
    for layout in patch_layouts(video, "video_grid_thw", _FRAMES, config, signature):
        timed = layout._replace(beside=layout.beside + seconds)
        # a forward that wants a run for each frame may take one for all, and place the others as text
        yield timed._replace(runs=_FRAMES)
        yield timed


def patch_layouts(
    argument: str, grid_argument: str, steps: int, config: Any, signature: Signature
) -> Iterator[Layout]:
    """Yield layouts of patches in a row, with the grid from which they are."""
    vision = part(config, "vision")
    channels, patch = _channels(vision), _patch(vision)
    merges_of = ("spatial_merge_size", "merge_size")
    merge = any_number(vision, merges_of) or number(config, "spatial_merge_size") or 2
    frames = any_number(vision, _FRAMES_OF_PATCHES) or 1
    grid = (steps, _GRID[0] * merge, _GRID[1] * merge)
    beside: Beside = ((grid_argument, (3,), grid),)
    if (merges := grid_argument.replace("grid_thw", "merge_sizes")) in signature.names:
        beside = (*beside, (merges, (), merge))
    for row in ((channels * frames * patch**2,), (channels * patch**2,), (channels, patch, patch)):
        yield Layout(argument, (math.prod(grid), *row), joined=True, beside=beside)
    yield Layout(argument, (math.prod(grid), channels, patch, patch), beside=beside)
    # one square for each token of the text, which the grid counts, as Inkling 2's
    tokens, side = (steps, *_GRID), patch * merge
    square = (math.prod(tokens), side, side, channels)
    yield Layout(argument, square, joined=True, beside=((grid_argument, (3,), tokens),))


def _image_layouts(config: Any, signature: Signature) -> Iterator[Layout]:
    vision, pixels = part(config, "vision"), image_argument(signature)
    channels, patch = _channels(vision), _patch(vision)
    if "image_grid_thw" in signature.names:
        yield from patch_layouts(pixels, "image_grid_thw", 1, config, signature)
        return
    if places := next((n for n in _PLACES if n in signature.names), ""):
        yield from _placed_patches(pixels, places, vision)
    height, width = image_size(vision, config)
    image = (channels, height, width)
    sizes = (("image_sizes", (2,), (height, width)),) if "image_sizes" in signature.names else ()
    if "aspect_ratio_ids" in signature.names:
        tiles = any_number(vision, ("max_num_tiles",)) or 4
        ratios = (
            ("aspect_ratio_ids", (1,), 1),
            ("aspect_ratio_mask", (1, tiles), (1, *[0] * (tiles - 1))),
        )
        yield Layout(pixels, (1, tiles, *image), beside=ratios)
        return
    tiles = max(_TILES, 1 + _largest_grid(config, height * width))
    others = _other_images(config, signature)
    for beside in dict.fromkeys(((), sizes)):
        for images in ((), (1,), (tiles,)):
            more = tuple((name, (*images, *other)) for name, other in others)
            yield Layout(pixels, (*images, *image), beside=beside, more=more)
    if frames := any_number(vision, _FRAMES_OF_PATCHES):  # one block for each token, as Inkling's
        blocks = (math.prod(_GRID), frames, patch, patch, channels)
        yield Layout(pixels, blocks, joined=True)
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


def _other_images(config: Any, signature: Signature) -> list[tuple[str, tuple[int, ...]]]:
    """Return further parameters for the image, each with the shape that a part of the config of its own gives."""
    parts = {
        name: part(config, name.replace("pixel_values", "vision")) for name in signature.listed
    }
    return [
        (name, (_channels(own), *image_size(own, config)))
        for name, own in parts.items()
        if name.endswith("_pixel_values") and own is not config
    ]


def _placed_patches(pixels: str, places: str, vision: Any) -> Iterator[Layout]:
    """Yield layouts of patches with the column and the row of each, as Gemma 4's are, and as merged as its unified model's."""
    pooled = any_number(vision, ("pooling_kernel_size",)) or 1
    merged = any_number(vision, ("model_patch_size",))
    for patch, times in ((_patch(vision), pooled), *([(merged, 1)] if merged else [])):
        rows, columns = (n * times for n in _GRID)
        grid = tuple(n for row in range(rows) for column in range(columns) for n in (column, row))
        row = (rows * columns, _channels(vision) * patch**2)
        yield Layout(pixels, row, beside=((places, (rows * columns, 2), grid),))


def _sound_layouts(config: Any, signature: Signature) -> Iterator[Layout]:
    audio = part(config, "audio")
    if audio is config:
        audio = part(config, "encoder")
    names = ("num_mel_bins", "input_feat_size", "input_dim", "mel_bins", "audio_embed_dim")
    inner = (audio, *_parts(audio))  # an encoder for the words and one for who says them
    # Gemma 4's projection is as wide as so many bins make it, and its config has no other number of them
    channels = getattr(audio, "subsampling_conv_channels", None) or (80,)
    bins = next(filter(None, (any_number(owner, names) for owner in inner)), int(channels[0]))
    positions = any_number(audio, ("max_source_positions", "max_position_embeddings"))
    masks = [n for n in ("feature_attention_mask", "input_features_mask") if n in signature.names]
    # some encoders cut a sound into windows, and take whole ones
    windows = [2 * n for owner in inner if (n := number(owner, "n_window"))]
    for length in dict.fromkeys((*windows, 2 * (positions or 50), 64)):
        # Qwen2-Audio's mask is of integers, Gemma 4's is an index and so of booleans
        kinds = [tuple((name, (length,), value) for name in masks) for value in (1, True) if masks]
        for arguments in (*kinds, ()):
            yield Layout(FEATURES, (bins, length), beside=arguments)
            yield Layout(FEATURES, (length, bins), beside=arguments)
    stacks = any_number(audio, ("subsampling_factor",)) or _STACKED
    for stacked in (any_number(audio, ("input_size",)) or bins, stacks * bins):
        yield Layout(FEATURES, (64, stacked), beside=tuple((name, (64,), 1) for name in masks))
    yield Layout(FEATURES, (1, 64, bins))


def _channels(vision: Any) -> int:
    return any_number(vision, ("num_channels", "in_channels", "in_chans")) or 3


def _patch(vision: Any) -> int:
    return any_number(vision, ("patch_size", "spatial_patch_size")) or 14


def image_size(vision: Any, config: Any) -> tuple[int, int]:
    """Return height and width of an image, from the config of its part or of the model."""
    sizes = (getattr(owner, "image_size", None) for owner in (vision, config))
    of_input = number(vision, "input_size") if hasattr(vision, "patch_size") else None  # LayoutLMv3
    of_timm = (getattr(vision, "model_args", None) or {}).get("img_size")
    size = next(filter(None, (*sizes, of_input, of_timm)), 32)
    if isinstance(size, dict):
        size = (size["height"], size["width"])
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    return int(height), int(width)


def _largest_grid(config: Any, area: int) -> int:
    """Return the most tiles into which llava_next cuts an image."""
    pinpoints = getattr(config, "image_grid_pinpoints", None) or ()
    return max((int(h) * int(w) // area for h, w in pinpoints), default=0)


def part(config: Any, kind: str) -> Any:
    """Return the part of a config that describes images or sounds, or that of its parts; the config itself without one."""
    for whole in (config, *_parts(config)):
        for name in (f"{kind}_config", *(["image_config"] if kind == "vision" else [])):
            if (part_config := getattr(whole, name, None)) is not None:
                return part_config
    return config


def _parts(config: Any) -> list[Any]:
    return [value for value in vars(config).values() if hasattr(value, "to_dict")]


def number(config: Any, name: str) -> int | None:
    """Return a field of a config that is a number; None for another one."""
    value = forks.value_of(config, name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def any_number(config: Any, names: tuple[str, ...]) -> int | None:
    """Return the first of these fields that is a number other than 0; None if none is."""
    return next((n for n in (number(config, name) for name in names) if n), None)
