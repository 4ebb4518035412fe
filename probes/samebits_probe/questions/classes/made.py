"""The dtypes of a model that is made of the config alone, as for training from nothing: as the config says, or as asked.

Names that differ in a number only, such as those of layers, are one: ``layers.*.mlp.weight``.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import torch

from samebits_probe.model import forks, load
from samebits_probe.model.tensor import dtype_name
from samebits_probe.process import consent, progress
from samebits_probe.process.failure import in_one_line, raised

Facts = dict[str, Any]
ASKED = ("", "bfloat16", "float32")
"""Dtypes that are asked for; '' for none."""
_NUMBER = re.compile(r"\b\d+\b")


def facts(source: load.Source, model_class: Any) -> dict[str, Facts]:
    """Return ``dtype=…`` -> the dtypes of the tensors of a new model."""
    config = load.load_config(source)
    return {_name(asked): _made(source, model_class, config, asked) for asked in ASKED}


def _name(asked: str) -> str:
    return f"dtype={asked}" if asked else "no dtype"


def _made(source: load.Source, model_class: Any, config: Any, asked: str) -> Facts:
    progress.tick(f"from_config, {_name(asked)}")
    arguments = source.constructor_arguments(model_class, config)
    if asked:
        arguments |= {forks.dtype_keyword(): getattr(torch, asked)}
    try:
        with forks.default_dtype_kept():
            model = model_class._from_config(copy.deepcopy(config), **arguments)
    except consent.NOT_ASKED as error:
        return {"left_out": in_one_line(error)}
    except Exception as error:  # noqa: BLE001  an exception is one of the possible results
        return {"raised": raised(error)}
    return {"asked": asked, "dtypes": dtypes(model)}


def dtypes(model: Any) -> dict[str, list[str]]:
    """Return name -> dtypes of the floating parameters and buffers of that name."""
    by_name: dict[str, set[str]] = {}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point():
            by_name.setdefault(_NUMBER.sub("*", name), set()).add(dtype_name(tensor.dtype))
    return {name: sorted(names) for name, names in by_name.items()}
