"""Where the draws of a training forward with dropout moved, with one seed in both releases.

It says where, and judges nothing: no release promises which numbers a seed gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from samebits.records.training import Draw, TrainingFile


def moved(reference: TrainingFile, candidate: TrainingFile) -> str:
    """Return how the draws of two steps differ in one line; '' if they do not, or if no side draws."""
    sides = (reference.chance, candidate.chance)
    stacks = (reference.cell.stack, candidate.cell.stack)
    if sides[0] is None or sides[1] is None:
        draws = [stack for stack, side in zip(stacks, sides, strict=True) if side is not None]
        return f"only {draws[0]} draws numbers in training" if draws else ""
    if sides[0].refused or sides[1].refused:
        return ""
    pairs = zip(sides[0].draws, sides[1].draws, strict=False)
    for number, (first, second) in enumerate(pairs, 1):
        if first.hash != second.hash:
            return f"draw {number} moved: {_line(first, stacks[0])}, {_line(second, stacks[1])}"
    if sides[0].n != sides[1].n:
        return f"{sides[0].n} draws in {stacks[0]}, {sides[1].n} in {stacks[1]}"
    return _of_losses(reference, candidate)


def _line(draw: Draw, stack: str) -> str:
    where = f" in {draw.module}" if draw.module else ""
    return f"{draw.operation} {list(draw.shape)}{where} in {stack}"


def _of_losses(reference: TrainingFile, candidate: TrainingFile) -> str:
    """Return that the same draws are used otherwise, where the loss without them is the same."""
    assert reference.chance is not None
    assert candidate.chance is not None
    plain = [_loss(side) for side in (reference, candidate)]
    losses = (reference.chance.loss, candidate.chance.loss)
    if None in plain or None in losses or plain[0] != plain[1] or losses[0] == losses[1]:
        return ""
    return f"the draws are the same, and the loss with them is {losses[0]:.6g} → {losses[1]:.6g}"


def _loss(side: TrainingFile) -> float | None:
    """Return the loss of the first batch without dropout."""
    batches = side.own.batches.values() if side.own is not None else ()
    return next((batch.loss for batch in batches), None)
