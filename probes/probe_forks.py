"""Every place where transformers releases must be spoken to differently, and which way we took.

One small function per fork, each named in :data:`TAKEN` when it runs, so that a capture says
which branch it went through. Checked against the releases' own sources.
"""

from __future__ import annotations

from typing import Any

import transformers

TAKEN: dict[str, str] = {}
"""Fork -> branch, of this process: one process is one cell, so a global is one cell's record."""


def _version() -> tuple[int, int]:
    major, minor = transformers.__version__.split(".")[:2]
    return int(major), int(minor)


def _take(fork: str, branch: str) -> str:
    TAKEN[fork] = branch
    return branch


def dtype_keyword() -> str:
    """Return the keyword that asks for a dtype: ``torch_dtype``, ``dtype`` in 4.57 and later.

    4.53 knows the old one only, 4.57 both (modeling_utils.py, from_pretrained).
    """
    return _take("dtype keyword", "dtype" if _version() >= (4, 57) else "torch_dtype")


def loading_info(info: dict[str, Any]) -> dict[str, list[str]]:
    """Return missing, unexpected and mismatched keys as sorted lists.

    4.x gives lists, 5.x sets; mismatched keys are tuples of name and both shapes in both.
    """
    found = {}
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        keys = info.get(kind) or ()
        found[kind] = sorted(key if isinstance(key, str) else str(tuple(key)) for key in keys)
    _take("loading info", "sets" if isinstance(info.get("missing_keys"), set) else "lists")
    return found


def rope_settings(config: Any, layer_type: str | None = None) -> dict[str, Any]:
    """Return rope_type, rope_theta and scaling fields in one dict.

    4.x keeps ``rope_theta`` and ``rope_scaling`` on the config, gemma3 also
    ``rope_local_base_freq``; 5.x has ``rope_parameters``, per layer type in mixed models.
    """
    parameters = getattr(config, "rope_parameters", None)
    if isinstance(parameters, dict):
        _take("rope settings", "rope_parameters")
        if layer_type in parameters and isinstance(parameters[layer_type], dict):
            return dict(parameters[layer_type])
        return dict(parameters)
    _take("rope settings", "rope_theta and rope_scaling")
    if layer_type == "sliding_attention" and hasattr(config, "rope_local_base_freq"):
        return {"rope_type": "default", "rope_theta": config.rope_local_base_freq}
    scaling = getattr(config, "rope_scaling", None) or {}
    theta = getattr(config, "rope_theta", None) or getattr(config, "rotary_emb_base", None)
    settings = {"rope_theta": theta, **scaling}
    settings.setdefault("rope_type", scaling.get("type", "default"))
    return settings


def rope_layer_type(buffer: str, module: str) -> str | None:
    """Return the layer type that a rotary buffer serves, if models mix several.

    5.x names the buffer ``sliding_attention_inv_freq``, 4.x the module ``rotary_emb_local``.
    """
    prefix = buffer.removesuffix("inv_freq").rstrip("_")
    if prefix:
        return prefix
    return "sliding_attention" if module.rsplit(".", 1)[-1] == "rotary_emb_local" else None


def rope_type(module: Any, layer_type: str | None) -> str | None:
    """Return the rope type that a rotary module says it has: a string, in 5.x also per layer."""
    value = getattr(module, "rope_type", None)
    if isinstance(value, dict):
        return value.get(layer_type)
    return value if isinstance(value, str) else None


def attention_scaling(module: Any, layer_type: str | None) -> float | None:
    """Return a rotary module's factor on cos and sin; 5.x has one per layer type."""
    value = getattr(module, f"{layer_type}_attention_scaling", None) if layer_type else None
    if value is None:
        value = getattr(module, "attention_scaling", None)
    return float(value) if isinstance(value, (int, float)) else None


def refuses_attention(message: str) -> bool:
    """Return True if a load was refused because the class has no such attention.

    The words are those of modeling_utils.py's checks in 4.48 to 5.23.
    """
    return "does not support" in message and ("attention" in message.lower() or "sdpa" in message)
