"""Time series for models that take past values in place of token ids.

Shapes follow from the config: how many past values a model takes, its lags, and its features. They are tried in a small model
that the class makes of the config, as nothing else tells whether they are meant so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from samebits_probe.model import outputs, tried
from samebits_probe.model.choice import NotFed
from samebits_probe.model.inputs import seeded_numbers
from samebits_probe.model.tensor import tensor_hash

if TYPE_CHECKING:
    from samebits_probe.model.choice import Signature

Tensors = dict[str, torch.Tensor]

PAST, CONTEXT = "past_values", "context"
_MAX_STEPS = 64
"""Steps of a series whose length a model does not fix."""


def main(signature: Signature) -> str:
    """Return the argument for the past values; '' if forward takes none."""
    return next((name for name in (PAST, CONTEXT) if name in signature.names), "")


def steps(config: Any) -> int:
    """Return how many past values a model takes; 0 if its config does not tell."""
    context = _number(config, "context_length") or _number(config, "prediction_length")
    lags = getattr(config, "lags_sequence", None) or [0]
    own = getattr(config, "chronos_config", None)
    if isinstance(own, dict):
        return min(int(own.get("context_length", _MAX_STEPS)), _MAX_STEPS)
    return context + max(lags) if context else 0


def tensors(name: str, config: Any, signature: Signature, rows: int) -> Tensors:
    """Return the arguments of forward for some series.

    Raises:
        NotFed: the config does not tell their length.

    """
    past, argument = steps(config), main(signature)
    if not past:
        msg = "the config has no context_length, which the length of a series follows from"
        raise NotFed(msg)
    future = _number(config, "prediction_length")
    wide = (_number(config, "num_input_channels") or _number(config, "input_size"),)
    has_channels = bool(_number(config, "num_input_channels")) or wide[0] > 1
    channels = wide if has_channels else ()
    n_features = _number(config, "num_time_features")
    shapes = {argument: (past, *channels), "past_time_features": (past, n_features)}
    if getattr(config, "lags_sequence", None):
        shapes |= {
            "future_values": (future, *channels),
            "future_time_features": (future, n_features),
        }
    if n_real := _number(config, "num_static_real_features"):
        shapes["static_real_features"] = (n_real,)
    made = {
        key: seeded_numbers(name, key, (rows, *shape))
        for key, shape in shapes.items()
        if key in signature.names
    }
    if "past_observed_mask" in signature.names:
        made["past_observed_mask"] = torch.ones_like(made[argument])
    if n_static := _number(config, "num_static_categorical_features"):
        # every category has two values at least
        made["static_categorical_features"] = torch.arange(rows)[:, None].repeat(1, n_static) % 2
    return made


def require(model_class: Any, config: Any, signature: Signature) -> None:
    """Raise NotFed unless a small model takes such series, and computes something of them."""
    reason = "its class makes no small model of the config to try them in"
    for model in tried.small_models(model_class, config):
        try:
            made = (tensors(n, model.config, signature, 2) for n in ("one", "other"))
            hashes = {_first(model, kwargs) for kwargs in made}
        except Exception as error:  # noqa: BLE001  a forward may refuse inputs in any way
            reason = tried.in_one_line(error)
        else:
            if len(hashes) > 1:
                return
            reason = "what forward returns does not follow from the series"
        break
    msg = f"samebits could not find out what series the model takes: {reason}"
    raise NotFed(msg)


def _first(model: Any, kwargs: Tensors) -> str:
    """Return the hash of the first output; '' if there is none."""
    torch.manual_seed(0)
    with torch.no_grad():
        result = outputs.usual_logits_of(model(**kwargs))
    return "" if result is None else tensor_hash(result)


def _number(config: Any, name: str) -> int:
    value = getattr(config, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
