"""Rotary frequencies of a model, compared with the closed formula of its config in float64.

Formulas: default, RoFormer (arXiv 2104.09864); linear, kaiokendev's scaling; dynamic, NTK-aware
scaling at load time; llama3, Llama 3.1's reference code; yarn, arXiv 2309.00071; longrope,
arXiv 2402.13753; each as in transformers' modeling_rope_utils.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from samebits_probe.model import forks
from samebits_probe.model.fresh import Fresh, against
from samebits_probe.model.tensor import Keeper

Settings = dict[str, Any]


def inv_freq(model: torch.nn.Module, keeper: Keeper, fresh: Fresh | None) -> dict[str, Any]:
    """Return the inv_freq signal: every rotary frequency buffer, its scaling and its formula."""
    facts: dict[str, Any] = {}
    modules = dict(model.named_modules())
    for name, buffer in model.named_buffers():
        module_name, _, leaf = name.rpartition(".")
        if not leaf.endswith("inv_freq") or leaf.startswith("original") or "_original" in leaf:
            continue
        module = modules[module_name]
        layer_type = forks.rope_layer_type(leaf, module_name)
        settings = forks.rope_settings(_config_of(module, model), layer_type)
        kind = forks.rope_type(module, layer_type) or str(settings.get("rope_type") or "default")
        ref = keeper.ref(buffer)
        facts[name] = {
            "ref": ref,
            "module": module_name,
            "rope_type": kind,
            "attention_scaling": forks.attention_scaling(module, layer_type),
            "fresh": against(fresh, name, ref["hash"]),
            "formula": formula_facts(kind, buffer, settings, _config_of(module, model)),
        }
    return facts


def _config_of(module: torch.nn.Module, model: torch.nn.Module) -> Any:
    if (config := getattr(module, "config", None)) is None:
        config = model.config
    return getattr(config, "text_config", None) or config


def formula_facts(
    kind: str, buffer: torch.Tensor, settings: Settings, config: Any
) -> dict[str, Any]:
    """Return the distance from the float64 formula, and the bound of correct float32 arithmetic.

    The bound is derived, not tuned: x = base ** (i / dim) in float32 has a relative error of
    about ln(base) half-ULPs from rounding the exponent, two from the power and one from each
    division. Interpolating schemes have up to four such steps.
    """
    facts: dict[str, Any] = {"rope_type": kind, "max_ulp": None, "bound_ulp": None, "note": ""}
    formula = _FORMULAS.get(kind)
    base = settings.get("rope_theta")
    if formula is None or not base:
        facts["note"] = (
            f"no formula for {kind!r}" if formula is None else "config has no rope_theta"
        )
        return facts
    if buffer.dtype not in {torch.float32, torch.float64}:
        facts["note"] = f"the buffer is {buffer.dtype}"
        return facts
    try:
        exact = [
            formula(dim, float(base), settings, config)
            for dim in rotary_dims(buffer.numel(), settings, config)
        ]
    except Exception as error:  # noqa: BLE001  a config that refuses a read is no failure of the model
        facts["note"] = f"the formula does not apply: {type(error).__name__}: {error}"
        return facts
    distances = [_ulp_distance(buffer, values) for values in exact]
    facts["max_ulp"] = min((d for d in distances if d is not None), default=None)
    facts["bound_ulp"] = round(4 * (math.log(float(base)) + 4), 1)
    return facts


def rotary_dims(n: int, settings: Settings, config: Any) -> list[int]:
    """Return the dimensions whose arange(0, dim, 2) has ``n`` entries, preferably the config's.

    The exponent is divided by the dimension itself, and an odd dimension has as many frequencies as
    the next even one. If the config has neither, as with remote code that uses another name for the
    dimension, both are returned and the formula with the smaller distance counts.
    """
    sizes = forks.values_of(config, "head_dim")
    heads, hidden = (forks.value_of(config, k) for k in ("num_attention_heads", "hidden_size"))
    if sizes == [None] and isinstance(heads, int) and isinstance(hidden, int):
        sizes = [hidden // heads]
    share = settings.get("partial_rotary_factor") or forks.value_of(config, "partial_rotary_factor")
    config_dims = [forks.value_of(config, k) for k in ("qk_rope_head_dim", "rotary_dim")]
    for size in sizes:
        if isinstance(size, int):
            config_dims += [size, int(size * share) if isinstance(share, float) else size]
    possible = [2 * n, 2 * n - 1]
    return [dim for dim in possible if dim in config_dims] or possible


def _ulp_distance(buffer: torch.Tensor, exact: np.ndarray) -> float | None:
    values = buffer.detach().cpu().reshape(-1).double().numpy()
    if values.shape != exact.shape or not np.isfinite(values).all():
        return None
    unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(values - exact) / unit))


def _default(dim: int, base: float, _settings: Settings, _config: Any) -> np.ndarray:
    return 1.0 / base ** (np.arange(0, dim, 2, dtype=np.float64) / dim)


def _linear(dim: int, base: float, settings: Settings, config: Any) -> np.ndarray:
    return _default(dim, base, settings, config) / float(settings["factor"])


def _llama3(dim: int, base: float, settings: Settings, config: Any) -> np.ndarray:
    plain = _default(dim, base, settings, config)
    factor = float(settings["factor"])
    low, high = float(settings["low_freq_factor"]), float(settings["high_freq_factor"])
    old = float(settings["original_max_position_embeddings"])
    wavelength = 2 * math.pi / plain
    smooth = (old / wavelength - low) / (high - low)
    blended = (1 - smooth) * plain / factor + smooth * plain
    scaled = np.where(wavelength > old / low, plain / factor, plain)
    return np.where((wavelength <= old / low) & (wavelength >= old / high), blended, scaled)


def _yarn(dim: int, base: float, settings: Settings, config: Any) -> np.ndarray:
    plain = _default(dim, base, settings, config)
    factor = float(settings["factor"])
    old = float(settings.get("original_max_position_embeddings") or config.max_position_embeddings)

    def turns(n: float) -> float:
        return dim * math.log(old / (n * 2 * math.pi)) / (2 * math.log(base))

    low, high = turns(settings.get("beta_fast") or 32), turns(settings.get("beta_slow") or 1)
    if settings.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = np.arange(dim // 2, dtype=np.float64) - low
    ramp = np.clip(ramp / ((high - low) or 0.001), 0, 1)
    return plain / factor * ramp + plain * (1 - ramp)


def _longrope(dim: int, base: float, settings: Settings, config: Any) -> np.ndarray:
    factors = np.asarray(settings["short_factor"], dtype=np.float64)
    return _default(dim, base, settings, config) / factors


_FORMULAS: dict[str, Callable[[int, float, Settings, Any], np.ndarray]] = {
    "default": _default,
    "linear": _linear,
    # at load time no sequence exceeds max_position_embeddings, so nothing is scaled yet
    "dynamic": _default,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
