"""Calls of the loss in a forward: what reaches cross_entropy, and pieces put in their place.

torch's ``cross_entropy`` is where the losses of all releases end, and the library's
``fixed_cross_entropy`` is what divides by num_items_in_batch, in releases and models that call it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

Facts = dict[str, Any]
ARGUMENTS = ("reduction", "ignore_index", "label_smoothing")
"""Arguments of cross_entropy that change what it computes, besides scores and labels."""
LABELS = "labels"
ITEMS = "num_items_in_batch"
_CROSS_ENTROPY = torch.nn.functional.cross_entropy


class LossCalls(TorchFunctionMode):  # type: ignore[misc]  # torch is Any to the host's mypy
    """Notes the calls of the loss while it is active, and puts pieces of other calls into them.

    ``put`` has per piece its value in each call, in order.
    """

    def __init__(self, put: Mapping[str, Sequence[Any]] | None = None) -> None:
        super().__init__()
        self.calls: list[Facts] = []
        """Labels, their number of rows and the arguments of each call of cross_entropy."""
        self.items: list[float | None] = []
        """num_items_in_batch of each call of the library's function; empty if none is called."""
        self._put = put or {}

    def __enter__(self) -> LossCalls:  # noqa: PYI034  no subclass; 3.10 has no Self
        self._library = _library()
        if self._library is not None:
            self._divides = self._library.fixed_cross_entropy
            self._library.fixed_cross_entropy = self._dividing
        super().__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        if self._library is not None:
            self._library.fixed_cross_entropy = self._divides

    def _dividing(
        self, source: Any, target: Any, num_items_in_batch: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        items = None if num_items_in_batch is None else float(num_items_in_batch)
        if ITEMS in self._put:
            number = self._put[ITEMS][len(self.items)]
            num_items_in_batch = None if number is None else int(number)
        self.items.append(items)
        return self._divides(source, target, num_items_in_batch, *args, **kwargs)

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Facts | None = None
    ) -> Any:
        """Note a call of cross_entropy, and run it with the pieces that are put in."""
        kwargs = kwargs or {}
        if func is not _CROSS_ENTROPY:
            return func(*args, **kwargs)
        bound = inspect.signature(_CROSS_ENTROPY).bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = bound.arguments
        call = len(self.calls)
        target = arguments["target"]
        self.calls.append(
            {LABELS: target.detach().clone()} | {name: arguments[name] for name in ARGUMENTS}
        )
        for name in ARGUMENTS:
            if name in self._put:
                arguments[name] = self._put[name][call]
        if LABELS in self._put:
            arguments["target"] = self._put[LABELS][call].reshape(target.shape)
        return func(*bound.args, **bound.kwargs)


def fitted(
    labels: torch.Tensor, others: torch.Tensor, n_rows: int, ignored: int
) -> torch.Tensor | None:
    """Return labels of another release for the positions of this one; None if they do not fit.

    ``others`` are this release's. One cuts the last position of each of ``n_rows`` rows off, another
    one keeps it with a label that is ignored.
    """
    if labels.numel() == others.numel():
        return labels.reshape(others.shape)
    if labels.is_floating_point() or labels.numel() % n_rows or others.numel() % n_rows:
        return None
    rows = labels.reshape(n_rows, -1)
    width = others.numel() // n_rows
    if width == rows.shape[1] + 1:
        return torch.nn.functional.pad(rows, (0, 1), value=ignored).reshape(others.shape)
    if width == rows.shape[1] - 1 and bool((rows[:, -1] == ignored).all()):
        return rows[:, :-1].reshape(others.shape)
    return None


def _library() -> Any:
    """Return transformers' module of losses; None in releases without the function that divides."""
    try:
        from transformers.loss import loss_utils  # noqa: PLC0415  releases before 4.46 have none
    except ImportError:
        return None
    return loss_utils if hasattr(loss_utils, "fixed_cross_entropy") else None
