"""The files of a checkpoint that name its processors of images and sounds, without network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_KEYS = ("image_processor_type", "feature_extractor_type")
_WHOLE = "processor_config"


def write(folder: Path, architecture: str, settings: dict[str, Any]) -> None:
    """Write preprocessor_config.json: the class of the architecture, and the settings.

    What is not set is left to the class of each release. ``processor_config`` in the settings is the
    content of processor_config.json, whose processor_class both files name, as checkpoints do.
    """
    own = {name: value for name, value in settings.items() if name != _WHOLE}
    content = own if any(key in own for key in _KEYS) else _declared(architecture) | own
    if (whole := settings.get(_WHOLE)) is not None:
        _write_json(folder / "processor_config.json", whole)
        content |= {name: whole[name] for name in ("processor_class",) if name in whole}
    _write_json(folder / "preprocessor_config.json", content)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", "utf-8")


def _declared(architecture: str) -> dict[str, str]:
    """Return the key and the class of the architecture's processor in this release."""
    # only a recipe with a processor needs these modules, and releases may move their tables
    from transformers.models.auto import (  # noqa: PLC0415
        feature_extraction_auto,
        image_processing_auto,
    )

    images = image_processing_auto.IMAGE_PROCESSOR_MAPPING_NAMES
    sounds = feature_extraction_auto.FEATURE_EXTRACTOR_MAPPING_NAMES
    if architecture in sounds and architecture not in images:
        return {"feature_extractor_type": sounds[architecture]}
    if architecture not in images:
        message = (
            f"transformers has no image processor or feature extractor for {architecture}: name one "
            "under processor, as image_processor_type"
        )
        raise ValueError(message)
    classes = images[architecture]
    names = classes.values() if isinstance(classes, dict) else classes
    names = [names] if isinstance(names, str) else [name for name in names if name]
    return {"image_processor_type": min(names, key=len)}
