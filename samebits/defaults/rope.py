"""What the base of all configs makes of ``rope_parameters`` after __init__, and one dict for each kind of layer.

See ``RotaryEmbeddingConfigMixin`` in ``modeling_rope_utils.py``, since 5.0. None stands for: not stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pydantic import JsonValue

    from samebits.defaults.table import Default

FIELD: Final = "rope_parameters"
FACTOR: Final = "partial_rotary_factor"
OWN: Final = "own"
"""Among the settings of a class: it completes the dict itself."""
_TYPE: Final = "default_rope_type"
_THETA: Final = "default_theta"
_LENGTH: Final = "original_max_position_embeddings"
_SCALED: Final = ("llama3", "yarn", "longrope")
"""Kinds of rope that get a length from another field."""


def completed(
    value: JsonValue,
    settings: Mapping[str, JsonValue],
    theta: Default | None,
    factor: Default | None,
) -> JsonValue:
    """Return the dict with all that is added; ``theta`` and ``factor`` are fields of the class beside it."""
    value = {} if value is None else value
    extra = _factor(settings, factor)
    if not isinstance(value, dict) or extra is None:
        return None
    parts = [part for part in value.values() if isinstance(part, dict)]
    if parts and len(parts) == len(value) and settings.get(OWN):
        layers = {key: _one(part, settings, extra) for key, part in value.items()}
        return None if None in layers.values() else layers
    if parts:
        return None
    if "rope_theta" not in value and not settings.get(OWN):
        bases = {settings.get(_THETA), *([] if theta is None else [_number(theta.value)])}
        value = {**value, "rope_theta": bases.pop() if len(bases) == 1 else None}
    return _one(value, settings, extra)


def _number(value: JsonValue) -> float | None:
    return value if isinstance(value, (int, float)) else None


def _factor(
    settings: Mapping[str, JsonValue], factor: Default | None
) -> dict[str, JsonValue] | None:
    """Return the part of a head that is rotated, where the class has one beside the dict."""
    values: list[JsonValue] = [settings[FACTOR]] if FACTOR in settings else []
    if factor is not None:
        if not factor.is_stated:
            return None
        values += [] if factor.value is None else [factor.value]
    if any(value is None or value != values[0] for value in values):
        return None
    return {FACTOR: values[0]} if values else {}


def _one(
    part: JsonValue, settings: Mapping[str, JsonValue], extra: dict[str, JsonValue]
) -> JsonValue:
    """Return one dict in full."""
    if not isinstance(part, dict) or not isinstance(part.get("rope_theta"), (int, float)):
        return None
    kind = part.get("rope_type", part.get("type", "default"))
    kind = settings.get(_TYPE, kind) if kind == "default" else kind
    whole = {**extra, **part, "rope_type": kind}
    if kind is None or any(whole[key] != value for key, value in extra.items()):
        return None
    return None if kind in _SCALED and _LENGTH not in whole else whole
