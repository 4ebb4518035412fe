"""Arguments of forward whose shape follows from fields of the config, by their names.

Boxes of words, features of objects, patches in a row, steps of a game: no signature tells their shape, and each stands in
one or a few architectures. An entry applies where forward lists the name and the config has the fields. This module
makes them for one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from samebits_probe.model.inputs import seeded_numbers

if TYPE_CHECKING:
    from samebits_probe.model.choice import Signature

BOXES = "bbox"
"""A box for each token, so that their number is that of the tokens."""
_STEPS = 6
_GRID = (2, 3)
"""Rows and columns of patches; unequal, so that neither passes for the other."""
_PER_MILLE = 1000
"""Boxes of LayoutLM are in thousandths of a page (arXiv:1912.13318, section 2.3)."""


class Row(NamedTuple):
    """For which row an argument is made."""

    config: Any
    name: str
    """Of the prompt: values depend on it."""
    width: int = _STEPS
    """Number of tokens."""


class _Argument(NamedTuple):
    fields: tuple[str, ...]
    """Fields of the config without which the name means something else."""
    make: Callable[[Row], torch.Tensor]


def names(signature: Signature, config: Any) -> tuple[str, ...]:
    """Return the arguments of a forward that this module makes."""
    return tuple(
        name
        for name in signature.listed
        if any(_applies(one, config) for one in _ARGUMENTS.get(name, ()))
    )


def tensor(argument: str, row: Row) -> torch.Tensor:
    """Return an argument for one row, without the dimension of rows."""
    return next(one for one in _ARGUMENTS[argument] if _applies(one, row.config)).make(row)


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
    """Return left, top, right, bottom of boxes in parts of a page, float32, [tokens, 4]."""
    corner, size = seeded_numbers(row.name, BOXES, (2, row.width, 2)).abs() / 2
    return torch.cat([corner, corner + size], dim=-1)


def _boxes_per_mille(row: Row) -> torch.Tensor:
    scale = min(_PER_MILLE, int(row.config.max_2d_position_embeddings) - 1)
    return (_boxes(row) * scale).long()


def _flattened_patches(row: Row) -> torch.Tensor:
    """Return patches with their row and column before them, from 1 on (arXiv:2210.03347, appendix A)."""
    rows, columns = _GRID
    places = [(1.0 + r, 1.0 + c) for r in range(rows) for c in range(columns)]
    width = int(_field(row.config, "patch_embed_hidden_size"))
    numbers = seeded_numbers(row.name, "flattened_patches", (rows * columns, width))
    return torch.cat([torch.tensor(places), numbers], dim=-1)


def _of_objects(row: Row) -> torch.Tensor:
    return _boxes(row._replace(width=_STEPS))


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
        _Argument(
            ("visual_feat_dim",),
            _numbers("visual_feats", _STEPS, "visual_feat_dim"),
        ),
    ),
    "visual_pos": (_Argument(("visual_feat_dim", "visual_pos_dim"), _of_objects),),
    "states": (_Argument(_GAME, _numbers("states", _STEPS, "state_dim")),),
    "actions": (_Argument(_GAME, _numbers("actions", _STEPS, "act_dim")),),
    "returns_to_go": (_Argument(_GAME, _numbers("returns_to_go", _STEPS, 1)),),
    "timesteps": (_Argument(_GAME, lambda _: torch.arange(_STEPS)),),
}
