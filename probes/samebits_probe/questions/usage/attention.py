"""Which attention the parts of a model get when a user names one: for a part, and after another one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from transformers import PretrainedConfig, PreTrainedModel

from samebits_probe.model import forks
from samebits_probe.questions.usage.subject import Subject, error_text

Facts = dict[str, Any]
_NAMED = "_attn_implementation"


def attention(subject: Subject) -> Facts:
    """Return way -> what the parts of the config get; where that has no sdpa, for parts that are models alone."""
    config = subject.model.config
    parts = sorted(n for n, part in vars(config).items() if isinstance(part, PretrainedConfig))
    facts = _of_models(subject)
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


def _of_models(subject: Subject) -> Facts:
    """Return type of model -> the attention that it gets in a model that is loaded with eager; {} for one type alone.

    A load with eager that raises is no result: the rows of that attention have the exception.
    """
    if subject.with_eager is None or len(_models_in(subject.model)) < 2:
        return {}
    with suppress(Exception):
        return {"eager for all parts": {"parts": _models_in(subject.with_eager())}}
    return {}


def _models_in(model: Any) -> dict[str, str]:
    configs = [m.config for m in model.modules() if isinstance(m, PreTrainedModel)]
    named = {c.model_type: getattr(c, _NAMED, None) for c in reversed(configs)}
    return {name: value for name, value in named.items() if value}


def _loaded(config: Any, named: Any) -> Any:
    """Return the config as ``from_pretrained(attn_implementation=…)`` reads it."""
    loaded = type(config).from_dict(copy.deepcopy(config.to_dict()), attn_implementation=named)
    if named is not None and forks.gives_attention_again():
        loaded._attn_implementation = named
    return loaded


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
