"""What the relations of a cell are asked: over how many prompts, and of which model."""

from __future__ import annotations

from samebits.jobs.records import Options
from samebits.matrix.spec import ModelSpec
from samebits.questions.relations.records import RELATIONS
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
