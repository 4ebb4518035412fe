"""A program made of the model, and what it computes beside the model's own forward.

A program holds the operations of one forward. What Python decided on the way, such as that a mask of ones
is no mask, is in it for good. So it is run on the inputs that it was made of, and on others with the same
shapes: other tokens, other pixels, and a mask with a padded end.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch

from samebits_probe.model import forks, outputs
from samebits_probe.model.distance import pooled
from samebits_probe.model.inputs import has_media, in_dtype, tensors_of
from samebits_probe.process.failure import raised
from samebits_probe.process.quiet import undisturbed

Facts = dict[str, Any]
Tensors = tuple[torch.Tensor, ...]
_IDS, _MASK = "input_ids", "attention_mask"
FIELDS = ("own", "others")
"""Distances of a program from the model: on the inputs that it was made of, and on others."""


class _Called(torch.nn.Module):  # type: ignore[misc]  # torch is not installed where mypy runs
    """A model whose forward takes and returns tensors alone, by their order."""

    def __init__(self, model: Any, names: tuple[str, ...], fixed: Facts) -> None:
        super().__init__()
        self.model = model
        self._names = names
        self._fixed = fixed

    def forward(self, *values: torch.Tensor) -> Tensors:
        """Return the tensors of numbers in the output, in its order.

        Counts, such as the shifts of positions of Qwen2-VL, are constants, and a trace refuses those.
        """
        output = self.model(**dict(zip(self._names, values, strict=True)), **self._fixed)
        return tuple(t for t in outputs.tensors(output).values() if t.is_floating_point())


def _export(called: _Called, values: Tensors) -> Callable[..., Any]:
    program: Callable[..., Any] = torch.export.export(called, values, strict=False).module()
    return program


def _trace(called: _Called, values: Tensors) -> Callable[..., Any]:
    program: Callable[..., Any] = torch.jit.trace(called, values, strict=False, check_trace=False)
    return program


WAYS: Mapping[str, Callable[[_Called, Tensors], Callable[..., Any]]] = {
    "torch.export": _export,
    "torch.jit.trace": _trace,
}
"""Way to make a program -> what makes it."""
DEAR = frozenset({"torch.export"})
"""Ways that cost several times a trace."""


class Inputs(NamedTuple):
    """The arguments of a prompt, as a program takes them."""

    names: tuple[str, ...]
    values: Tensors
    others: Tensors
    """Other values of the same shapes and dtypes."""
    fixed: Facts
    """The arguments that are no tensors."""


def inputs(model: Any, kwargs: Facts) -> Inputs:
    """Return the arguments of a prompt without a cache; a program is made of its mask with ones alone."""
    given = kwargs | forks.uncached(model)
    tensors = tensors_of(given)
    fixed = {name: value for name, value in given.items() if name not in tensors}
    keeps_ids = has_media(given)
    others = tuple(_other(name, value, keeps_ids=keeps_ids) for name, value in tensors.items())
    mask = tensors.get(_MASK)
    if mask is not None and not mask.is_floating_point():
        tensors[_MASK] = torch.ones_like(mask)
    return Inputs((*tensors,), (*tensors.values(),), others, fixed)


def _other(name: str, value: torch.Tensor, *, keeps_ids: bool) -> torch.Tensor:
    """Return other values of an argument: where there is an image, its tokens stay where they are."""
    if value.is_floating_point():
        return value.flip(-1)
    if name.endswith(_IDS) and not keeps_ids:
        return value.roll(1, dims=-1)
    if name == _MASK and value.ndim == 2 and not keeps_ids:
        mask = torch.ones_like(value)
        # no query is without a key, as causal ones see the tokens before them
        mask[-1, -(value.shape[1] // 3) :] = 0
        return mask
    return value


def made(model: Any, kwargs: Facts, way: str) -> Facts:
    """Return what a program of the model computes: Program of samebits/questions/exports/records.py.

    Distances that are not 0 are measured once more in float64, of a program that is made in float64.
    """
    facts = _measured(model, inputs(model, kwargs), way)
    facts.pop("of_inputs", None)
    if any(facts.get(field) for field in FIELDS):
        wide = inputs(model, in_dtype(kwargs, torch.float64))
        precise = _measured(copy.deepcopy(model).double(), wide, way)
        facts |= {f"{field}_in_float64": precise.get(field) for field in FIELDS if field in facts}
        facts["of_inputs"] = precise.get("of_inputs")
    return facts


def _measured(model: Any, given: Inputs, way: str) -> Facts:
    called = _Called(model, given.names, given.fixed)
    with torch.no_grad(), quiet():
        own, others = called(*given.values), called(*given.others)
        if _apart(own, called(*given.values)):
            return {"left_out": "forward gives other numbers each time"}
        facts: Facts = {"of_inputs": _apart(own, others)}
        try:
            program = WAYS[way](called, given.values)
            facts["own"] = _apart(own, program(*given.values))
            facts["others"] = _apart(others, program(*given.others))
        except Exception as error:  # noqa: BLE001  a refusal is an answer
            facts["refused"] = raised(error)
    return facts


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence what torch prints and logs while it makes a program, such as whole graphs of one that it cannot make."""
    nothing = io.StringIO()
    with (
        # a trace warns of each value that Python reads: what comes of it is measured
        undisturbed(logging.CRITICAL),
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        yield


def _apart(model: Tensors, program: Tensors) -> float:
    """Return the largest distance of tensors in pairs; that of NaN if their number or shapes differ."""
    if [tensor.shape for tensor in model] != [tensor.shape for tensor in program]:
        return sys.float_info.max
    largest: float = pooled(zip(model, program, strict=True))["max_abs"]
    return largest
