"""Where a forward takes the largest of several equal numbers: which one it takes follows from no function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    import torch


class Ties(TorchDispatchMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Notes the operations that choose among equal floats: ``topk``, ``argmax``, ``argmin``, ``max`` and ``min`` along an axis.

    The layout of a batch decides what such an operation takes, so outputs that follow from it may differ in float64,
    too. In a model with seeded weights only a saturated function or a constant makes equal floats.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and look at its input if it chooses."""
        name = func.name().removeprefix("aten::")
        if name in _CHOOSES and _is_tied(name, *args):
            self.seen.add(name.split(".")[0])
        return func(*args, **(kwargs or {}))


_CHOOSES = {"topk", "argmax", "argmin", "max.dim", "min.dim"}


def _is_tied(name: str, values: torch.Tensor, *rest: Any) -> bool:
    """Return True if what is chosen is as large as another element that is not infinite."""
    if not values.is_floating_point() or not values.numel():
        return False
    count, dim, largest = 1, rest[0] if rest else None, not name.startswith(("argmin", "min"))
    if name == "topk":
        count, dim = rest[0], rest[1] if len(rest) > 1 else -1
        largest = rest[2] if len(rest) > 2 else True
    if dim is None or not values.ndim:
        values, dim = values.reshape(-1), 0
    count = min(count + 1, values.shape[dim])
    best = values.topk(count, dim=dim, largest=largest).values.movedim(dim, -1)
    first, second = best[..., :-1], best[..., 1:]
    return bool(((first == second) & first.isfinite()).any())
