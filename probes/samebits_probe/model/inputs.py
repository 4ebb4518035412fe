"""Input values of a model, each a function of a prompt's name, without random generators.

Token ids, pixel values and audio are seeded by hashes of names. model.choice decides which of them
a model gets. model.feed gives each job the bytes that were made once for all stacks.
"""

from __future__ import annotations

import functools
import hashlib
import math
import sys
from collections.abc import Collection, Mapping
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import torch

from samebits_probe.model import forks
from samebits_probe.model.choice import NotFed
from samebits_probe.model.scaling import scalings
from samebits_probe.model.shrink import UNPADDED

Prompt = dict[str, Any]

_WINDOW_FIELDS = ("sliding_window", "attention_window_size", "local_attention", "window_size")
_CHUNK = "attention_chunk_size"
_PAST = 8
"""Tokens of a prompt past a window."""
_LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
_MAX_LENGTH = 4096
"""Maximum length of a prompt that must exceed a window: a probe is not a stress test."""
_PLAIN_LENGTH = 40
"""Length of a past-window prompt for a model without a window."""
DECODER_LENGTH = 7
_FRAMES = 64
"""Frames of a sound, for a model whose config sets no number of them."""
N_CHOICES = 3
"""Choices for a multiple-choice model: another number than that of the rows of a usual batch."""


class Inputs(NamedTuple):
    """Keyword arguments of forward, the positions without padding, and the source text."""

    kwargs: dict[str, Any]
    """Tensors; of an input set constants, too."""
    real_rows: list[list[int]] | None
    text: str | None
    is_set: bool = False
    """True for an input set of the user's, and for a prompt with an image or a sound."""
    optional: tuple[str, ...] = ()
    """Those of the arguments that only some releases take or use."""
    renamed: Mapping[str, str] = MappingProxyType({})
    """Argument, as the release that chose it names it -> its name in this one, if that is another."""
    not_generated_from: tuple[str, ...] = ()
    """What generate() requires of the release that chose the inputs, and what they do not have."""


_BLOCK = hashlib.sha256().digest_size
"""Bytes that one digest gives."""


def text_config(config: Any) -> Any:
    """Return the text part of a config."""
    return getattr(config, "text_config", None) or config


def token_config(config: Any) -> Any:
    """Return the part of a config that holds the vocabulary.

    This is the text part or, if it has no vocabulary, the only other part that has one, or the decoder.
    """
    text = text_config(config)
    if vocabulary(text):
        return text
    parts = [part for part in vars(config).values() if hasattr(part, "to_dict")]
    holders = [part for part in parts if vocabulary(part)]
    if len(holders) > 1:
        # what is composed of two models generates by the second; Dia's decoder has codes of a sound
        parts = [getattr(config, name, None) for name in ("decoder", "encoder_config")]
        holders = [part for part in parts if part in holders]
    return holders[0] if len(holders) == 1 else text


def vocabulary(config: Any) -> int:
    """Return the number of token ids; 0 for a config without them."""
    if hasattr(config, "num_hash_functions"):  # Canine hashes characters
        return sys.maxunicode
    size = getattr(config, "vocab_size", 0)
    return size if isinstance(size, int) else 0


def past_window(config: Any) -> int:
    """Return a length past the sliding window, and past chunks of attention and the limit of a rope that are near enough.

    A model with learned positions gets at most as many as it has; rotary ones are unlimited.
    """
    fields = [field for field in _WINDOW_FIELDS if _is_window(config, field)]
    windows = [value for field in fields for value in forks.values_of(config, field)]
    starts = [*forks.values_of(config, _CHUNK), *(rope.limit for rope in scalings(config))]
    near = [n for n in starts if isinstance(n, int) and n + _PAST <= _MAX_LENGTH]
    window = max((w for w in (*windows, *near) if isinstance(w, int) and w > 0), default=0)
    length = max(window + _PAST, _PLAIN_LENGTH)
    if forks.rope_settings(config).get("rope_theta") is not None:
        return min(length, _MAX_LENGTH)
    lengths = [forks.value_of(config, field) for field in _LENGTH_FIELDS]
    max_positions = min((n for n in lengths if isinstance(n, int) and n > 0), default=_MAX_LENGTH)
    return min(length, max_positions - 2, _MAX_LENGTH)


def _is_window(config: Any, field: str) -> bool:
    """Return False for another name of a field that is none: ``window_size`` of Bark is its number of positions."""
    return "window" in getattr(config, "attribute_map", {}).get(field, field)


def stretched(ids: list[int], length: int) -> list[int]:
    """Return ``ids`` repeated up to ``length``; unchanged if they are long enough."""
    repeats = -(-length // max(len(ids), 1))
    return (ids * repeats)[:length] if len(ids) < length else ids


def seeded_ids(name: str, length: int, config: Any, reserved: Collection[int] = ()) -> list[int]:
    """Return ``length`` token ids that depend only on ``name`` and avoid the special ones.

    ``reserved`` are further ids to avoid, such as the placeholder of an image.
    """
    if not (size := vocabulary(config)):
        raise NotFed("the config has no vocab_size to choose token ids from")
    # labels are ids, too, and logits may have fewer than the embeddings, as Inkling 2's
    size = min(size, forks.value_of(config, UNPADDED) or size)
    low = min(10, size // 4)
    ids = [low + _hash_number(f"{name}:{i}") % max(size - low - 1, 1) for i in range(length)]
    return [
        next((n for n in chain(range(i, size), range(low, i)) if n not in reserved), i) for i in ids
    ]


def _hash_number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def padded(
    rows: list[list[int]], pad: int, *, masked: bool, side: Literal["left", "right"] = "left"
) -> Inputs:
    """Return rows of token ids as one tensor, padded on one side, with their mask.

    A single row has no padding, and a mask only if ``masked``.
    """
    width = max(len(row) for row in rows)

    def filled(row: list[int], value: int) -> list[int]:
        gap = [value] * (width - len(row))
        return gap + row if side == "left" else row + gap

    kwargs = {"input_ids": torch.tensor([filled(row, pad) for row in rows])}
    if len(rows) > 1 or masked:
        kwargs["attention_mask"] = torch.tensor([filled([1] * len(row), 0) for row in rows])
    real_rows = [[width - len(row), width] if side == "left" else [0, len(row)] for row in rows]
    return Inputs(kwargs, real_rows if len(rows) > 1 else None, None)


def choices(name: str, lengths: list[int], config: Any) -> dict[str, torch.Tensor]:
    """Return ids and mask of :data:`N_CHOICES` choices per row, [rows, choices, length]."""
    rows = [
        seeded_ids(f"{name}[{i}]:choice {n}", length, config)
        for i, length in enumerate(lengths)
        for n in range(N_CHOICES)
    ]
    kwargs = padded(rows, pad_id(config), masked=True).kwargs
    return {key: tensor.reshape(len(lengths), N_CHOICES, -1) for key, tensor in kwargs.items()}


def pad_id(config: Any) -> int:
    """Return the id that pads the rows of a batch."""
    pad = getattr(config, "pad_token_id", None)
    return pad if isinstance(pad, int) and pad >= 0 else 0


def decoder_ids(name: str, config: Any, length: int) -> list[int]:
    """Return the first ids of a decoder: its start token, and seeded ones."""
    start = getattr(config, "decoder_start_token_id", None)
    ids = seeded_ids(f"{name}:decoder", length - 1, token_config(config))
    return [start if isinstance(start, int) else 0, *ids]


def decoder_tokens(name: str, config: Any, length: int, rows: int = 1) -> torch.Tensor:
    """Return decoder ids for some rows, int64.

    Shapes: [rows, length]; of MusicGen, whose codebooks are rows, [rows * codebooks, length]; of Dia, which has channels,
    [rows, length, channels].
    """
    codebooks = getattr(getattr(config, "decoder", None), "num_codebooks", None)
    channels = getattr(getattr(config, "decoder_config", None), "num_channels", None)
    streams = [f"{name}:{n}" if n else name for n in range(codebooks or channels or 1)]
    ids = torch.tensor([decoder_ids(stream, config, length) for stream in streams])
    return ids.T.repeat(rows, 1, 1) if channels else ids.repeat(rows, 1)


def decoder_length(width: int) -> int:
    """Return a length for decoder ids; never ``width``, so that the two token axes differ."""
    return DECODER_LENGTH + (width == DECODER_LENGTH)


def values(name: str, argument: str, config: Any, rows: int = 1) -> torch.Tensor:
    """Return seeded float32 numbers in [-1, 1) for an image or a sound."""
    return seeded_numbers(name, argument, (rows, *_shape(argument, config)))


def seeded_numbers(name: str, argument: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Return float32 numbers in [-1, 1) that depend on the two names and the shape alone."""
    if not (count := math.prod(shape)):
        return torch.zeros(shape)
    words = hash_words(f"{name}:{argument}", 4 * count)
    numbers = torch.frombuffer(words, dtype=torch.int32)[:count]
    # 24 bits over a power of two: exact in float32 on every machine
    return ((numbers >> 8).to(torch.float32) / float(1 << 23)).reshape(shape)


def hash_words(name: str, n_bytes: int) -> bytearray:
    """Return at least ``n_bytes`` bytes that depend on a name alone."""
    words, n_blocks = _known_words(name), -(-n_bytes // _BLOCK)
    for block in range(len(words) // _BLOCK, n_blocks):
        words += hashlib.sha256(f"{name}:{block}".encode()).digest()
    return words[: n_blocks * _BLOCK]


@functools.lru_cache(maxsize=8)
def _known_words(_name: str) -> bytearray:
    """Return the buffer of a name, which hash_words extends: hundreds of trials need the bytes of one image."""
    return bytearray()


def in_dtype(kwargs: dict[str, Any], dtype: torch.dtype | None) -> dict[str, Any]:
    """Return arguments of forward with floating-point tensors in ``dtype``; None: as they are."""
    if dtype is None:
        return kwargs
    return {name: _cast(dtype, value) for name, value in kwargs.items()}


def _cast(dtype: torch.dtype, value: Any) -> Any:
    """Return a value with its floats in a dtype; labels of images are lists of tensors or of dicts."""
    if isinstance(value, list):
        return [_cast(dtype, part) for part in value]
    if isinstance(value, dict):
        return {name: _cast(dtype, part) for name, part in value.items()}
    return value.to(dtype) if torch.is_tensor(value) and value.is_floating_point() else value


def tensors_of(kwargs: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Return the arguments of forward that are tensors."""
    return {name: value for name, value in kwargs.items() if torch.is_tensor(value)}


def has_media(kwargs: dict[str, Any]) -> bool:
    """Return True if forward is fed an image, a video, a sound or other numbers, and not token ids alone."""
    return any(tensor.is_floating_point() for tensor in tensors_of(kwargs).values())


def n_rows(kwargs: dict[str, Any]) -> int:
    """Return the number of rows of the first tensor; 1 for one without dimensions."""
    first = next(iter(tensors_of(kwargs).values()))
    return int(first.shape[0]) if first.ndim else 1


def may_repeat_rows(kwargs: dict[str, Any]) -> bool:
    """Return True if all tensors have the same number of rows, so that a batch can be repeated."""
    tensors = tensors_of(kwargs).values()
    return all(tensor.ndim and tensor.shape[0] == n_rows(kwargs) for tensor in tensors)


def each_row_twice(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs with their rows repeated once."""
    return kwargs | {n: torch.cat([tensor, tensor]) for n, tensor in tensors_of(kwargs).items()}


def token_width(kwargs: dict[str, Any]) -> int:
    """Return the length of the token axis that the padding is in."""
    for name in ("input_ids", "attention_mask"):
        if name in kwargs and kwargs[name].ndim > 1:
            return int(kwargs[name].shape[1])
    return 0


def _shape(argument: str, config: Any) -> tuple[int, ...]:
    """Return the shape of one row."""
    if argument == "pixel_values":
        vision = _image_config(config)
        image = (int(getattr(vision, "num_channels", 3)), *image_size(config))
        images = getattr(vision, "num_frames", 2 if _matches_two_images(config) else None)
        return (images, *image) if isinstance(images, int) else image
    if argument == "input_features":
        return _sound_shape(config)
    if argument == "input_values" and hasattr(config, "frequency_stride"):
        return int(config.max_length), int(config.num_mel_bins)  # a spectrogram, as AST has it
    if argument == "input_values":
        codec = _codec_of(config)
        return (4000,) if codec is None else (int(getattr(codec, "audio_channels", 1)), 4000)
    raise NotFed(f"no rule to make {argument}")


def _codec_of(config: Any) -> Any:
    """Return the config of a codec, whose sounds have a dimension of channels; None for another model of sounds."""
    if hasattr(config, "codebook_size"):
        return config
    inner = (value for value in vars(config).values() if hasattr(value, "model_type"))
    return next((codec for part in inner if (codec := _codec_of(part)) is not None), None)


def _matches_two_images(config: Any) -> bool:
    """Return True for a model that finds the same points in two images, as LightGlue does."""
    return any("KeypointMatching" in name for name in getattr(config, "architectures", None) or ())


def image_size(config: Any) -> tuple[int, int]:
    """Return height and width of an image, in pixels."""
    if (size := getattr(_image_config(config), "image_size", None)) is None:
        # a backbone would make one position of the smallest image, EfficientLoFTR 16 points, of which it reads the 64th
        size = 64 if hasattr(config, "backbone_config") or _matches_two_images(config) else 32
    height, width = (size, size) if isinstance(size, int) else tuple(size)
    return int(height), int(width)


def _sound_shape(config: Any) -> tuple[int, ...]:
    """Return the shape of the features of a sound: bins first as in Whisper, else frames first.

    The frames of LASR, Parakeet, Speech2Text and Wav2Vec2-BERT are rows (transformers 5.23.0, their
    feature extractors).
    """
    encoder = getattr(config, "encoder_config", None)
    audio = getattr(config, "audio_config", config)
    if hasattr(audio, "spec_size"):  # CLAP: one channel
        return 1, _FRAMES, int(audio.num_mel_bins)
    sound = encoder if hasattr(encoder, "num_mel_bins") else config
    bins = getattr(sound, "num_mel_bins", None)
    positions = getattr(sound, "max_source_positions", None)
    if bins and positions:
        return int(bins), 2 * int(positions)
    names = ("input_feat_per_channel", "feature_projection_input_dim")
    others = (getattr(sound, name, None) for name in names)
    return _FRAMES, int(bins or next(filter(None, others), 80))


def _image_config(config: Any) -> Any:
    """Return the part of a config that describes images: a part of it, or the whole."""
    names = ("vision_config", "image_config", "encoder", "prompt_encoder_config")
    parts = (*(getattr(config, n, None) for n in names), config)
    backbone = getattr(config, "backbone_config", None)
    return next((part for part in (*parts, backbone) if hasattr(part, "image_size")), config)
