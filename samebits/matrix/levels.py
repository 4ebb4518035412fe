"""Levels of a run: how much is asked of each model of a matrix.

quick: every signal and the precision ladder, and hardly a question beside the verdict. default: what
matrix.yaml asks for. deep: the same for models of any size, and the second run of each cell observes
every signal once more.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from samebits.matrix.spec import Matrix
from samebits.records.ids import Level
from samebits.records.question import keys

_QUICK: dict[str, Any] = {"samples": 0, "reloads": False}
_DEEP: dict[str, Any] = {"large": True, "second_in_full": True}
_CHANGES: dict[Level, dict[str, Any]] = {"quick": _QUICK, "default": {}, "deep": _DEEP}


def at_level(matrix: Matrix, level: Level) -> Matrix:
    """Return the matrix with what its models are asked at a level."""
    if not (changes := _CHANGES[level]):
        return matrix
    if level == "quick":
        matrix = without(matrix, {key.name for key in keys() if not key.always})
    models = tuple(model.model_copy(update=changes) for model in matrix.models)
    return matrix.model_copy(update={"models": models})


def without(matrix: Matrix, questions: Collection[str]) -> Matrix:
    """Return the matrix without some questions."""
    models = tuple(model.without(questions) for model in matrix.models)
    return matrix.model_copy(update={"models": models})


def without_pairs(matrix: Matrix) -> Matrix:
    """Return the matrix without the questions that run for each pair of stacks."""
    return without(matrix, {key.name for key in keys() if key.of_pairs})
