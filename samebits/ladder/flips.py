"""Which discrete choices inside a forward came out differently on the two sides?

A router's top-k takes a whole expert or none of it: where two scores are nearly equal, rounding
decides, and the difference behind it is as large as the experts are apart.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from samebits.compare.standing import Standing, judged
from samebits.ladder.distance import apart
from samebits.records.ladder import Flip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from samebits.compare.pair import TensorSource
    from samebits.ladder.steps import Climb
    from samebits.records.capture import ForwardFacts
    from samebits.records.ladder import Choice, RungName


def flips(climb: Climb) -> tuple[Flip, ...]:
    """Return every choice that differs in the variant's dtype."""
    return tuple(flip for prompt in climb.pair.prompts for flip in _of_prompt(climb, prompt))


def _of_prompt(climb: Climb, prompt: str) -> Iterator[Flip]:
    facts, _ = climb.pair.forwards(prompt)
    own, exact = _choices(climb, prompt, "own"), _choices(climb, prompt, "float64")
    if facts is None or not _alike(own):
        return
    for index, (mine, theirs) in enumerate(zip(*own, strict=True)):
        values = climb.pair.values
        rows = differing(mine, theirs, facts, values)
        if rows is None or not rows.any():
            continue
        margins = [values.tensor(side.margin).reshape(-1)[rows] for side in (mine, theirs)]
        found = Flip(
            prompt=prompt,
            choice=f"{mine.op} {index}",
            rows=int(rows.sum()),
            margin=float(max(side.max() for side in margins)),
            in_float64=False,
        )
        if _alike(exact) and len(exact[0]) == len(own[0]):
            one, other = exact[0][index], exact[1][index]
            there = differing(one, other, facts, values)
            found = found.model_copy(
                update={
                    "in_float64": there is not None and bool(there.any()),
                    "other_scores": _other_scores((mine, theirs), (one, other), rows, values),
                }
            )
        yield found


def _other_scores(
    own: tuple[Choice, Choice],
    exact: tuple[Choice, Choice],
    rows: NDArray[np.bool_],
    values: TensorSource,
) -> bool:
    """Return True if what was chosen from, in the rows that flipped, stays apart in float64.

    Groups masked with 0.0 on one side and with -inf on the other, for one, are another rule.
    """
    low, high = (
        apart(one.scores, other.scores, values, rows.reshape(one.scores.shape[:-1]))
        for one, other in (own, exact)
    )
    if low is None or high is None:
        return False
    return not high.finite_alike or judged(low.max_abs, high.max_abs) == Standing.STAYS


Choices = tuple[tuple["Choice", ...], tuple["Choice", ...]]


def _choices(climb: Climb, prompt: str, name: RungName) -> Choices:
    found = [rung.forward.get(prompt) if rung else None for rung in climb.rungs(name)]
    one, other = (forward.choices if forward else () for forward in found)
    return one, other


def _alike(choices: Choices) -> bool:
    """Return True if both sides choose as often, of the same and as many each time.

    A release that chooses in another way cannot be laid beside this one choice by choice.
    """
    one, other = choices
    return len(one) == len(other) and all(
        a.op == b.op and a.chosen.shape == b.chosen.shape for a, b in zip(one, other, strict=True)
    )


def differing(
    one: Choice, other: Choice, facts: ForwardFacts, values: TensorSource
) -> NDArray[np.bool_] | None:
    """Return the real rows, in a line, where another set was taken; None if that is not known."""
    refs = (one.chosen, other.chosen, one.margin, other.margin)
    if not all(map(values.has, refs)):
        return None
    a, b = values.tensor(one.chosen), values.tensor(other.chosen)
    sets = np.sort(_lines(a), axis=-1) != np.sort(_lines(b), axis=-1)
    where: NDArray[np.bool_] = sets.any(axis=-1)
    real = _real(facts, where.size)
    return where if real is None else where & real


def _lines(chosen: NDArray[Any]) -> NDArray[Any]:
    return chosen.reshape(prod(chosen.shape[:-1]), chosen.shape[-1])


def _real(facts: ForwardFacts, n: int) -> NDArray[np.bool_] | None:
    """Return which of ``n`` rows are real if they are all positions in a line; None: unknown."""
    ids = facts.inputs.get("input_ids")
    if facts.real_rows is None or ids is None or n != ids.numel:
        return None
    places = np.arange(ids.shape[1])
    masks = [(places >= start) & (places < stop) for start, stop in facts.real_rows]
    return np.concatenate(masks)
