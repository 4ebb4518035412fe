"""Tiny configs of any kind: all widths of a config divided by one number, all images by another.

What ties the sizes of a config together is nearly always a sum or a product with a number of heads, groups or
stages. It holds still where every width is divided by the same number and the counts stay. So no table says what
belongs together: a name tells only whether a number is a width, and a name that is none of the others is one. Which
divisor a class takes is for jobs.auto to find out. This module uses neither torch nor transformers.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from samebits_probe.model import shrink

Config = shrink.Config


DIVISORS = (
    *((8, 4), (8, 2), (8, 1), (16, 1), (16, 4), (4, 1), (4, 4), (8, 8)),
    *((8, 16), (16, 16), (4, 8), (2, 1), (2, 4), (2, 16), (1, 8), (1, 1)),
)
"""Of the dimensions of heads, and of their number; the widths are divided by both. With the first ones a head has 8 or 16."""
_NARROW = 16
"""A plan that makes a hidden size smaller than that comes late."""
_ROTATED = 4
"""A head whose halves are rotated by row and column has a multiple of it."""
_FRACTIONS = ("rotary_pct", "partial_rotary_factor", "rope_pct")
"""How much of each head is rotated."""
_MIN_WIDTH = 24
"""A smaller number is a count, a factor or a dimension that is small enough."""
_STEP = 4
"""Of a width that does not divide: products of experts take whole groups of 16 bytes."""
_LAYERS = 3
_PER_STAGE = 2
_POSITIONS = 128
_WINDOW = 16
"""Shorter than the prompt past the window, which has at least 40 tokens."""
_MIN_IMAGE = 32
_LARGE_IMAGE, _MOST_ZOOM = 512, 64

_NOT_WIDTH = re.compile(
    r"vocab|token|(^|_)ids?$|ind(ex|ices|exes)$|idx|id2label|label2id|position|length|seq_len|max_|window|chunk"
    r"|stride|kernel|rate$|hop|frame|bins|buckets|distance|image_size|patch(?!_embeds_hidden)|resolution|crop|theta|base$|offset"
    r"|points|cost|coeff|layers?$|depth|blocks|heads|experts|groups|top_?k|temperature|temporal|_num_|mel"
    r"|pooling|context|rope|scaling|version|seed|pinpoints|scale|ratios?$|factor|padding|dilat|divisor|interval"
    r"|pattern|reduction|class_num|num_classes|level|block_size|min_|limit|speakers|steps|period|ignore|queries"
    r"|feat_sizes|feature_sizes|background_size|bucket|extent|lags|cardinal|input_size|n_fft|codebook_size"
    r"|input_(feat|dim)|model_in_dim|spec_size|feature_projection_input_dim|spectrogram|mask_(time|feature)|size_divis|bottleneck_conf"
)
_HEAD_DIM = re.compile(
    r"\w*head_(dim|size)|\w*d_head|d_kv|kv_channels|dim_head|rotary_dim|query_pre_attn_scalar|\w*state_size|d_state|\w*rope_section"
)
_COUNT_OF_HEADS = re.compile(r"\w*(num|n)_(\w+_)?heads?(_\w+)?|\w*attention_heads|\w*_heads")
_COUNT = re.compile(r"(num|n)_(?!pos_feats|filters|inner|embd|features$)\w+|index_n_heads")
_IMAGE = re.compile(
    r"(\w+_)?(image|input|crop|pretrain_image)_size|resolution|\w*feat_sizes|\w*feature_sizes|img_size"
)
_IMAGE_TOKENS = re.compile(
    r"(image|vision|mm|num_image|soft)\w*(tokens?|seq)\w*(_per_image|_len(gth)?|tokens)"
)
_POSITION_COUNT = re.compile(
    r"max_position_embeddings|n_positions|max_sequence_length|seq_length|n_ctx|max_\w+_positions|context_length"
)
_WINDOWS = re.compile(
    r"sliding_window(_size)?|attention_window(_size)?|window_size|local_attention|attention_chunk_size|index_topk"
    r"|(mamba_)?chunk_size"
)
"""Also the chunks of a state-space scan: one prompt covers several of them, and a scan of 256 tokens takes minutes."""
_INTERVAL = re.compile(r"\w*(interval|pattern|period|sparse_step|every_n\w*|freq(uency)?)")
_TAPS = re.compile(r"intermediate_layers?_ind(ic|ex)es|deepstack_\w*ind(ic|ex)es")
"""Layers whose outputs are used, too: as many as there are, or what takes them has the wrong width."""
_SELECTED = re.compile(r"vision_(feature|select)_layers?")
_DEPTHS = frozenset(
    {"depths", "num_blocks_per_stage", "layer_depths", "blocks_per_stage", "stage_numb_of_layers"}
    | {"num_block_repeats"}
)
_BLOCKS = re.compile(r"\w*attention_blocks")
"""Blocks by their numbers, counted over all stages."""
_GROWTH = re.compile(r"(depth|width)_coefficient")
"""Factors of all depths and widths of a network."""
_QUERIES = re.compile(r"\w*(num_queries|num_query_tokens|n_latents)")
_MOST_QUERIES = 12
_KINDS = re.compile(r"\w*(layer_types|layers_block_type|layer_type|block_types?|layers?_pattern)")
_BIAS = re.compile(r"(\w+_)?bias|use_bias|\w*qkv_bias")
_NEUTRAL = re.compile(r"\w*(multiplier|scaling|scale)\w*")
_EPSILON = re.compile(r"\w*(norm|layernorm|rms)\w*_eps(ilon)?|eps(ilon)?")
_THETA = re.compile(r"\w*rope_theta|rotary_emb(edding)?_base|theta")
_HALVED, _STAGES = "upsample_initial_channel", "upsample_rates"
"""Channels of a vocoder: each of its stages has half as many as the one before it."""


_NO_WIDTHS = (_HEAD_DIM, _IMAGE, _NEUTRAL)


class Scaled(NamedTuple):
    """One way to make a config smaller."""

    name: str
    config: Config
    divisor: int
    """Of widths."""


EXTRAS: dict[str, Callable[[Config], None]] = {}
"""What a config is given so that no default hides a defect; each can be left out where a class refuses it."""


def plans(config: Config, multiple: int = 1) -> Iterator[Scaled]:
    """Yield smaller configs, the one with the likeliest divisors first; widths are made multiples of a number."""
    zoom = _zoom(config)
    for (dims, heads), of_image in (
        *((d, zoom) for d in _divisors(config)),
        *((d, 1) for d in _divisors(config)[:3] if zoom > 1),
    ):
        smaller = copy.deepcopy(config)
        _divide(smaller, dims, heads, of_image)
        if multiple > 1:
            _widen(smaller, config, multiple)
        for part in parts(smaller):
            shorten(part)
            shrink.fewer_experts(part)
            _count_image_tokens(part)
            _whole_windows(part)
        _count_queries(smaller)
        _keep_within(smaller)
        _meet_text(smaller)
        shrink.fewer_tokens(smaller)
        name = f"heads by {heads}, their dimensions by {dims}, images by {of_image}"
        yield Scaled(name, smaller, dims * heads)


def _meet_text(config: Config) -> None:
    """Make patches of an image as wide as the text's tokens: defaults of the two parts may be of other models.

    Where a part has ``embed_dim`` for its own width, ``hidden_size`` is that of the patches it returns. Ovis2 has the
    text's width twice.
    """
    widths = {shrink.hidden_size(part) for part in parts(config) if "vocab_size" in part}
    widths.discard(0)
    for part in parts(config) if len(widths) == 1 else ():
        is_own = "embed_dim" in part and "spatial_merge_size" in part
        for name in ("out_hidden_size", *(["hidden_size"] if is_own else [])):
            if "vocab_size" not in part and shrink.is_size(part.get(name)):
                part[name] = next(iter(widths))
    text = shrink.hidden_size(config.get("text_config") or {})
    if text and shrink.is_size(config.get("hidden_size")):
        config["hidden_size"] = text


def _divisors(config: Config) -> list[tuple[int, int]]:
    """Return the divisors in their order; stages have numbers of heads of their own, which stay."""
    all_parts = [*parts(config)]
    staged = any(
        shrink.HEADS.fullmatch(name) and isinstance(value, (list, tuple))
        for part in all_parts
        for name, value in part.items()
    )
    least = min((n for n in map(shrink.hidden_size, all_parts) if n), default=0)
    chosen = [pair for pair in DIVISORS if pair[1] == 1 or not staged]
    dims = {d for part in all_parts if "vocab_size" not in part and (d := _head_dim(part))}
    ordered = sorted(
        chosen,
        key=lambda pair: (
            0 < least < _NARROW * pair[0] * pair[1],
            any(n % (_ROTATED * pair[0]) for n in dims),
        ),
    )

    def splits(pair: tuple[int, int]) -> bool:
        return any(_turns_half_a_pair(part, pair[0]) for part in all_parts)

    if not splits(ordered[0]):
        return ordered
    return sorted(ordered, key=lambda pair: (splits(pair), -pair[0] * pair[1]))


def _turns_half_a_pair(part: Config, divisor: int) -> bool:
    """Return True if the fraction of a head that is rotated is an odd number of dimensions, as of no real model.

    Releases make different things of such a head: gpt_neox of 4.48 broadcasts it.
    """
    own = part.get("head_dim", 0)
    dims = int(own) if shrink.is_size(own) else _head_dim(part)
    ropes = [v for n, v in part.items() if n.startswith("rope_") and isinstance(v, dict)]
    holders = [part, *(each for rope in ropes for each in parts(rope))]
    values = [each.get(name) for each in holders for name in _FRACTIONS]
    return any(int(dims // divisor * f) % 2 for f in values if isinstance(f, float))


def _head_dim(part: Config) -> int:
    """Return the dimension of a part's heads that follows from its width; 0 if none does."""
    heads = next((v for n, v in part.items() if shrink.HEADS.fullmatch(n) and shrink.is_size(v)), 0)
    own = part.get("embed_dim", 0)
    width = own if shrink.is_size(own) else shrink.hidden_size(part)
    return int(width) // int(heads) if heads else 0


def parts(config: Config) -> Iterator[Config]:
    """Yield a config and all configs in it."""
    if all(isinstance(name, str) for name in config):
        yield config
    for name, value in config.items():
        if isinstance(value, dict) and not _is_map(name):
            yield from parts(value)


def _count_image_tokens(config: Config) -> None:
    """Let a model that pools the patches of an image pool two by two: its default may not fit its default image."""
    vision = config.get("vision_config")
    if not isinstance(vision, dict) or "mm_tokens_per_image" not in config:
        return
    size, patch = vision.get("image_size"), vision.get("patch_size")
    if isinstance(size, int) and isinstance(patch, int):
        config["mm_tokens_per_image"] = max(size // patch // 2, 1) ** 2


def _whole_windows(part: Config) -> None:
    """Give an image whole windows of patches: RF-DETR cuts it into four by four, and its default does not fit."""
    size, patch, windows = (part.get(n) for n in ("image_size", "patch_size", "num_windows"))
    if isinstance(size, int) and isinstance(patch, int) and isinstance(windows, int) and windows:
        step = patch * windows
        part["image_size"] = max(size // step, 1) * step


def _count_queries(config: Config) -> None:
    """Let a map from numbers of patches to numbers of queries, as Aria's, have the patches of its image."""
    size, patch = (config.get("vision_config", {}).get(n) for n in ("image_size", "patch_size"))
    for name, value in config.items():
        if not isinstance(value, dict) or not value:
            continue
        are_sizes = all(map(shrink.is_size, (*value, *value.values())))
        if are_sizes and isinstance(size, int) and isinstance(patch, int):
            config[name] = {(size // patch) ** 2: min(_MOST_QUERIES, *value.values())}


def _keep_within(config: Config) -> None:
    """Let what names layers of a vision tower by their numbers name those that it still has, in their order."""
    towers = [v for part in parts(config) for n, v in part.items() if n == "vision_config"]
    counts = [
        v
        for part in towers
        if isinstance(part, dict)
        for n, v in part.items()
        if shrink.LAYERS.fullmatch(n) and shrink.is_size(v)
    ]
    count = max(counts, default=0)
    for part in parts(config) if count else ():
        for name, value in part.items():
            if not _SELECTED.fullmatch(name):
                continue
            if isinstance(value, int):
                part[name] = max(min(value, count), -count)
            elif isinstance(value, (list, tuple)) and any(v > count for v in value):
                ranks = sorted({*value}, reverse=True)
                part[name] = [max(count - ranks.index(v), 0) for v in value]


def _is_map(name: str) -> bool:
    return name in {"id2label", "label2id", "vocabulary_map", "generation_config"}


def _zoom(config: Config) -> int:
    """Return the divisor of images with which each is still a whole number of patches, and of two at least."""
    pairs = [pair for part in parts(config) for pair in _images(part)]

    def fits(zoom: int) -> bool:
        return all(
            size % (zoom * patch) == 0 and size // zoom >= max(2 * patch, _MIN_IMAGE)
            for size, patch in pairs
        )

    zoom = next((n for n in (16, 8, 4, 2) if pairs and fits(n)), 1)
    if max((size // zoom for size, _ in pairs), default=0) <= _LARGE_IMAGE:
        return zoom
    return next(filter(fits, range(_MOST_ZOOM, 1, -1)), zoom)  # Pixtral has 110 patches of 14


def _images(part: Config) -> Iterator[tuple[int, int]]:
    patch = part.get("patch_size")
    patch = patch[0] if isinstance(patch, (list, tuple)) and patch else patch
    for name, value in part.items():
        if _IMAGE.fullmatch(name):
            for size in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(size, int) and size >= _MIN_IMAGE:
                    yield size, patch if isinstance(patch, int) and patch else 1


def _divide(part: Config, dims: int, heads: int, zoom: int) -> None:
    width = shrink.hidden_size(part)
    for name, value in part.items():
        if isinstance(value, dict):
            if not _is_map(name) and all(isinstance(key, str) for key in value):
                _divide(value, dims, heads, zoom)
        elif _HEAD_DIM.fullmatch(name):
            part[name] = _divided(value, dims, 1)
        elif shrink.HEADS.fullmatch(name) or _COUNT_OF_HEADS.fullmatch(name):
            part[name] = _divided(value, heads, 2)
        elif _IMAGE.fullmatch(name):
            part[name] = _divided(value, zoom, _MIN_IMAGE // 2)
        elif _IMAGE_TOKENS.fullmatch(name):
            part[name] = _divided(value, zoom**2, 1)
        elif name == _HALVED and shrink.is_size(value):
            least = min(value, 2 << len(part.get(_STAGES) or ()))
            part[name] = max(value // (dims * heads), least)
        elif _is_width(name) or (name.endswith("groups") and value == width):
            part[name] = _divided(value, dims * heads, _MIN_WIDTH, _STEP)


def _widen(smaller: Config, config: Config, multiple: int) -> None:
    """Make divided widths multiples of a number that the code has, such as that of the groups of a GroupNorm."""
    for part, before in zip(parts(smaller), parts(config), strict=True):
        for name, value in part.items():
            if _is_width(name) and not any(n.fullmatch(name) for n in _NO_WIDTHS):
                part[name] = _upwards(value, before[name], multiple)


def _upwards(value: Any, before: Any, multiple: int) -> Any:
    if isinstance(value, (list, tuple)):
        return [_upwards(entry, old, multiple) for entry, old in zip(value, before, strict=True)]
    if not shrink.is_size(before) or before < _MIN_WIDTH:
        return value
    return -(-value // multiple) * multiple


def _is_width(name: str) -> bool:
    return not _NOT_WIDTH.search(name) and not _COUNT.fullmatch(name)


def _divided(value: Any, divisor: int, least: int, step: int = 1) -> Any:
    """Return a number or numbers divided; what does not divide becomes a multiple of a step."""
    if isinstance(value, (list, tuple)):
        return [_divided(entry, divisor, least, step) for entry in value]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        return value
    if value % divisor:
        return max(value // divisor // step * step, step)
    return value // divisor


def shorten(part: Config) -> None:
    """Keep a few layers, of every kind that is named, and few positions; a period becomes two."""
    _renumber_blocks(part)
    for name, value in part.items():
        if _INTERVAL.fullmatch(name) and isinstance(value, int) and value > 2:
            part[name] = 2
            offset = name.replace("period", "offset")
            if offset != name and shrink.is_size(part.get(offset)):
                part[offset] %= 2
        elif name in _DEPTHS and isinstance(value, (list, tuple)):
            part[name] = [min(v, _PER_STAGE) if isinstance(v, int) else v for v in value]
        elif _GROWTH.fullmatch(name) and isinstance(value, float):
            part[name] = min(value, 1.0)
        elif _QUERIES.fullmatch(name) and shrink.is_size(value):
            part[name] = min(value, _MOST_QUERIES)
        elif "vocab_size" in part and _WINDOWS.fullmatch(name) and shrink.is_size(value):
            part[name] = min(value, _WINDOW)
        elif _POSITION_COUNT.fullmatch(name) and shrink.is_size(value):
            part[name] = min(value, _POSITIONS)
    counts = [v for n, v in part.items() if shrink.LAYERS.fullmatch(n) and shrink.is_size(v)]
    count = max(counts, default=0)
    stages = [v for n, v in part.items() if n in _DEPTHS and isinstance(v, (list, tuple))]
    if not count or any(len(stage) == count for stage in stages):
        return
    outs = part.get("out_indices") or part.get("backbone_out_indices") or ()
    taps = {n: [*v] for n, v in part.items() if _TAPS.fullmatch(n) and isinstance(v, (list, tuple))}
    layers = _kept(part, count, max(map(len, (outs, *taps.values()))))
    shrink.keep_layers(part, {count: layers})
    part |= {n: [*range(len(layers) - len(v), len(layers))] for n, v in taps.items()}
    if part.get("backbone_out_indices"):  # DPT's part has no names of stages
        part["backbone_out_indices"] = [*range(len(layers) - len(outs), len(layers))]
    for name, value in part.items():
        if isinstance(value, dict) and value and all(str(key).isdigit() for key in value):
            part[name] = value if _is_map(name) else _by_layer(value, layers)
    if "stage_names" in part:
        left = next(v for n, v in part.items() if shrink.LAYERS.fullmatch(n) and shrink.is_size(v))
        part["out_indices"] = [*range(left + 1 - len(outs), left + 1)]
        part["stage_names"] = ["stem", *(f"stage{number + 1}" for number in range(left))]
        part["out_features"] = [part["stage_names"][index] for index in part["out_indices"]]


def _renumber_blocks(part: Config) -> None:
    """Let numbers of blocks name blocks of the same stages once the stages are shorter: of those that go, the last that stays."""
    depths = next((v for n, v in part.items() if n in _DEPTHS and isinstance(v, (list, tuple))), ())
    if not all(isinstance(depth, int) for depth in depths):
        return
    new: list[int] = []
    for depth in depths:
        first = new[-1] + 1 if new else 0
        new += [first + min(index, _PER_STAGE - 1) for index in range(depth)]
    for name, value in part.items():
        if _BLOCKS.fullmatch(name) and isinstance(value, (list, tuple)) and new:
            part[name] = sorted({new[index] for index in value if index < len(new)})


def _by_layer(values: dict[Any, Any], kept: tuple[int, ...]) -> dict[Any, Any]:
    """Return what a layer has of its own, by the layer's new index."""
    kind = type(next(iter(values)))
    return {kind(new): values[kind(old)] for new, old in enumerate(kept) if kind(old) in values}


def _kept(part: Config, count: int, n_outs: int) -> tuple[int, ...]:
    columns = [
        [str(kind) for kind in value]
        for name, value in part.items()
        if _KINDS.fullmatch(name) and isinstance(value, (list, tuple)) and len(value) == count
    ]
    layers = shrink.kept_layers([*zip(*columns, strict=True)]) if columns else ()
    return (
        layers if len(layers) > max(1, n_outs) else tuple(range(min(max(_LAYERS, n_outs), count)))
    )


def with_extras(config: Config, names: Iterable[str]) -> Config:
    """Return a copy of a config with what these extras change."""
    changed = copy.deepcopy(config)
    for name in names:
        EXTRAS[name](changed)
    return changed


def _extra(function: Callable[[Config], None]) -> Callable[[Config], None]:
    EXTRAS[function.__name__.lstrip("_").replace("_", " ")] = function
    return function


@_extra
def _fewer_key_value_heads(config: Config) -> None:
    for part in parts(config):
        heads = part.get("num_attention_heads")
        if not isinstance(heads, int) or heads % 2:
            continue
        if part.get("num_key_value_heads", 0) in {heads, None}:
            part["num_key_value_heads"] = heads // 2


@_extra
def _biases(config: Config) -> None:
    for part in parts(config):
        for name, value in part.items():
            if _BIAS.fullmatch(name) and value is False:
                part[name] = True


@_extra
def _other_constants(config: Config) -> None:
    """Move numbers that a release could forget to read without a change at the default."""
    for part in parts(config):
        for name, value in part.items():
            if _THETA.fullmatch(name) and isinstance(value, (int, float)) and value > 100:
                part[name] = type(value)(value / 2)  # 5.x refuses a float for an int
            elif isinstance(value, float) and value == 1.0 and _NEUTRAL.fullmatch(name):
                part[name] = 1.25
            elif isinstance(value, float) and _EPSILON.fullmatch(name) and 0 < value < 1e-4:
                part[name] = value * 3


@_extra
def _no_end(config: Config) -> None:
    """Let nothing end a text, so that every greedy token is compared."""
    for part in parts(config):
        is_of_sounds = "ctc_loss_reduction" in part  # 5.x refuses None there, and nothing generates
        if part.get("eos_token_id") is None or is_of_sounds:
            continue
        if part.get("decoder_start_token_id") is None:
            part["eos_token_id"] = None
