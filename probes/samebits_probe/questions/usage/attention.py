"""Which attention the parts of a model get when a user names one: for a part, and after another one."""

from __future__ import annotations

import copy
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from samebits_probe.questions.usage.subject import error_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from samebits_probe.questions.usage.subject import Subject

Facts = dict[str, Any]
_NAMED = "_attn_implementation"


def attention(subject: Subject) -> Facts:
    """Return way -> what the parts of the config get; where that has no sdpa, for parts that are models alone."""
    config = subject.model.config
    parts = sorted(n for n, part in vars(config).items() if isinstance(part, PretrainedConfig))
    facts = _of_models(subject, config)
    if not parts or getattr(config, _NAMED, None) != "sdpa":
        return facts
    return facts | {
        "eager for one part": _of_parts(
            lambda: _loaded(config, {"": "sdpa", parts[0]: "eager"}), parts[:1]
        ),
        "eager, then sdpa": _of_parts(
            lambda: _made(subject, _made(subject, _loaded(config, None), "eager"), "sdpa"), parts
        ),
    }


def _of_models(subject: Subject, config: Any) -> Facts:
    """Return type of model -> the attention that it gets in a model that is made with eager; {} for one type alone.

    A part that a class cannot make without memory is no result.
    """
    found: dict[str, str] = {}
    with suppress(Exception), torch.device("meta"):
        named = _loaded(config, "eager")
        model = type(subject.model)._from_config(named, attn_implementation="eager")
        of_models = (m.config for m in model.modules() if isinstance(m, PreTrainedModel))
        for own in of_models:
            if value := getattr(own, _NAMED, None):
                found.setdefault(own.model_type, value)
    return {"eager for all parts": {"parts": found}} if len(found) > 1 else {}


def _loaded(config: Any, named: Any) -> Any:
    """Return the config as ``from_pretrained(attn_implementation=…)`` reads it."""
    return type(config).from_dict(copy.deepcopy(config.to_dict()), attn_implementation=named)


def _made(subject: Subject, config: Any, named: str) -> Any:
    """Return the config of a model that is made of it with an attention; no memory is taken."""
    with torch.device("meta"):
        return type(subject.model)._from_config(config, attn_implementation=named).config


def _of_parts(make: Callable[[], Any], parts: list[str]) -> Facts:
    try:
        config = make()
    except Exception as error:  # noqa: BLE001  a refusal is an answer
        return {"refused": error_text(error)}
    return {"parts": {n: str(getattr(getattr(config, n), _NAMED, None)) for n in parts}}
