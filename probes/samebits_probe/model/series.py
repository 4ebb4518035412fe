"""Time series for models that take past values in place of token ids.

They are tried in a small model that the class makes of the config, as nothing else tells whether their shapes are meant so.
"""

from __future__ import annotations

from typing import Any

import torch

from samebits_probe.model import outputs, series_shapes, tried
from samebits_probe.model.choice import NotFed, Signature
from samebits_probe.model.inputs import seeded_numbers
from samebits_probe.model.series_shapes import STATIC, number
from samebits_probe.model.tensor import tensor_hash
from samebits_probe.process.failure import in_one_line

Tensors = dict[str, torch.Tensor]


def tensors(name: str, config: Any, signature: Signature, rows: int) -> Tensors:
    """Return the arguments of forward for some series."""
    all_shapes, argument = series_shapes.shapes(config), series_shapes.main(signature)
    if not all_shapes:
        raise NotFed("the config has no context_length, which the length of a series follows from")
    arguments = [argument, "past_time_features"]
    if getattr(config, "lags_sequence", None):
        arguments += ["future_values", "future_time_features"]
    arguments.append("static_real_features")
    made = {
        key: seeded_numbers(name, key, (rows, *all_shapes[key]))
        for key in arguments
        if key in signature.names and key in all_shapes
    }
    if "past_observed_mask" in signature.names:
        made["past_observed_mask"] = torch.ones_like(made[argument])
    if n_static := number(config, STATIC["categorical"]):
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
            reason = in_one_line(error, tried.MAX_REASON)
        else:
            if len(hashes) > 1:
                return
            reason = "what forward returns does not follow from the series"
        break
    raise NotFed(f"samebits could not find out what series the model takes: {reason}")


def _first(model: Any, kwargs: Tensors) -> str:
    torch.manual_seed(0)
    with torch.no_grad():
        result = outputs.usual_logits_of(model(**kwargs))
    return "" if result is None else tensor_hash(result)
