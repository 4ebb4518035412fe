"""Discrete choices inside a forward that came out differently on the two sides.

A router's top-k takes a whole expert or none of it. Where two scores are nearly equal, rounding
decides, and the resulting difference is as large as the distance between the experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from samebits.compare.pair import TensorSource
from samebits.compare.standing import judged
from samebits.ladder.distance import tensor_distance
from samebits.ladder.steps import Climb
from samebits.records.capture import ForwardFacts
from samebits.records.ladder import Choice, Flip, RungName


def flips(climb: Climb) -> tuple[Flip, ...]:
    """Return every choice that differs in the variant's dtype."""
    return tuple(flip for prompt in climb.pair.prompts for flip in _prompt_flips(climb, prompt))


def _prompt_flips(climb: Climb, prompt: str) -> Iterator[Flip]:
    facts, _ = climb.pair.forwards(prompt)
    own, exact = _choices(climb, prompt, "own"), _choices(climb, prompt, "float64")
    if facts is None or not _comparable(own):
        return
    for index, (reference, candidate) in enumerate(zip(*own, strict=True)):
        values = climb.pair.values
        rows = differing(reference, candidate, facts, values)
        if rows is None or not rows.any():
            continue
        margins = [values.tensor(side.margin).reshape(-1)[rows] for side in (reference, candidate)]
        flip = Flip(
            prompt=prompt,
            choice=f"{reference.op} {index}",
            rows=int(rows.sum()),
            margin=float(max(side.max() for side in margins)),
            in_float64=False,
        )
        if _comparable(exact) and len(exact[0]) == len(own[0]):
            exact_reference, exact_candidate = exact[0][index], exact[1][index]
            exact_rows = differing(exact_reference, exact_candidate, facts, values)
            flip = flip.model_copy(
                update={
                    "in_float64": exact_rows is not None and bool(exact_rows.any()),
                    "other_scores": _other_scores(
                        (reference, candidate), (exact_reference, exact_candidate), rows, values
                    ),
                }
            )
        yield flip


def _other_scores(
    own: tuple[Choice, Choice],
    exact: tuple[Choice, Choice],
    rows: NDArray[np.bool_],
    values: TensorSource,
) -> bool:
    """Return True if the scores in the rows that flipped still differ in float64.

    Groups masked with 0.0 on one side and with -inf on the other, for example, are another rule.
    """
    native, promoted = (
        tensor_distance(
            reference.scores, candidate.scores, values, rows.reshape(reference.scores.shape[:-1])
        )
        for reference, candidate in (own, exact)
    )
    if native is None or promoted is None:
        return False
    return not promoted.finite_alike or judged(native.max_abs, promoted.max_abs) == "diverged"


Choices = tuple[tuple["Choice", ...], tuple["Choice", ...]]


def _choices(climb: Climb, prompt: str, name: RungName) -> Choices:
    forwards = [rung.forward.get(prompt) if rung else None for rung in climb.rungs(name)]
    reference, candidate = (forward.choices if forward else () for forward in forwards)
    return reference, candidate


def _comparable(choices: Choices) -> bool:
    """Return True if both sides make the same number of choices, of the same kind and size.

    Choices of a release that chooses in another way have no counterparts in the other one.
    """
    reference, candidate = choices
    return len(reference) == len(candidate) and all(
        a.op == b.op and a.chosen.shape == b.chosen.shape
        for a, b in zip(reference, candidate, strict=True)
    )


def differing(
    reference: Choice, candidate: Choice, facts: ForwardFacts, values: TensorSource
) -> NDArray[np.bool_] | None:
    """Return the real rows, flattened, with different sets; None if that is unknown."""
    refs = (reference.chosen, candidate.chosen, reference.margin, candidate.margin)
    if not all(map(values.has, refs)):
        return None
    a, b = values.tensor(reference.chosen), values.tensor(candidate.chosen)
    sets = np.sort(_by_row(a), axis=-1) != np.sort(_by_row(b), axis=-1)
    differs: NDArray[np.bool_] = sets.any(axis=-1)
    real = _real_rows(facts, differs.size)
    return differs if real is None else differs & real


def _by_row(chosen: NDArray[Any]) -> NDArray[Any]:
    return chosen.reshape(prod(chosen.shape[:-1]), chosen.shape[-1])


def _real_rows(facts: ForwardFacts, n: int) -> NDArray[np.bool_] | None:
    """Return which of ``n`` rows are real if they are all positions, flattened; None: unknown."""
    ids = facts.inputs.get("input_ids")
    if facts.real_rows is None or ids is None or n != ids.numel:
        return None
    positions = np.arange(ids.shape[1])
    masks = [(positions >= start) & (positions < stop) for start, stop in facts.real_rows]
    return np.concatenate(masks)
