"""Checks whether a model is deterministic, and whether it amplifies rounding.

In a model that uses random numbers or counts its calls, any two forwards differ, whatever their
inputs. In a chaotic model even the rounding of float64 grows to the size of the logits, so that a
difference in float64 does not prove a different function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from samebits_probe.model.tensor import tensor_hash

Forward = Callable[[], torch.Tensor | None]

NUDGE = 2.0**-48
"""Relative change of every output of the embeddings: 32 roundings of float64."""

MAX_LOGITS_CHANGE = 2.0**-8
"""Maximum change of the logits after that, relative to the largest of them.

Beyond it the model multiplies a relative difference by 2**40. The rounding of float32 is then as
large as the logits, and that of float64 may be an eighth of it, which samebits/compare/standing.py
takes for a different function. Ordinary models stay below 2**-40.
"""

CHAOTIC = "the model amplifies rounding so much that float64 is not precise enough"
NOT_REPEATED = (
    "a second forward with the same inputs gives different logits: it draws or counts its calls"
)


def repeats(forward: Forward, second_forward: Forward | None = None) -> bool:
    """Return True if two forwards, or ``forward`` and ``second_forward``, give the same bytes."""
    first, second = forward(), (second_forward or forward)()
    if first is None or second is None:
        return True
    return tensor_hash(first) == tensor_hash(second)


def chaotic(model: Any, forward: Forward) -> bool:
    """Return True if a tiny change of a float64 model's embeddings changes its logits much."""
    embeddings = _embeddings(model)
    plain = forward()
    if embeddings is None or plain is None or not plain.is_floating_point():
        return False
    with embeddings.register_forward_hook(_nudge):
        moved = forward()
    if moved is None or moved.shape != plain.shape:
        return False
    finite = torch.isfinite(plain) & torch.isfinite(moved)
    if not bool(finite.any()):
        return False
    change, largest = (moved - plain)[finite].abs().max(), plain[finite].abs().max()
    return bool(change > largest * MAX_LOGITS_CHANGE)


def _embeddings(model: Any) -> torch.nn.Module | None:
    try:
        embeddings = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):  # some classes have none
        return None
    return embeddings if isinstance(embeddings, torch.nn.Module) else None


def _nudge(_module: torch.nn.Module, _args: Any, output: Any) -> Any:
    """Increase every other number and decrease the rest: a norm would undo a common factor."""
    if not isinstance(output, torch.Tensor) or not output.is_floating_point():
        return output
    signs = torch.ones_like(output).flatten()
    signs[::2] = -1
    return output * (1 + NUDGE * signs.reshape(output.shape))
