"""What a release answers whichever model is asked: findings that belong to a stack, not to a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.registry import RULES
from samebits.records.finding import StackFinding

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.records.comparison import CellResult

_CODES = frozenset(rule.text.code for rule in RULES if rule.text.scope == "release")


def of_the_model(result: CellResult) -> CellResult:
    """Return the result with the findings alone that are about its model."""
    kept = tuple(finding for finding in result.findings if finding.code not in _CODES)
    return result.model_copy(update={"findings": kept})


def of_stacks(results: Iterable[CellResult]) -> dict[str, tuple[StackFinding, ...]]:
    """Return the findings about each stack, each once with the models that show it."""
    found: dict[str, dict[str, StackFinding]] = {}
    for result in results:
        stack, model = found.setdefault(result.cell.stack, {}), result.cell.model
        for finding in result.findings:
            if finding.code not in _CODES:
                continue
            known = stack.get(finding.code) or StackFinding(**finding.model_dump(), models=())
            models = tuple(dict.fromkeys((*known.models, model)))
            stack[finding.code] = known.model_copy(update={"models": models})
    return {
        name: tuple(known for _, known in sorted(stack.items())) for name, stack in found.items()
    }
