"""What a release makes of the values of config.json: what the loaded config has in their place, and where code reads it.

The result has the form of ConfigField in samebits/records/capture.py.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from typing import Any

import transformers

Facts = dict[str, dict[str, Any]]

_WALKS = ("configuration_utils.py", "huggingface_hub", "samebits_probe")
"""Parts of the paths of code that goes through all fields of any config."""
CONFIGURATION = "configuration_"
"""Begins the names of the files that define configs."""
_RELEASE_SETS = frozenset(
    {"transformers_version", "model_type", "dtype", "torch_dtype", "_commit_hash", "_name_or_path"}
)


class Reads:
    """Notes the first line that reads each field of a config, of a model before that of a config class."""

    def __init__(self) -> None:
        self.places: dict[tuple[str, str], str] = {}
        self._own: Any = None

    def start(self) -> Reads:
        """Watch the reads of all configs of this process until :meth:`stop`."""
        base = transformers.PretrainedConfig
        own = self._own = base.__getattribute__
        settled: set[tuple[type, str]] = set()

        def watched(config: Any, name: str) -> Any:
            key = type(config), name
            if key not in settled and self._note(*key, sys._getframe(1).f_code.co_filename):
                settled.add(key)
            return own(config, name)

        base.__getattribute__ = watched
        return self

    def stop(self) -> None:
        """End the watch; what was noted stays."""
        if self._own is not None:
            transformers.PretrainedConfig.__getattribute__ = self._own
            self._own = None

    def _note(self, kind: type, name: str, file: str) -> bool:
        """Note a read, and return True if no later one can tell more."""
        if name.startswith("__") or any(part in file for part in _WALKS):
            return False
        is_of_model = not file.rpartition("/")[2].startswith(CONFIGURATION)
        line = sys._getframe(2).f_lineno
        place = f"{'/'.join(file.split('/')[-3:])}:{line}"
        mapped = getattr(kind, "attribute_map", {}).get(name, name)
        for field in {name, mapped}:
            key = str(getattr(kind, "model_type", "")), field
            if key not in self.places or (is_of_model and CONFIGURATION in self.places[key]):
                self.places[key] = place
        return is_of_model


def facts(config: Any, written: dict[str, Any], places: dict[tuple[str, str], str]) -> Facts:
    """Return path -> what a release makes of a value of config.json, for values that are no list and no dict."""
    return dict(_of_part(config, written, places, ""))


def _of_part(
    part: Any, written: dict[str, Any], places: dict[tuple[str, str], str], path: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    default = _default(type(part))
    # not the part's own, which config.json may write otherwise: GLM-4.5V's of 4.57 has "Glm4vMoe_text"
    kind = str(type(part).model_type)
    for name, value in written.items():
        inner = getattr(part, name, None)
        if isinstance(value, dict) and isinstance(inner, transformers.PretrainedConfig):
            yield from _of_part(inner, value, places, f"{path}{name}.")
        elif _is_plain(value) and name not in _RELEASE_SETS:
            yield (
                f"{path}{name}",
                {
                    "written": value,
                    "loaded": inner if _is_plain(inner) else None,
                    # a class without defaults could have any
                    "is_default": default is None or _same(getattr(default, name, None), value),
                    "read": places.get((kind, name), ""),
                },
            )


def _default(kind: type) -> Any:
    try:
        return kind()
    except Exception:  # noqa: BLE001  a class may need arguments
        return None


def _is_plain(value: Any) -> bool:
    return math.isfinite(value) if isinstance(value, float) else isinstance(value, (bool, int, str))


def _same(left: Any, right: Any) -> bool:
    """Return True for values that JSON writes alike: True is not 1."""
    return _is_plain(left) and json.dumps(left) == json.dumps(right)
