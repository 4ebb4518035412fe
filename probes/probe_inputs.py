"""What a model is fed for a prompt: the same numbers in every stack, made from the prompt alone.

Text goes through the model's tokenizer if it has one; otherwise token ids are given or seeded.
Pixel values and audio are seeded. Seeds are hashes of names, so no stack draws anything.
"""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import torch

import probe_forks as forks

Prompt = dict[str, Any]

_WINDOW_FIELDS = ("sliding_window", "attention_window_size", "local_attention", "window_size")
_LENGTH_FIELDS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length")
_LONGEST = 4096
"""A prompt that must pass a window does not grow beyond this: a probe is no stress test."""
_PLAIN_LENGTH = 40
"""Length of a past-window prompt for a model without a window."""
_DECODER_LENGTH = 7


class Inputs(NamedTuple):
    """Keyword arguments of forward, which positions are real, and the text they came from."""

    kwargs: dict[str, torch.Tensor]
    real_rows: list[list[int]] | None
    text: str | None


class DoesNotApply(Exception):  # noqa: N818  "this model takes no such prompt" is a result
    """The prompt has no meaning for this model; the message is the reason."""


def text_config(config: Any) -> Any:
    """Return the part of a config that speaks of tokens."""
    return getattr(config, "text_config", None) or config


def make(
    name: str,
    prompt: Prompt,
    model: Any,
    tokenizer: Any,
    head: str,
    dtype: torch.dtype,
) -> Inputs:
    """Return what ``model`` is fed for ``prompt``.

    Raises:
        DoesNotApply: the model takes no tokens and this is not the first kind of prompt.

    """
    main = getattr(model, "main_input_name", "input_ids")
    if main in {"input_ids", "inputs_embeds"}:
        return _tokens(name, prompt, model, tokenizer, head)
    if prompt.get("batch") or prompt.get("length") == "past-window":
        msg = f"the model takes {main}, which has neither padding nor a window here"
        raise DoesNotApply(msg)
    kwargs = {main: _signal_values(name, main, model.config).to(dtype)}
    if model.config.is_encoder_decoder:
        kwargs["decoder_input_ids"] = _decoder_ids(name, model.config, 1)
    return Inputs(kwargs, None, None)


def _tokens(name: str, prompt: Prompt, model: Any, tokenizer: Any, head: str) -> Inputs:
    config = text_config(model.config)
    rows = [
        _row(f"{name}[{i}]" if prompt.get("batch") else name, row, config, tokenizer)
        for i, row in enumerate(prompt.get("batch") or [prompt])
    ]
    width = max(len(row) for row in rows)
    pad = _pad_id(config)
    kwargs = {"input_ids": torch.tensor([[pad] * (width - len(row)) + row for row in rows])}
    real_rows = None
    if len(rows) > 1:
        mask = [[0] * (width - len(row)) + [1] * len(row) for row in rows]
        kwargs["attention_mask"] = torch.tensor(mask)
        real_rows = [[width - len(row), width] for row in rows]
    if head == "seq2seq-lm" or getattr(model.config, "is_encoder_decoder", False):
        kwargs["decoder_input_ids"] = _decoder_ids(name, model.config, len(rows), avoid=width)
    return Inputs(kwargs, real_rows, prompt.get("text") if tokenizer is not None else None)


def _row(name: str, prompt: Prompt, config: Any, tokenizer: Any) -> list[int]:
    length = prompt.get("length")
    if prompt.get("text") and tokenizer is not None:
        ids = [int(i) for i in tokenizer(prompt["text"])["input_ids"]]
        return _stretched(ids, past_window(config)) if length == "past-window" else ids
    if prompt.get("ids"):
        return [int(i) for i in prompt["ids"]]
    wanted = past_window(config) if length == "past-window" else int(length or 9)
    return seeded_ids(name, wanted, config)


def past_window(config: Any) -> int:
    """Return a length past the sliding window and past the length that scaled ropes start at.

    A model with learned positions gets no more of them than it has; rotary ones have no end.
    """
    windows = [getattr(config, field, None) for field in _WINDOW_FIELDS]
    window = max((w for w in windows if isinstance(w, int) and w > 0), default=0)
    wanted = max(window + 8, _PLAIN_LENGTH)
    if forks.rope_settings(config).get("rope_theta") is not None:
        return min(wanted, _LONGEST)
    lengths = [getattr(config, field, None) for field in _LENGTH_FIELDS]
    longest = min((n for n in lengths if isinstance(n, int) and n > 0), default=_LONGEST)
    return min(wanted, longest - 2, _LONGEST)


def _stretched(ids: list[int], length: int) -> list[int]:
    repeats = -(-length // max(len(ids), 1))
    return (ids * repeats)[:length] if len(ids) < length else ids


def seeded_ids(name: str, length: int, config: Any) -> list[int]:
    """Return ``length`` token ids that depend on ``name`` alone and avoid the special ones."""
    vocab = int(getattr(config, "vocab_size", 0) or 0)
    if not vocab:
        msg = "the config has no vocab_size to choose token ids from"
        raise DoesNotApply(msg)
    low = min(10, vocab // 4)
    return [low + _number(f"{name}:{i}") % (vocab - low - 1) for i in range(length)]


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def _pad_id(config: Any) -> int:
    pad = getattr(config, "pad_token_id", None)
    return pad if isinstance(pad, int) and pad >= 0 else 0


def _decoder_ids(name: str, config: Any, rows: int, avoid: int = 0) -> torch.Tensor:
    """Return decoder ids; never as many as ``avoid``, so that the two token axes stay distinct."""
    start = getattr(config, "decoder_start_token_id", None)
    length = _DECODER_LENGTH + (avoid == _DECODER_LENGTH)
    ids = seeded_ids(f"{name}:decoder", length - 1, text_config(config))
    return torch.tensor([[start if isinstance(start, int) else 0, *ids]] * rows)


def _signal_values(name: str, main: str, config: Any) -> torch.Tensor:
    shape = _signal_shape(main, config)
    count = 1
    for n in shape:
        count *= n
    words = bytearray()
    block = 0
    while len(words) < 4 * count:
        words += hashlib.sha256(f"{name}:{main}:{block}".encode()).digest()
        block += 1
    numbers = torch.frombuffer(words, dtype=torch.int32)[:count]
    # 24 bits over a power of two: exact in float32 on every machine
    return ((numbers >> 8).to(torch.float32) / float(1 << 23)).reshape(shape)


def _signal_shape(main: str, config: Any) -> tuple[int, ...]:
    if main == "pixel_values":
        vision = getattr(config, "vision_config", None) or config
        size = getattr(vision, "image_size", 32)
        height, width = (size, size) if isinstance(size, int) else tuple(size)
        return (1, int(getattr(vision, "num_channels", 3)), int(height), int(width))
    if main == "input_features":
        bins = int(getattr(config, "num_mel_bins", 80))
        return (1, bins, 2 * int(getattr(config, "max_source_positions", 50)))
    if main == "input_values":
        return (1, 4000)
    msg = f"no rule to make {main}"
    raise DoesNotApply(msg)
