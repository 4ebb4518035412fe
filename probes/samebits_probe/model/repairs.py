"""What a tiny config is given where its text runs, and its images, videos or sounds do not.

Defaults of a config class often belong to no checkpoint: they leave the placeholder of a sound open, have an odd number
of patches where the code merges two by two, or parts whose widths do not meet. Each repair changes one of these things.
This module uses neither torch nor transformers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from samebits_probe.model import scale, shrink

Config = shrink.Config

PLACEHOLDERS = (
    *("image_token_id", "image_token_index", "video_token_id", "video_token_index"),
    *("audio_token_id", "audio_token_index"),
)
_FIRST_ID, _PATCHES = 8, 8
"""An id below those that shrink.fewer_tokens gives, and patches per side: enough to merge two by two or four by four."""
_TOWERS = ("vision_config", "audio_config", "encoder_config")
_FROM_TOWER = ("encoder_hidden_size", "vision_hidden_size", "audio_hidden_size")
_PROJECTED = ("projection_dim", "output_dim")
_OWN_WIDTH = ("hidden_size", "hidden_dim", "d_model", "embed_dim")


def repaired(config: Config) -> Iterator[tuple[str, Config]]:
    """Yield names of repairs and the config with them: all of them, then each by itself if it changes something."""
    changed = {}
    for name, repair in REPAIRS.items():
        repair(alone := copy.deepcopy(config))
        if alone != config:
            changed[name] = alone
    if len(changed) > 1:
        joined = copy.deepcopy(config)
        for name in changed:
            REPAIRS[name](joined)
        yield ", ".join(changed), joined
    yield from changed.items()


def _open_placeholders(config: Config) -> None:
    """Name the token of an image or a sound that the config leaves open."""
    taken = {config.get(name) for name in PLACEHOLDERS}
    free = (number for number in range(_FIRST_ID, 0, -1) if number not in taken)
    for name in PLACEHOLDERS:
        if name in config and config[name] is None:
            config[name] = next(free)


def _even_patches(config: Config) -> None:
    """Give images as many patches per side as merges of two by two and of four by four divide."""
    for part in scale.parts(config):
        size, patch = part.get("image_size", 0), part.get("patch_size", 0)
        has_both = shrink.is_size(size) and shrink.is_size(patch) and "vocab_size" not in part
        if has_both and size % (4 * patch):
            part["image_size"] = _PATCHES * patch


def _meeting_widths(config: Config) -> None:
    """Let a part between a tower and the text take vectors as wide as the tower's."""
    towers = [config[name] for name in _TOWERS if isinstance(config.get(name), dict)]
    widths = {next((t[n] for n in _OWN_WIDTH if shrink.is_size(t.get(n))), 0) for t in towers}
    if len(widths) != 1 or 0 in widths:
        return
    (width,) = widths
    for part in scale.parts(config):
        for name in _FROM_TOWER:
            if part not in towers and shrink.is_size(part.get(name)):
                part[name] = width


def _projected_to_text(config: Config) -> None:
    """Let a tower with a projection of its own give vectors as wide as the text's."""
    width = shrink.hidden_size(config.get("text_config") or {})
    # an encoder_config may have the classes of its own head there, as Granite Speech's
    towers = [config[name] for name in _TOWERS[:2] if isinstance(config.get(name), dict)]
    for tower in towers if width else ():
        for name in _PROJECTED:
            if shrink.is_size(tower.get(name)):
                tower[name] = width


def _as_wide_as_its_backbone(config: Config) -> None:
    """Let a head take maps as wide as those of its backbone: ViTMatte's default backbone is twice as wide."""
    backbone = config.get("backbone_config")
    width = shrink.hidden_size(backbone) if isinstance(backbone, dict) else 0
    if width and shrink.is_size(config.get("hidden_size")):
        config["hidden_size"] = width


REPAIRS: dict[str, Callable[[Config], Any]] = {
    "open placeholders": _open_placeholders,
    "even patches": _even_patches,
    "meeting widths": _meeting_widths,
    "projected to the text": _projected_to_text,
    "as wide as its backbone": _as_wide_as_its_backbone,
}
"""In the order in which they are applied."""
