"""The loss by hand: which of the usual formulas gives a model's loss from its logits and labels.

It names what a release computes, for a reader. It judges nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from samebits_probe.questions.training.batches import IGNORED

_NEAR = 1e-4
"""Largest relative distance of a loss from a formula that names it; formulas differ by far more."""


def formula(logits: torch.Tensor, labels: torch.Tensor, loss: float, items: int | None) -> str:
    """Return the name of the formula that gives ``loss``; '' if none does, or if several do.

    ``items`` is the num_items_in_batch that forward was given.
    """
    if logits.ndim not in (2, 3) or labels.shape != logits.shape[:-1] or not _fits(logits, labels):
        return ""
    wide = logits.detach().double()
    values = dict(_values(wide, labels, items) if wide.ndim == 3 else _of_rows(wide, labels, items))
    names = [name for name, value in values.items() if abs(value - loss) <= _NEAR * abs(value)]
    return names[0] if len(names) == 1 else ""


def _fits(logits: torch.Tensor, labels: torch.Tensor) -> bool:
    counted = labels[labels != IGNORED]
    return bool(counted.numel()) and int(counted.max()) < logits.shape[-1]


def _values(
    logits: torch.Tensor, labels: torch.Tensor, items: int | None
) -> Iterator[tuple[str, float]]:
    for target, scores, wanted in (
        ("the next token", logits[:, :-1], labels[:, 1:]),
        ("the same token", logits, labels),
        ("the token after the next", logits[:, :-2], labels[:, 2:]),
    ):
        each = torch.nn.functional.cross_entropy(
            scores.transpose(1, 2), wanted, ignore_index=IGNORED, reduction="none"
        )
        counted = wanted != IGNORED
        total, n = float(each.sum()), int(counted.sum())
        yield f"mean over the labels, {target}", total / max(n, 1)
        yield f"sum over the labels, {target}", total
        if n != each.numel():
            yield f"mean over all positions, {target}", total / each.numel()
        per_row = [
            float(row.sum()) / max(int(m.sum()), 1) for row, m in zip(each, counted, strict=True)
        ]
        if len({int(m.sum()) for m in counted}) > 1:
            yield f"mean of the means of rows, {target}", sum(per_row) / len(per_row)
        if items is not None:
            yield f"sum over the labels / num_items_in_batch, {target}", total / items


def _of_rows(
    logits: torch.Tensor, labels: torch.Tensor, items: int | None
) -> Iterator[tuple[str, float]]:
    each = torch.nn.functional.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
    yield "mean over the labels", float(each.sum()) / int((labels != IGNORED).sum())
    yield "sum over the labels", float(each.sum())
    if items is not None:
        yield "sum over the labels / num_items_in_batch", float(each.sum()) / items
