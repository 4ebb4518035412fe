"""Can a model be judged by running it twice: does it repeat itself, and does rounding stay small?

Of a model that draws, or counts its calls, two ways to feed it are apart by that alone. Of one that
is chaotic even float64's rounding grows until nothing is left of it, so that what stays apart there
is no other function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from samebits_probe.model.tensor import tensor_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    Forward = Callable[[], torch.Tensor | None]

NUDGE = 2.0**-48
"""What every number behind the embeddings is moved by, relative to itself: 32 roundings of float64."""

GROWN = 2.0**-8
"""How far the logits may move for that, relative to the largest of them.

Beyond it the model multiplies a relative difference by 2**40. float32's rounding is then as large as
the logits, and float64's may be an eighth of that, which samebits/compare/standing.py takes for another
function. Ordinary models stay below 2**-40.
"""

CHAOTIC = "the model amplifies rounding so much that float64 does not hold it down"
NOT_REPEATED = (
    "the model, fed the same once more, gives other logits: it draws, or counts its calls"
)


def repeats(forward: Forward, second_forward: Forward | None = None) -> bool:
    """Return True if two forwards give the same bytes, the second that of ``again`` if given."""
    first, second = forward(), (second_forward or forward)()
    if first is None or second is None:
        return True
    return tensor_hash(first) == tensor_hash(second)


def chaotic(model: Any, forward: Forward) -> bool:
    """Return True if rounding of what leaves the embeddings of a float64 model moves its logits."""
    embeddings = _embeddings(model)
    plain = forward()
    if embeddings is None or plain is None or not plain.is_floating_point():
        return False
    hook = embeddings.register_forward_hook(_nudge)
    try:
        moved = forward()
    finally:
        hook.remove()
    if moved is None or moved.shape != plain.shape:
        return False
    finite = torch.isfinite(plain) & torch.isfinite(moved)
    if not bool(finite.any()):
        return False
    change, largest = (moved - plain)[finite].abs().max(), plain[finite].abs().max()
    return bool(change > largest * GROWN)


def _embeddings(model: Any) -> torch.nn.Module | None:
    try:
        embeddings = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):  # some classes have none
        return None
    return embeddings if isinstance(embeddings, torch.nn.Module) else None


def _nudge(_module: torch.nn.Module, _args: Any, output: Any) -> Any:
    """Move every other number up and the rest down: a norm would undo a common factor."""
    if not isinstance(output, torch.Tensor) or not output.is_floating_point():
        return output
    signs = torch.ones_like(output).flatten()
    signs[::2] = -1
    return output * (1 + NUDGE * signs.reshape(output.shape))
