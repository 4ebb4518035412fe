"""Arguments of from_pretrained that matrix.yaml may set, and the keys for those that it may not."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from samebits.base.errors import shown

if TYPE_CHECKING:
    from samebits.matrix.spec import ModelSpec

_KEYS = {
    "dtype": "dtypes",
    "torch_dtype": "dtypes",
    "device_map": "devices",
    "device": "devices",
    "revision": "revision",
    "trust_remote_code": "trust_remote_code",
}
"""Arguments that other keys of matrix.yaml set."""
_OWNED = {
    "pretrained_model_name_or_path": "the model is named by hub, path or build",
    "config": "the fields of the config are written themselves, such as num_labels: 3",
    "state_dict": "the weights are those of the checkpoint",
    "output_loading_info": "samebits asks for it in any case",
    "cache_dir": "the hub's cache is that of HF_HOME",
    "token": "a token is read from HF_TOKEN, and never from a file that is shared",
    "use_auth_token": "a token is read from HF_TOKEN, and never from a file that is shared",
}
"""Arguments that nothing in matrix.yaml may set, and why."""


def bad_argument(name: str, value: object) -> str | None:
    """Return what is wrong with an argument of from_pretrained, in words, or None."""
    if not name.isidentifier():
        return f"{shown(name)} is not the name of an argument: write one such as variant"
    if (key := _KEYS.get(name)) is not None:
        listed = f"[{_in_short(name, value)}]" if key.endswith("s") else _in_short(name, value)
        return f"another key sets it: remove it here, and write beside load: {key}: {listed}"
    if name in _OWNED:
        return f"it cannot be set, as {_OWNED[name]}: remove it"
    if not _is_finite(value):
        return "a number that is not finite cannot be passed on: write another one"
    return None


def contradictions(model: ModelSpec) -> dict[str, str]:
    """Return argument -> why it contradicts another key of the model."""
    problems = {}
    if "attn_implementation" in model.load and model.attention != ("default",):
        problems["attn_implementation"] = (
            "attention: is set, too, and chooses the same thing: remove one of the two"
        )
    subfolder = model.load.get("subfolder")
    if subfolder and model.path is not None:
        problems["subfolder"] = (
            f"a folder is named whole: remove subfolder, and write path: {model.path}/{subfolder}"
        )
    elif subfolder and model.build is not None:
        problems["subfolder"] = "a checkpoint that is built has no subfolder: remove it"
    return problems


def _in_short(name: str, value: object) -> str:
    if name in {"device_map", "device"}:
        return "cpu" if not isinstance(value, str) or value == "auto" else value
    return str(value).lower() if isinstance(value, bool) else str(value).removeprefix("torch.")


def _is_finite(value: object) -> bool:
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)
