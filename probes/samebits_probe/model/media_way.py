"""How images, a video or a sound stand among the token ids of each row."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import torch

from samebits_probe.model.choice import DECODER, IMAGE_PLACES, MASK, TOKENS, Signature
from samebits_probe.model.inputs import (
    DECODER_LENGTH,
    decoder_ids,
    pad_id,
    seeded_ids,
    token_config,
    vocabulary,
)
from samebits_probe.model.media_layouts import Layout, Tensors, number
from samebits_probe.model.named import Row, tensor

Rows = tuple[tuple[int, ...], ...]
"""For each row, the tokens of text before, between and behind its images."""

TOKEN_TYPES, SEGMENTS = "mm_token_type_ids", "token_type_ids"
PATCH_NUMBERS = "image_patches_indices"
OPTIONAL = (TOKEN_TYPES, SEGMENTS, PATCH_NUMBERS)
"""What processors of some releases add to the tokens: 5.x has no positions of an image without the first, and no prefix of
PaliGemma without the second; 4.48 has no patches of Fuyu without the third."""
ONE_IMAGE: Rows = ((1, 8), (1, 4))
"""An image, a video or a sound in each row of a padded batch; a single row is the first of them."""
TWO_IMAGES: Rows = ((1, 0, 8), (1, 4, 4))
"""Two images side by side in one row, and with text between in the other."""
_QUESTION_LENGTH = 6
"""Tokens of the text that the Q-Former of InstructBLIP reads beside the image."""
_FILLER = 4
"""Token id at the places of an image where a mask tells them and the config names no placeholder: no text has it."""
VISIBLE = ("cross_attention_mask", "image_attention_mask")
"""Masks of the images that each token sees."""
OF_TOKENS = (TOKENS, MASK, IMAGE_PLACES, *OPTIONAL, *VISIBLE)
"""What has one value for each token, and is padded with the tokens."""
PLACEHOLDERS = {
    "image": ("image_token_id", "image_token_index", "img_token_id", "im_token_id"),
    "video": ("video_token_id", "video_token_index"),
    "audio": ("audio_token_id", "audio_token_index", "audio_token"),
}
_STARTS = ("vision_start_token_id", "image_start_token_id", "boi_token_id", "boi_token_index")
_ENDS = ("vision_end_token_id", "image_end_token_id", "eoi_token_id", "eoi_token_index")
VIDEO_START, _VIDEO_END = ("video_start_token_id",), ("video_end_token_id",)


TYPES = {"image": 1, "video": 2}
"""Values of :data:`TOKEN_TYPES`."""


class Way(NamedTuple):
    """How a model takes images, a video or a sound among the tokens of each row."""

    kind: str
    layout: Layout
    placeholder: int | None
    n_tokens: int
    """Placeholder tokens of one image, or of one run of a video."""
    is_longer: bool = False
    """True if what forward returns has the features of the image before the tokens, as GIT's does."""
    in_rows: bool | None = None
    """True if the images of a row have a dimension of their own behind that of the rows, False if they are as many rows;
    None for a model that takes no two images per row."""
    no_two: str = ""
    """Why it takes no two of them."""
    no_text: str = ""
    """Why it takes no text without one."""
    named: tuple[str, ...] = ()
    """Further arguments, as model.named makes them: a box for each token."""

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
        if names := signature.names & {*VISIBLE}:
            visible = self._visible(images, mask, count)
            tiles = self.layout.shape[1]
            tensors |= {
                n: visible[..., None].repeat(1, 1, 1, tiles) if n == VISIBLE[0] else visible
                for n in names
            }
        of_rows = [Row(config, f"{name}[{i}]", (*row,)) for i, row in enumerate(ids.tolist())]
        tensors |= {argument: tensor(argument, of_rows) for argument in self.named}
        if IMAGE_PLACES in signature.names:
            tensors[IMAGE_PLACES] = is_image
        if self.layout.are_patches:
            tensors[PATCH_NUMBERS] = torch.where(is_image == 1, is_image.cumsum(1) - 1, -1)
        if "qformer_input_ids" in signature.names:
            tensors |= _question(name, config, len(rows))
        if SEGMENTS in signature.names:
            # gemma3 lets tokens of one image see each other; to others all of it is the first segment
            sees_each_other = hasattr(config, "mm_tokens_per_image")
            tensors[SEGMENTS] = is_image if sees_each_other else torch.zeros_like(ids)
        if self.kind in TYPES:
            tensors[TOKEN_TYPES] = is_image * TYPES[self.kind]
        if getattr(config, "is_encoder_decoder", False) and signature.takes(DECODER):
            tensors[DECODER] = torch.tensor([decoder_ids(name, config, DECODER_LENGTH)] * len(rows))
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
        parts = (parts[0], *[1] * (self.layout.runs - 1), *parts[1:])
        text = seeded_ids(name, sum(parts), token_config(config), no_text)
        if not placeholders:
            return text, [-1] * len(text)
        ids, images = text[: parts[0]], [-1] * parts[0]
        text = text[parts[0] :]
        for i, length in enumerate(parts[1:]):
            before, behind = self._marks(config, is_first=i == 0, is_last=i == len(parts) - 2)
            ids += [*before, *placeholders * self.n_tokens, *behind, *text[:length]]
            images += [*[-1] * len(before), *[i] * self.n_tokens, *[-1] * (len(behind) + length)]
            text = text[length:]
        return ids, images

    def _marks(self, config: Any, *, is_first: bool, is_last: bool) -> tuple[list[int], list[int]]:
        """Return the tokens before and behind a run of placeholders.

        A video has its own ones around it, and in it those of images around each frame, as GLM-4V's has.
        """
        own = [first(config, names) for names in (VIDEO_START, _VIDEO_END)]
        has_own = self.kind == "video" and own[0] is not None
        marks = [first(config, names) for names in (_STARTS, _ENDS)]
        if has_own and self.layout.runs == 1:
            marks = [None, None]
        before = [own[0] if has_own and is_first else None, marks[0]]
        behind = [marks[1], own[1] if has_own and is_last else None]
        return [i for i in before if i is not None], [i for i in behind if i is not None]


def _question(name: str, config: Any, rows: int) -> Tensors:
    """Return the text of a Q-Former for each row."""
    ids = [
        seeded_ids(f"{name}[{i}]:question", _QUESTION_LENGTH, config.qformer_config)
        for i in range(rows)
    ]
    tensor = torch.tensor(ids)
    return {"qformer_input_ids": tensor, "qformer_attention_mask": torch.ones_like(tensor)}


def reserved(config: Any) -> list[int]:
    """Return ids that no text has: those of every field that names a token, or several of them as Ovis2's indicators."""
    values = {**token_config(config).to_dict(), **config.to_dict()}
    named = [v for n, v in values.items() if re.fullmatch(r"\w+_token_(id|index|ids)", n)]
    lists = (value if isinstance(value, (list, tuple)) else [value] for value in named)
    return [token for tokens in lists for token in tokens if isinstance(token, int)]


def placeholder(kind: str, config: Any, signature: Signature) -> int | None:
    """Return the token id that stands for an image, a video or a sound; None if there is none.

    Chameleon and Emu3 name it in a map from tokens to their ids.
    """
    by_token = getattr(config, "vocabulary_map", None) or {}
    placeholder = first(config, PLACEHOLDERS[kind])
    if placeholder is None and kind == "image":
        placeholder = by_token.get("<image>", _FILLER if IMAGE_PLACES in signature.names else None)
    return placeholder


def first(config: Any, names: tuple[str, ...]) -> int | None:
    """Return the first of these token ids that the vocabulary has."""
    size = vocabulary(token_config(config))
    parts = (config, token_config(config))
    ids = (number(part, name) for name in names for part in parts)
    return next((n for n in ids if n is not None and 0 <= n < size), None)
