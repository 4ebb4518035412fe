"""Arguments of forward whose shape follows from fields of the config, by their names.

They are boxes of words, features of objects, patches in a row and steps of a game. No signature tells their shape, and few
architectures take each of them. An entry applies where forward lists the name and the config has the fields.
What belongs to a token follows from its id, so that it moves with the token where rows are padded, turned or cut.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from samebits_probe.model import choice
from samebits_probe.model.choice import Signature
from samebits_probe.model.inputs import seeded_numbers

BOXES = "bbox"
"""A box for each token, so that their number is that of the tokens."""
MASKED = "bool_masked_pos"
"""Which patches of an image or a video are hidden. Many forwards list it, and need it only for a loss."""
_STEPS = 6
_GRID = (2, 3)
"""Rows and columns of patches; unequal, so that neither passes for the other."""
_PER_MILLE = 1000
"""Boxes of LayoutLM are in thousandths of a page: LayoutLMEmbeddings.forward raises beyond 1000."""


class Row(NamedTuple):
    """For which row an argument is made."""

    config: Any
    name: str
    """Of the prompt: values that belong to no token depend on it."""
    ids: tuple[int, ...] = ()
    """Its tokens."""


class _Argument(NamedTuple):
    fields: tuple[str, ...]
    """Fields of the config without which the name means something else."""
    make: Callable[[Row], torch.Tensor]


def names(model_class: Any, signature: Signature, config: Any) -> tuple[str, ...]:
    """Return the arguments of a forward that this module makes; none for a class of the user's."""
    described = _described(model_class, config)
    return tuple(
        p.name
        for p in signature.parameters
        if p.name in described or (p.required and p.name in _where_required(model_class, config))
    )


def _described(model_class: Any, config: Any) -> set[str]:
    """Return the arguments that a config describes, whether or not forward takes them."""
    if not is_of_transformers(model_class):
        return set()
    return {name for name, ways in _ARGUMENTS.items() if any(_applies(way, config) for way in ways)}


def _where_required(model_class: Any, config: Any) -> set[str]:
    """Return the arguments that are made for a forward that requires them."""
    is_hidden = is_of_transformers(model_class) and _applies(_MASKED, config)
    return {MASKED} if is_hidden else set()


def is_of_transformers(model_class: Any) -> bool:
    """Return False for a class of the user's: its arguments may mean anything, and the user gives them."""
    return bool(model_class.__module__.startswith("transformers.models."))


def tensor(argument: str, rows: list[Row]) -> torch.Tensor:
    """Return an argument for some rows."""
    ways = _ARGUMENTS.get(argument, (_MASKED,))
    made = next(way for way in ways if _applies(way, rows[0].config)).make
    return torch.stack([made(row) for row in rows])


def beside(model: Any, ids: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """Return what a model needs beside token ids, [rows, length], of a prompt that a question makes itself."""
    if ids is None or ids.ndim != 2:
        return {}
    if not _described(type(model), model.config):
        return {}  # each forward of a question comes here: a signature costs more than fields
    listed = names(type(model), choice.signature_of(type(model).forward), model.config)
    with _disable_current_modes():  # float64 would see numbers of a lower precision
        rows = [Row(model.config, "beside", (*row,)) for row in ids.tolist()]
        return {name: tensor(name, rows).to(ids.device) for name in listed}


def _applies(argument: _Argument, config: Any) -> bool:
    return all(_field(config, name) is not None for name in argument.fields)


def _field(config: Any, name: str) -> Any:
    """Return a field of a config, or of the part of it that describes images."""
    value = getattr(config, name, None)
    return getattr(getattr(config, "vision_config", None), name, None) if value is None else value


def _numbers(argument: str, *sizes: str | int) -> Callable[[Row], torch.Tensor]:
    """Return what makes seeded numbers of a shape: sizes, and fields of the config."""

    def make(row: Row) -> torch.Tensor:
        shape = [_field(row.config, size) if isinstance(size, str) else size for size in sizes]
        return seeded_numbers(row.name, argument, (*map(int, shape),))

    return make


def _boxes(row: Row) -> torch.Tensor:
    """Return left, top, right, bottom of each token's box in parts of a page, float32, [tokens, 4]."""
    return torch.stack([_box(f"box {token}") for token in row.ids])


@functools.cache
def _box(name: str) -> torch.Tensor:
    corner, size = seeded_numbers(name, BOXES, (2, 2)).abs() / 2
    return torch.cat([corner, corner + size])


def _boxes_per_mille(row: Row) -> torch.Tensor:
    scale = min(_PER_MILLE, int(row.config.max_2d_position_embeddings) - 1)
    return (_boxes(row).double() * scale).long()  # the same numbers within float64


def _flattened_patches(row: Row) -> torch.Tensor:
    """Return patches with their row and column before them, from 1 on, as image_processing_pix2struct.py has them."""
    rows, columns = _GRID
    places = [(1.0 + r, 1.0 + c) for r in range(rows) for c in range(columns)]
    width = int(_field(row.config, "patch_embed_hidden_size"))
    numbers = seeded_numbers(row.name, "flattened_patches", (rows * columns, width))
    return torch.cat([torch.tensor(places), numbers], dim=-1)


def _of_objects(row: Row) -> torch.Tensor:
    return torch.stack([_box(f"{row.name} {n}") for n in range(_STEPS)])


def hidden_patches(config: Any) -> torch.Tensor:
    """Return which patches are hidden, [patches]: each second one, as rows must have equally many."""
    sizes = (_pair(_field(config, name)) for name in _PATCHES)
    per_image = math.prod(image // patch for image, patch in zip(*sizes, strict=True))
    frames = getattr(config, "num_frames", 1) // getattr(config, "tubelet_size", 1)
    return torch.arange(per_image * int(frames)) % 2 == 0


def _pair(size: Any) -> tuple[int, ...]:
    return (size, size) if isinstance(size, int) else tuple(size)


_PATCHES = ("image_size", "patch_size")
_MASKED = _Argument(_PATCHES, lambda row: hidden_patches(row.config))
# of SpeechT5, whose decoder takes frames of a sound
_SPOKEN = ("num_mel_bins", "speaker_embedding_dim")
# of Decision Transformer, which reads no rewards
_GAME = ("state_dim", "act_dim", "max_ep_len")
_ARGUMENTS: dict[str, tuple[_Argument, ...]] = {
    BOXES: (
        _Argument(("dim_bbox",), _boxes),  # Bros
        _Argument(("relative_bias_args",), _boxes),  # UDOP
        _Argument(("max_2d_position_embeddings",), _boxes_per_mille),  # LayoutLM and its kin
    ),
    "flattened_patches": (_Argument(("patch_embed_hidden_size",), _flattened_patches),),
    "visual_feats": (
        _Argument(("visual_feat_dim",), _numbers("visual_feats", _STEPS, "visual_feat_dim")),
    ),
    "visual_pos": (_Argument(("visual_feat_dim", "visual_pos_dim"), _of_objects),),
    "decoder_input_values": (
        _Argument(_SPOKEN, _numbers("decoder_input_values", _STEPS, "num_mel_bins")),
    ),
    "speaker_embeddings": (
        _Argument(_SPOKEN, _numbers("speaker_embeddings", "speaker_embedding_dim")),
    ),
    "states": (_Argument(_GAME, _numbers("states", _STEPS, "state_dim")),),
    "actions": (_Argument(_GAME, _numbers("actions", _STEPS, "act_dim")),),
    "returns_to_go": (_Argument(_GAME, _numbers("returns_to_go", _STEPS, 1)),),
    "timesteps": (_Argument(_GAME, lambda _: torch.arange(_STEPS)),),
}
