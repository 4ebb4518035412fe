"""Rows of text with an image and labels: padded, and packed into one row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from samebits_probe.model import choice, media_way
from samebits_probe.model.choice import DECODER, MASK, PIXELS, TOKENS

Facts = dict[str, Any]

PROMPT = "image-padded"
"""Name of the cell's prompt with an image in each of two rows."""
_IGNORED = -100


def padded(model: Any, prompts: Mapping[str, Facts]) -> Facts | None:
    """Return the rows with padding behind them and with labels behind their images; None if there are none."""
    prompt = prompts.get(PROMPT, {})
    if not {TOKENS, MASK} <= prompt.keys() or DECODER in prompt:
        return None
    n_pads = (prompt[MASK] == 0).sum(1).tolist()
    moved = {
        name: torch.stack([row.roll(-n, 0) for row, n in zip(prompt[name], n_pads, strict=True)])
        for name in media_way.OF_TOKENS
        if name in prompt
    }
    images = places_of_images(model, moved[TOKENS])
    behind = (images.flip(1).cummax(1).values.flip(1) == 0) & (moved[MASK] == 1)
    labels = moved[TOKENS].masked_fill(~behind, _IGNORED)
    if not images.any(1).all() or not behind.any(1).all():
        return None
    if media_way.SEGMENTS in moved and not moved[media_way.SEGMENTS].any():
        moved[media_way.SEGMENTS] = behind.long()  # what has labels is no part of the prefix
    return {**prompt, **moved, "labels": labels}


def places_of_images(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Return 1 for each token that stands for a part of an image, and 0 for all others."""
    placeholder = media_way.placeholder("image", model.config, choice.signature_of(model.forward))
    return (ids == (-1 if placeholder is None else placeholder)).long()


def segments(model: Any, ids: torch.Tensor, n_prefix: int = 0) -> Facts:
    """Return what tells a model of images and texts which tokens are no prefix, which sees itself as a whole.

    Empty for other models, and for those whose segments mark the tokens of images.
    """
    signature = choice.signature_of(model.forward)
    has_images = media_way.placeholder("image", model.config, signature) is not None
    marks_images = hasattr(model.config, "mm_tokens_per_image")
    if media_way.SEGMENTS not in signature.names or not has_images or marks_images:
        return {}
    return {media_way.SEGMENTS: (torch.arange(ids.shape[1]) >= n_prefix).long().expand_as(ids)}


def other_padding(kwargs: Facts) -> Facts | None:
    """Return the arguments with other ids in the padding; None if nothing is padded."""
    ids, mask = kwargs.get(TOKENS), kwargs.get(MASK)
    if ids is None or mask is None or mask.shape != ids.shape or bool(mask.all()):
        return None
    return {**kwargs, TOKENS: torch.where(mask == 0, ids[mask == 1][0], ids)}


def packed(model: Any, kwargs: Facts) -> tuple[Facts, Facts] | None:
    """Return a row that ends with an image and one that begins with an image: as one row, and padded.

    None for a model of which a token has more than one position, or a mask of the images that it sees.
    """
    beside = kwargs.keys() - {TOKENS, MASK, PIXELS, "labels", *media_way.OPTIONAL}
    if PIXELS not in kwargs or beside - {"pixel_attention_mask"}:
        return None
    images = places_of_images(model, kwargs[TOKENS])
    last, first = int(images[0].nonzero()[-1]), int(images[1].nonzero()[0])
    cuts = (slice(0, last + 1), slice(first, int(kwargs[MASK][1].sum())))
    of_tokens = [
        name for name in (*media_way.OF_TOKENS, "labels") if name in kwargs and name != MASK
    ]
    as_one = {
        name: torch.cat([kwargs[name][i, cut] for i, cut in enumerate(cuts)])[None]
        for name in of_tokens
    }
    lengths = [cut.stop - cut.start for cut in cuts]
    positions = torch.cat([torch.arange(n) for n in lengths])[None]
    apart = {name: _as_rows(as_one[name][0], lengths) for name in of_tokens}
    apart[MASK] = _as_rows(torch.ones(sum(lengths), dtype=torch.long), lengths)
    apart["labels"] = apart["labels"].masked_fill(apart[MASK] == 0, _IGNORED)
    pixels = {n: v for n, v in kwargs.items() if n not in media_way.OF_TOKENS and n != "labels"}
    in_rows = pixels[PIXELS].ndim == 5 and pixels[PIXELS].shape[1] == 1
    of_one_row = {n: v.transpose(0, 1) if in_rows else v for n, v in pixels.items()}
    return {**as_one, "position_ids": positions, **of_one_row}, {**apart, **pixels}


def _as_rows(values: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """Return values as rows of their own, with zeros behind the shorter ones."""
    return torch.nn.utils.rnn.pad_sequence(list(values.split(lengths)), batch_first=True)
