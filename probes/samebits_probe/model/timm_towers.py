"""Small towers of timm. How large one is follows from its name alone, and no width of a config changes it.

``timm.create_model`` takes arguments that do, which a config keeps as ``model_args``. Families of timm name them
differently, so each set is tried: of those that an architecture takes, the first that makes it small.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

from samebits_probe.model import shrink

Config = shrink.Config

_LARGE = 8_000_000
"""Parameters above which a tower is made smaller: the smallest of MobileNet v5 has 7.3 million."""
_NAME, _ARGUMENTS = "architecture", "model_args"
_IMAGE = 56
"""Pixels per side: whole patches of 14, and of 8."""
_STAGES = [32, 32, 32, 64, 64]
_SETS: tuple[dict[str, Any], ...] = (
    {"embed_dim": 64, "depth": 2, "num_heads": 4, "img_size": _IMAGE},
    *({"embed_dims": _STAGES[-n:], "layers": [1] * n} for n in (5, 4)),
    {"channel_multiplier": 0.0625},
)
"""Of vision transformers; of networks of five or of four stages; of mobile nets."""
_OF_TOKENS = "vit_base_patch16_224"
"""An architecture that has the arguments which a class reads where its default names one that has not."""


def smaller(config: Config, source: str) -> Config:
    """Return what the large towers of timm in a config are given, nested as they are in it; {} without one.

    ``source`` is the code of the model's class.
    """
    nested = {n: smaller(v, source) for n, v in config.items() if isinstance(v, dict)}
    changed: Config = {name: value for name, value in nested.items() if value}
    if isinstance(config.get(_NAME), str) and _ARGUMENTS in config:
        changed |= _tower(config, source)
    return changed


def _tower(config: Config, source: str) -> Config:
    name, own = config[_NAME], config[_ARGUMENTS] or {}
    if f'.{_ARGUMENTS}["' in source and not own:
        name = _OF_TOKENS
    whole = _made(name, own)
    if whole is None or (name == config[_NAME] and _size(whole) <= _LARGE):
        return {}
    for arguments in _SETS:
        made = _made(name, own | arguments)
        if made is None or _size(made) > _LARGE:
            continue
        changed = {_NAME: name, _ARGUMENTS: own | arguments}
        if shrink.is_size(config.get("hidden_size")):  # of what the tower returns
            changed["hidden_size"] = made.num_features
        return changed
    return {}


def _made(name: str, arguments: dict[str, Any]) -> Any:
    """Return a tower without numbers; None if timm is not installed or refuses it."""
    try:
        timm = importlib.import_module("timm")
        with torch.device("meta"):
            return timm.create_model(name, pretrained=False, **arguments)
    except Exception:  # noqa: BLE001  a family may refuse arguments in any way
        return None


def _size(tower: Any) -> int:
    return sum(int(p.numel()) for p in tower.parameters())
