"""The model that is edited, what it computes before, and what comes of an edit.

The facts have the form of Edit in samebits/questions/edits/records.py.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

from samebits_probe.model import load, outputs
from samebits_probe.model.distance import gaps
from samebits_probe.model.tensor import same_bytes
from samebits_probe.process import consent
from samebits_probe.process.failure import in_one_line, raised

Facts = dict[str, Any]
Tensors = Mapping[str, torch.Tensor]
_SAME, _ROUNDING = 1e-4, 64
"""Share of the largest output, and units of a dtype's epsilon, up to which outputs are the same: far above what a
product of another width rounds otherwise."""
MAX_NAMES = 4
EDIT = ""
"""Name of the step that is the edit itself."""
SAVING = ("save_pretrained", "from_pretrained", "forward of the saved model")
"""The steps of :func:`save_and_load`."""


class LeftOut(Exception):  # noqa: N818  an edit that does not apply is a result
    """The edit has no meaning for this model; the message says why."""


class Subject(NamedTuple):
    """One model as it was loaded."""

    model: Any
    source: load.Source
    kwargs: Facts
    """Arguments of a forward that answers."""
    folder: Path
    """For files; empty."""

    def forward(self, model: Any = None, **more: Any) -> dict[str, torch.Tensor]:
        """Return copies of what a model computes, the subject's own by default, by name: of numbers alone."""
        with torch.no_grad():
            result = (self.model if model is None else model)(**(self.kwargs | more))
        named = outputs.tensors(result)
        return {n: t.detach().clone() for n, t in named.items() if t.is_floating_point()}

    def saved(self, name: str = "saved") -> load.Source:
        """Return the source of a copy that a save leaves in the folder."""
        return self.source.at(str(self.folder / name))


class Done:
    """What comes of an edit, step by step."""

    def __init__(self) -> None:
        self.raised: dict[str, str] = {}
        self.facts: dict[str, tuple[str, str]] = {}
        self.broken: dict[str, str] = {}
        self.new: dict[str, Facts] = {}
        self.left_out = ""

    def step(self, name: str, call: Callable[[], Any]) -> Any:
        """Return what a step returns; None, with its exception, if it raises."""
        try:
            result = call()
        except consent.NOT_ASKED as error:
            self.left_out = in_one_line(error)
        except Exception as error:  # noqa: BLE001  that it raises is the observation
            self.raised[name] = raised(error)
        else:
            self.raised[name] = ""
            return result
        return None

    @contextmanager
    def leaving_out(self) -> Iterator[None]:
        """Keep the reason of an edit that does not apply."""
        try:
            yield
        except LeftOut as reason:
            self.left_out = str(reason)

    def keeps(self, what: str, before: Tensors, after: Tensors) -> None:
        """Note tensors of ``before`` that ``after`` lacks, or has with other bytes."""
        names = [
            name
            for name, tensor in before.items()
            if name not in after
            or tensor.shape != after[name].shape
            or not same_bytes(tensor, after[name])
        ]
        if names:
            more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
            self.broken[what] = ", ".join(names[:MAX_NAMES]) + more

    def computes(
        self, what: str, before: Tensors, after: Tensors, tokens: Container[int] = ()
    ) -> None:
        """Note outputs that differ by more than rounding; a last axis of ``tokens`` may have another length."""
        for name, first in before.items():
            if name not in after:
                continue
            second = after[name]
            if second.is_meta:
                self.broken[what] = f"{name} has no values"
                return
            if first.ndim == second.ndim and first.shape[-1:] and first.shape[-1] in tokens:
                common = min(first.shape[-1], second.shape[-1])
                first, second = first[..., :common], second[..., :common]  # noqa: PLW2901
            scale = (
                float(first.double().abs().nan_to_num(posinf=0.0).max()) if first.numel() else 0.0
            )
            eps = torch.finfo(first.dtype).eps if first.is_floating_point() else 0.0
            largest = max(gaps(first, second).tolist(), default=0.0)
            if largest > scale * max(_SAME, _ROUNDING * eps):
                self.broken[what] = f"{name} by up to {largest:.2g} of {scale:.2g}"
                return

    def content(self) -> Facts:
        """Return all of it."""
        if self.left_out:
            return {"left_out": self.left_out}
        content = vars(self) | {"raised": self.raised}
        return {name: value for name, value in content.items() if value}


def parameters(model: Any) -> dict[str, torch.Tensor]:
    """Return copies of the parameters by all their names, those of tied ones included."""
    named = model.named_parameters(remove_duplicate=False)
    return {name: tensor.detach().clone() for name, tensor in named}


def state(model: Any) -> dict[str, torch.Tensor]:
    """Return copies of what a model saves."""
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}


def save_and_load(subject: Subject, model: Any, done: Done, name: str) -> None:
    """Save a model, load it again by its own class, and note what changes on the way."""
    source = subject.saved(name)
    before = state(model)
    if done.step(SAVING[0], lambda: model.save_pretrained(source.where) or True) is None:
        return
    loading = lambda: load.from_pretrained(type(model), source, 0, name)[0]
    loaded = done.step(SAVING[1], loading)
    if loaded is None:
        return
    after = state(loaded)
    done.keeps("saved tensors", {n: t for n, t in before.items() if n in after}, after)
    outputs_before = subject.forward(model)
    again = done.step(SAVING[2], lambda: subject.forward(loaded))
    if again is not None:
        done.computes("saved outputs", outputs_before, again)
