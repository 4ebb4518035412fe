"""Print the defaults of a release as its classes have them: ``STACK/bin/python bench/instantiated.py``.

One JSON object: class -> field -> value. A class that cannot be made without an argument is left out, and so is
a value that JSON does not have.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import json
import logging
import pkgutil
import sys
import warnings
from typing import Any

import transformers
from transformers import GenerationConfig, TrainingArguments

KINDS = ("configuration_", "image_processing_", "video_processing_", "feature_extraction_")
NO_VALUE = object()


def main() -> None:
    """Print the defaults."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    facts = {cls.__name__: found for cls in classes(*KINDS) if (found := of_instance(cls))}
    facts |= {cls.__name__: of_signature(cls) for cls in classes("tokenization_")}
    facts["TrainingArguments"] = {
        f.name: value
        for f in dataclasses.fields(TrainingArguments)
        if (value := plain(default(f))) is not NO_VALUE
    }
    facts["GenerationConfig"] = of_generation()
    json.dump(facts, sys.stdout)


def classes(*kinds: str) -> list[type]:
    """Return the classes that the files of models define, by how the files' names begin."""
    found = []
    for package in pkgutil.walk_packages(transformers.models.__path__, "transformers.models."):
        if not package.name.rpartition(".")[2].startswith(kinds):
            continue
        try:
            module = importlib.import_module(package.name)
        except Exception:  # noqa: BLE001, S112  a package that is not installed
            continue
        found += [
            cls
            for cls in vars(module).values()
            if inspect.isclass(cls) and cls.__module__ == module.__name__
        ]
    return found


def of_instance(cls: type) -> dict[str, Any]:
    """Return what an instance has that was made without arguments; a file may write it in another form."""
    try:
        instance = cls()
        facts = instance.to_dict()
    except Exception:  # noqa: BLE001  it needs an argument, or a package
        return {}
    held = {k: value for k, v in vars(instance).items() if (value := plain(v)) is not NO_VALUE}
    written = {k: value for k, v in facts.items() if (value := plain(v)) is not NO_VALUE}
    return {name: held.get(name, value) for name, value in written.items()}


def of_signature(cls: type) -> dict[str, Any]:
    """Return the defaults of the arguments of ``__init__``; a token as its text."""
    named = inspect.signature(cls).parameters.values()
    given = {p.name: p.default for p in named if p.default is not p.empty}
    texts = {k: str(v) if type(v).__name__ == "AddedToken" else v for k, v in given.items()}
    return {k: value for k, v in texts.items() if (value := plain(v)) is not NO_VALUE}


def of_generation() -> dict[str, Any]:
    """Return what ``generate()`` takes without a generation config."""
    config = GenerationConfig()
    defaults: dict[str, Any] = getattr(config, "_get_default_generation_params", dict)()
    facts = {k: v for k, v in config.to_dict().items() if v is not None}
    return {**dict.fromkeys(config.to_dict()), **defaults, **facts}


def default(field: Any) -> Any:
    """Return the default of a field of a dataclass."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return NO_VALUE if field.default is dataclasses.MISSING else field.default


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, enum.Enum):
        return plain(value.value)
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value if plain(v) is not NO_VALUE]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items() if plain(v) is not NO_VALUE}
    return value if isinstance(value, (bool, int, float, str, type(None))) else NO_VALUE


if __name__ == "__main__":
    main()
