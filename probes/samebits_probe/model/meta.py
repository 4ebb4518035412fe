"""Models made without values of parameters, which take neither time nor memory."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch


@contextmanager
def parameters_without_values() -> Iterator[None]:
    """Put every parameter that a module registers inside on the meta device.

    Buffers are real. ``torch.device("meta")`` would also take the tensors that buffers are made of.
    """
    register = torch.nn.Module.register_parameter

    def register_without_value(module: Any, name: str, parameter: Any) -> None:
        register(module, name, parameter)
        made = module._parameters[name]
        if type(made) is not torch.nn.Parameter or made.is_meta:
            return
        empty = torch.nn.Parameter(made.detach().to("meta"), requires_grad=made.requires_grad)
        empty.__dict__.update(made.__dict__)
        module._parameters[name] = empty

    with (
        mock.patch.object(torch.nn.Module, "register_parameter", register_without_value),
        mock.patch.object(torch.nn.Linear, "__init__", _on_meta(torch.nn.Linear.__init__)),
        mock.patch.object(torch.nn.Embedding, "__init__", _on_meta(torch.nn.Embedding.__init__)),
    ):
        yield


def _on_meta(constructor: Any) -> Any:
    """Return a module's constructor with the meta device as its default.

    It saves the memory that its parameters would have until they are registered.
    """
    place = list(inspect.signature(constructor).parameters).index("device")

    def construct(*arguments: Any, **options: Any) -> None:
        if len(arguments) <= place and options.get("device") is None:
            options["device"] = "meta"
        constructor(*arguments, **options)

    return construct
