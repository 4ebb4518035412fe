"""Comparison of what Trainer evaluates in two releases, by the weights of the checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from samebits.questions.trainer.records import TrainerItem

if TYPE_CHECKING:
    from samebits.questions.trainer.records import Evaluated, TrainerFile
    from samebits.questions.training.judge import Sides

OUTCOME = "predict()"
RETURNS = "returns predictions"
FED = ("arguments", "num_items_in_batch")
"""What the model is fed beside the rows, which it may ignore."""


def evaluation_changes(
    reference: Evaluated, candidate: Evaluated
) -> Iterator[tuple[str, str, str]]:
    """Yield what an evaluation does otherwise: its name, and what both sides do."""
    if reference.refused or candidate.refused:
        if not (reference.refused and candidate.refused):
            yield OUTCOME, reference.refused or RETURNS, candidate.refused or RETURNS
        return
    candidate_texts = _texts(candidate)
    yield from ((name, text, candidate_texts[name]) for name, text in _texts(reference).items())


def _texts(of: Evaluated) -> dict[str, str]:
    """Return what an evaluation fed and returned, as text by name."""
    facts: dict[str, Sequence[object]] = {
        "rows": [*chain.from_iterable(forward.rows for forward in of.received)],
        "arguments": sorted({name for forward in of.received for name in forward.names}),
        "num_items_in_batch": [forward.items for forward in of.received],
        "predictions": of.predictions,
        "labels": of.labels,
    }
    return {name: ", ".join(map(_word, values)) for name, values in facts.items()}


def _word(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def loss_of(pair: Sides[TrainerFile]) -> TrainerItem | None:
    """Return how the losses of the evaluation compare; None where a side has none."""
    files = (pair.reference, pair.candidate)
    own = [file.own.evaluation.loss if file.own is not None else None for file in files]
    if None in own:
        return None
    item = TrainerItem(
        signal="evaluation loss", outcome="identical", reference=own[0], candidate=own[1]
    )
    high = [file.float64.evaluation.loss if file.float64 is not None else None for file in files]
    return pair.numbers(item, high, "")
