"""What changed in the config of a model that was saved and loaded."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from samebits_wire.folders import without_folders

if TYPE_CHECKING:
    from samebits_probe.questions.crossings.load import Observed

_MAX_VALUE_LENGTH = 160
"""Characters of a config value that a crossing shows."""
_RELEASE_FIELDS = {
    "transformers_version",
    "_name_or_path",
    "_attn_implementation_autoset",
    "auto_map",
}
"""Config fields that name the release, folder or code, at any depth."""
_WRITTEN_DOWN = {"architectures", "dtype"}
"""Config fields that save_pretrained fills in from the model that it saves."""
_ABSENT = object()


def config_fields(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a config's values by dotted names, without those that name the release.

    A field that is None counts as missing; 4.x calls the dtype torch_dtype.
    """
    fields: dict[str, Any] = {}
    for key, value in config.items():
        name = f"{prefix}{'dtype' if key == 'torch_dtype' else key}"
        if key in _RELEASE_FIELDS or value is None:
            continue
        if isinstance(value, dict):
            fields.update(config_fields(value, f"{name}."))
        else:
            fields[name] = value
    return fields


def null_fields(config: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of fields without a value."""
    for key, value in config.items():
        name = f"{prefix}{'dtype' if key == 'torch_dtype' else key}"
        if value is None or value == {}:
            yield name
        elif isinstance(value, dict):
            yield from null_fields(value, f"{name}.")


def written_down(
    original: Mapping[str, Any], saved: Mapping[str, Any], dtype: str
) -> dict[str, Any]:
    """Return the original's values, with the dtype of its load where the saved config has that one.

    save_pretrained writes the dtype of the tensors, while a load of 4.48 in another dtype leaves the config's own
    (``from_pretrained`` in modeling_utils.py).
    """
    asked = {
        name: dtype
        for name in original
        if name.rpartition(".")[2] == "dtype" and saved.get(name) == dtype
    }
    return {**original, **asked}


def changed_fields(original: Mapping[str, Any], saved: Observed) -> list[str]:
    """Return ``field: value from the original \u2192 value from the saved``."""
    return [
        change
        for name, value in original.items()
        for change in _field_changes(
            name, value, saved.config.get(name, None if name in saved.nulls else _ABSENT)
        )
    ]


def added_fields(original: Observed, saved: Mapping[str, Any]) -> list[str]:
    """Return the changes of fields that have a value only in the saved config."""
    ignored = ignored_fields(saved, original)
    added = (name for name in saved if name not in original.config and name not in ignored)
    return [
        f"{name}: null \u2192 {_value_text(saved[name])}"
        for name in added
        if name.rpartition(".")[2] not in _WRITTEN_DOWN
    ]


def ignored_fields(saved: Mapping[str, Any], original: Observed) -> set[str]:
    """Return the fields that only the saved config has, and that this release does not read.

    The config's class does not know them: a field that it knows is also in the original's config,
    at least without a value.
    """
    return {
        name
        for name in saved.keys() - original.config.keys()
        if not any(name == null or name.startswith(f"{null}.") for null in original.nulls)
    }


def _field_changes(name: str, original: Any, saved: Any) -> list[str]:
    """Return the change of one field, if any; of a list of the same length, of each item.

    A class that does not know a field reads nothing from it, and ``getattr(config, name, False)`` is how
    transformers asks. So the loss of a field that is false is no change. Where a lost
    ``tie_word_embeddings`` unties tensors, the copy has no second tensor, and loading it misses a key.
    """
    if saved is _ABSENT:
        if original is False or name.rpartition(".")[2] == "tie_word_embeddings":
            return []
        return [f"{name}: {_value_text(original)} \u2192 not there"]
    if isinstance(original, list) and isinstance(saved, list) and len(original) == len(saved):
        pairs = enumerate(zip(original, saved, strict=True))
        return [c for i, (old, new) in pairs for c in _field_changes(f"{name}[{i}]", old, new)]
    # save_pretrained sorts by key, at any depth
    if json.dumps(original, sort_keys=True) == json.dumps(saved, sort_keys=True):
        return []
    return [f"{name}: {_value_text(original)} \u2192 {_value_text(saved)}"]


def _value_text(value: Any) -> str:
    text = without_folders(json.dumps(value, sort_keys=True))
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[: _MAX_VALUE_LENGTH - 1]}\u2026"
