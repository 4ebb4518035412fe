"""Models made without values of parameters, which take neither time nor memory."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def parameters_without_values() -> Iterator[None]:
    """Put every parameter that a module registers inside on the meta device.

    Buffers are real. ``torch.device("meta")`` would also take the tensors that buffers are made of.
    """
    module_class = torch.nn.Module
    register = module_class.register_parameter
    constructors = {kind: kind.__init__ for kind in (torch.nn.Linear, torch.nn.Embedding)}

    def register_without_value(module: Any, name: str, parameter: Any) -> None:
        register(module, name, parameter)
        made = module._parameters[name]
        if type(made) is not torch.nn.Parameter or made.is_meta:
            return
        empty = torch.nn.Parameter(made.detach().to("meta"), requires_grad=made.requires_grad)
        empty.__dict__.update(made.__dict__)
        module._parameters[name] = empty

    module_class.register_parameter = register_without_value
    for kind, constructor in constructors.items():
        kind.__init__ = _on_meta(constructor)
    try:
        yield
    finally:
        module_class.register_parameter = register
        for kind, constructor in constructors.items():
            kind.__init__ = constructor


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
