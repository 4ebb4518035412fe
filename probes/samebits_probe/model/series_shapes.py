"""Shapes of the arguments of a model of time series, from its config.

They follow from how many past values it takes, its lags, and its features. This module uses no torch, so that tests of the
host can cover the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from samebits_probe.model.choice import Signature

PAST, CONTEXT = "past_values", "context"
_MASKS = ("mask", "past_observed_mask")
STATIC = {"categorical": "num_static_categorical_features", "real": "num_static_real_features"}
"""Kind of feature that a series has once -> the config field with their number."""
_MAX_STEPS = 64
"""Steps of a series whose length a model does not fix."""


def main(signature: Signature) -> str:
    """Return the argument for the past values; '' if forward takes none."""
    return next((name for name in (PAST, CONTEXT) if name in signature.names), "")


def steps(config: Any) -> int:
    """Return how many past values a model takes; 0 if its config does not tell."""
    context = number(config, "context_length") or number(config, "prediction_length")
    lags = getattr(config, "lags_sequence", None) or [0]
    own = getattr(config, "chronos_config", None)
    if isinstance(own, dict):
        return min(int(own.get("context_length", _MAX_STEPS)), _MAX_STEPS)
    return context + max(lags) if context else 0


def shapes(config: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of each argument that a model of series may take, without the number of rows."""
    if not (past := steps(config)):
        return {}
    own = getattr(config, "chronos_config", None) or {}
    future = number(config, "prediction_length") or number(config, "horizon_length")
    future = int(own.get("prediction_length", future))
    wide = (number(config, "num_input_channels") or number(config, "input_size"),)
    has_channels = bool(number(config, "num_input_channels")) or wide[0] > 1
    channels = wide if has_channels else ()
    n_features = number(config, "num_time_features")
    made: dict[str, tuple[int, ...]] = {
        **dict.fromkeys((PAST, CONTEXT, *_MASKS), (past, *channels)),
        "past_time_features": (past, n_features),
    }
    made |= {
        f"static_{kind}_features": (n,)
        for kind, field in STATIC.items()
        if (n := number(config, field))
    }
    if future:
        made |= dict.fromkeys(("future_values", "future_observed_mask"), (future, *channels))
        made["future_time_features"] = (future, n_features)
    return made


def shapes_of(config: Any, signature: Signature) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a model's series; {} for a model that takes none."""
    return shapes(config) if main(signature) else {}


def number(config: Any, name: str) -> int:
    """Return a field of a config that is a whole number; 0 for any other."""
    value = getattr(config, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
