"""Outputs of every layer in order of execution, recorded by hooks.

``output_hidden_states`` is not used, because its content changed between releases, for example
whether the last entry is taken before or after the final norm. A hook on a layer does not change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

Take = Callable[[str, torch.Tensor], None]

LayerOutput = tuple[str, torch.Tensor]


def layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Return the model's layers: the elements of every ModuleList that is not in another one."""
    named_layers: list[tuple[str, torch.nn.Module]] = []
    containers: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.ModuleList) or name.startswith(containers):
            continue
        containers += (f"{name}.",)
        # a list may hold None in place of a layer that is left out: Informer's last one of its conv_layers
        named_layers += [
            (f"{name}.{index}", layer) for index, layer in enumerate(module) if layer is not None
        ]
    return named_layers


def _names_of_layers(model: torch.nn.Module) -> dict[torch.nn.Module, list[str]]:
    """Return each layer once, with its names in the first list that holds it.

    A list may hold one layer several times, and its calls go through its names in turn. So the second head of
    Grounding DINO is ``bbox_embed.1`` in 4.57, where all are one module, and in 5.0, where each has its own that
    shares the weights.
    """
    names: dict[torch.nn.Module, list[str]] = {}
    for name, layer in layers(model):
        of_layer = names.setdefault(layer, [])
        if not of_layer or of_layer[0].rpartition(".")[0] == name.rpartition(".")[0]:
            of_layer.append(name)
    return names


class Recorder:
    """Takes the outputs of a model's layers during :meth:`recording` or :meth:`passing_to`.

    Its hooks stay on the model until :meth:`remove`. Finding and hooking the layers for each of a
    thousand forwards would cost a tenth of a small forward.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._take: Take | None = None
        self._has_begun = False
        self._calls: Counter[str] = Counter()
        self._hooks: list[Any] = []
        for layer, names in _names_of_layers(model).items():
            self._hooks += [
                layer.register_forward_pre_hook(self._take_input, with_kwargs=True),
                layer.register_forward_hook(self._output_hook(names)),
            ]

    @contextmanager
    def recording(self) -> Iterator[list[LayerOutput]]:
        """Record copies of the first layer's input and of every layer's output."""
        outputs: list[LayerOutput] = []
        with self.passing_to(lambda name, tensor: outputs.append((name, tensor.detach().clone()))):
            yield outputs

    @contextmanager
    def passing_to(self, take: Take) -> Iterator[None]:
        """Pass each of these tensors to ``take`` with its name; the model may change it later."""
        self.begin(take)
        try:
            yield
        finally:
            self._take = None

    def begin(self, take: Take) -> None:
        """Pass the tensors of the next forward to ``take``, the first layer's input included."""
        self._take, self._has_begun = take, False
        self._calls.clear()

    def remove(self) -> None:
        """Leave the model without hooks."""
        for hook in self._hooks:
            hook.remove()

    def _take_input(self, _module: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if self._take is None or self._has_begun:
            return
        first = args[0] if args else kwargs.get("hidden_states")
        if isinstance(first, torch.Tensor):
            self._has_begun = True
            self._take("embeddings", first)

    def _output_hook(self, names: list[str]) -> Any:
        def hook(_module: torch.nn.Module, _args: Any, output: Any) -> None:
            if self._take is None:
                return
            if (tensor := first_tensor(output)) is not None:
                self._has_begun = True
                call = self._calls[names[0]]
                self._calls[names[0]] += 1
                self._take(names[call % len(names)], tensor)

        return hook


@contextmanager
def recorded(model: torch.nn.Module) -> Iterator[list[LayerOutput]]:
    """Record one forward or a few, and remove the hooks afterwards."""
    recorder = Recorder(model)
    try:
        with recorder.recording() as outputs:
            yield outputs
    finally:
        recorder.remove()


@contextmanager
def passed_to(model: torch.nn.Module, take: Take) -> Iterator[None]:
    """Pass the layers of one forward to ``take`` as they are computed, and remove the hooks."""
    recorder = Recorder(model)
    try:
        with recorder.passing_to(take):
            yield
    finally:
        recorder.remove()


def first_tensor(output: Any) -> torch.Tensor | None:
    """Return a layer's main output: the output itself, or the first tensor of a tuple or mapping.

    A decoder layer returned a tuple through 4.53 and a tensor from 4.57 on.
    """
    if isinstance(output, torch.Tensor):
        return output
    values = output.values() if hasattr(output, "values") else output
    if not isinstance(values, (tuple, list)) and not hasattr(output, "values"):
        return None
    return next((value for value in values if isinstance(value, torch.Tensor)), None)


_ROTARY = re.compile(r"Rotary|RoPE|Rope(?![a-z])")


def rotary_modules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules that compute cos and sin, each once even if layers share it."""
    return [
        module
        for module in model.modules()
        if _ROTARY.search(type(module).__name__) and not list(module.children())
    ]
