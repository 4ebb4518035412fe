"""Whether the moments that Trainer saves in one release fit the parameters of another one.

``optimizer.pt`` has them by group and place, without a name, so a training that is resumed gives each
parameter what stands at its place.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from samebits.text.numbers import plural

if TYPE_CHECKING:
    from samebits.questions.trainer.records import Held, TrainerRun, TrainerSubject


class Misplaced(NamedTuple):
    """A difference between the optimizers of two releases, and its first example on each side."""

    subject: TrainerSubject
    name: str
    reference: str
    candidate: str


def misplaced(
    reference: TrainerRun, candidate: TrainerRun, uncertain: Collection[str]
) -> Misplaced | None:
    """Return what keeps the moments of one run from being those of the other; None if they fit.

    Where a group has another size or a parameter another shape, torch raises. Where all shapes are the same,
    parameters silently get the moments of others. Tensors whose place is not sure are no evidence of that.
    """
    groups = (reference.order, candidate.order)
    sizes = ["groups of " + ", ".join(str(len(group)) for group in side) for side in groups]
    if sizes[0] != sizes[1]:
        return Misplaced("parameters of the optimizer", "", *sizes)
    sides = [list(chain.from_iterable(side)) for side in groups]
    pairs = list(zip(*sides, strict=True))
    if odd := next(((a, b) for a, b in pairs if a.shape != b.shape), None):
        return Misplaced("parameters of the optimizer", "", *map(_with_shape, odd))
    names = [{held.name for held in side} for side in sides]
    wrong = [
        (a.name, b.name)
        for a, b in pairs
        if a.name != b.name
        and not {a.name, b.name} & {*uncertain}
        and (a.name in names[1] or b.name in names[0])
    ]
    if not wrong:
        return None
    where = f"{len(wrong)} of {plural(len(pairs), 'parameter')}"
    return Misplaced("order of parameters", where, *wrong[0])


def _with_shape(held: Held) -> str:
    return f"{held.name} {[*held.shape]}"
