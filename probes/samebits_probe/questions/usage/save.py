"""Questions about saving a model and about gradient checkpointing."""

from __future__ import annotations

import functools
import inspect
import json
from typing import Any

from samebits_probe.questions.usage.subject import Subject, error_text

Facts = dict[str, Any]
_DTYPE_KEYS = ("torch_dtype", "dtype")


def checkpointing(subject: Subject) -> Facts:
    """Return the use_reentrant that gradient_checkpointing_enable() chooses by default."""
    model = subject.model
    try:
        model.gradient_checkpointing_enable()
    except Exception as error:  # noqa: BLE001  a class without it is a fact
        return {"refused": error_text(error)}
    functions = (getattr(m, "_gradient_checkpointing_func", None) for m in model.modules())
    partials = [f.keywords for f in functions if isinstance(f, functools.partial)]
    model.gradient_checkpointing_disable()
    choices = {keywords.get("use_reentrant") for keywords in partials}
    return {"use_reentrant": choices.pop() if len(choices) == 1 else None}


def saved(subject: Subject) -> Facts:
    """Return the files of save_pretrained(safe_serialization=False), and the dtype's key."""
    shard = inspect.signature(subject.model.save_pretrained).parameters.get("max_shard_size")
    facts: Facts = {"max_shard_size": "" if shard is None else str(shard.default)}
    try:
        subject.model.save_pretrained(subject.folder, safe_serialization=False)
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return facts | {"refused": error_text(error)}
    config = json.loads((subject.folder / "config.json").read_text("utf-8"))
    return facts | {
        "files": sorted(path.name for path in subject.folder.iterdir() if path.is_file()),
        "dtype_keys": [key for key in _DTYPE_KEYS if key in config],
    }
