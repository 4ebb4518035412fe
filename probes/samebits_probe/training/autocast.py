"""Training in bfloat16 in two ways: weights in bfloat16, or wider weights under autocast.

They round in other places, so no byte of them must agree, and the distance is recorded. They are one
function: in float64, where neither rounds, what remains is code that looks at autocast or at its
dtype.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch

from samebits_probe.training.way import NoMeaning, learned, lesson

if TYPE_CHECKING:
    from samebits_probe.training.learner import Learner
    from samebits_probe.training.way import Results, Setting, Way

_LOW = torch.bfloat16


def as_weights(learner: Learner, setting: Setting) -> tuple[Way, Way]:
    """Return a step with weights in bfloat16, and one under autocast with the same numbers.

    Raises:
        NoMeaning: the cell's dtype is neither float32 nor bfloat16.

    """
    if learner.dtype not in (torch.float32, _LOW):
        msg = "only models in float32 and bfloat16 are trained in bfloat16"
        raise NoMeaning(msg)
    plain, again = lesson(setting.main), learned(setting.main.kwargs)

    def weights(other: Learner) -> Results:
        if other.promoted is not None:
            return plain(other)
        return _wide(again(other.beside(_in_bfloat16(other.model), _LOW)))

    def under_autocast(other: Learner) -> Results:
        if other.promoted is not None:
            with other.under(_LOW):
                return again(other)
        wide = other.beside(_in_bfloat16(other.model).to(torch.float32), torch.float32)
        with wide.under(_LOW):
            return _wide(again(wide))

    return weights, under_autocast


def _in_bfloat16(model: torch.nn.Module) -> torch.nn.Module:
    """Return a copy with parameters in bfloat16; buffers stay, as a load in bfloat16 leaves them."""
    low = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in low.parameters():
            if parameter.is_floating_point():
                parameter.data = parameter.data.to(_LOW)
    return low


def _wide(results: Results) -> Results:
    return {name: tensor.to(torch.float32) for name, tensor in results.items()}
