"""What the relations of a cell are asked: over how many prompts, and of which model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.jobs.records import Options
from samebits.questions.relations.records import RELATIONS, RelationsOfRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samebits.matrix.spec import ModelSpec
    from samebits.questions.relations.records import Relation, RelationsSignal
    from samebits.records.capture import Capture
    from samebits.records.ids import CellId

_INSISTING = frozenset({RELATIONS.name, "samples"})
"""Settings of a model's own entry by which the model itself answers, at any size."""


class RelationOptions(Options):
    """How the relations inside a cell are tested."""

    samples: int
    """Number of prompts over which the error of the cache is averaged."""


def options(_cell: CellId, model: ModelSpec) -> RelationOptions:
    """Return how the relations inside a cell are tested."""
    insisted = not _INSISTING.isdisjoint(model.own)
    return RelationOptions(samples=model.samples, large=model.large or insisted)


def of_captures(captures: Mapping[str, Capture], _reference: str) -> RelationsOfRow | None:
    """Return the relations of a row's cells, without what is the same on both sides."""
    signals = RELATIONS.by_stack(captures)
    stacks = {stack: _trimmed(signal) for stack, signal in signals.items()}
    return RelationsOfRow(stacks=stacks) if stacks else None


def _trimmed(signal: RelationsSignal) -> RelationsSignal:
    """Return a cell's relations; exact ones without the zeros of each layer and position."""
    return signal.model_copy(update={"relations": tuple(map(_relation, signal.relations))})


def _relation(relation: Relation) -> Relation:
    distances = [relation.distance, *(layer.distance for layer in relation.layers)]
    if not relation.holds or any(distance and distance.n_differ for distance in distances):
        return relation
    return relation.model_copy(update={"layers": (), "positions": (), "top": (), "cache": ()})
