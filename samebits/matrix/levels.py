"""Levels of a run: how much is asked of each model of a matrix.

quick: every signal and the precision ladder, and no relation, usage or crossing. default: what
matrix.yaml asks for. deep: the same for models of any size, and the second run of each cell observes
every signal once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from samebits.matrix.spec import Matrix
    from samebits.records.ids import Level

_QUICK: dict[str, Any] = {
    "relations": False,
    "samples": 0,
    "usage": False,
    "crossings": False,
    "processors": False,
    "reloads": False,
}
_DEEP: dict[str, Any] = {"insists": True, "large": True, "second_in_full": True}
_CHANGES: dict[Level, dict[str, Any]] = {"quick": _QUICK, "default": {}, "deep": _DEEP}


def at_level(matrix: Matrix, level: Level) -> Matrix:
    """Return the matrix with what its models are asked at a level."""
    if not (changes := _CHANGES[level]):
        return matrix
    models = tuple(model.model_copy(update=changes) for model in matrix.models)
    return matrix.model_copy(update={"models": models})
