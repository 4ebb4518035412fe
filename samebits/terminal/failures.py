"""What failed in the cells of one model, each failure said once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from samebits.records.ids import CellId

Outcome = tuple[str, str]
"""How a cell ended (status of its first run), and in one line why; '' if nothing failed."""

_VERBS = {"failed": "failed", "unfinished": "not finished"}
_PARTLY = "failed in part"
"""Of a cell that goes on behind the phase that failed."""


def lines(outcomes: Mapping[CellId, Outcome]) -> list[str]:
    """Return one line for each failure of a model's cells that is not the same as one before.

    ``outcomes`` are those of every cell of one model.
    """
    groups: dict[tuple[str, str], list[CellId]] = {}
    for cell, (status, text) in outcomes.items():
        if text or status in _VERBS:
            groups.setdefault((_VERBS.get(status, _PARTLY), text), []).append(cell)
    return [
        f"{verb}{_where(cells, outcomes)}{f': {text}' if text else ''}"
        for (verb, text), cells in groups.items()
    ]


def _where(cells: Collection[CellId], every: Collection[CellId]) -> str:
    """Return `` in all 4 stacks: llama/float32-sdpa``, or the cells themselves where they are few."""
    first = next(iter(cells))
    if len(cells) == 1:
        return f": {first}"
    variants: dict[str, list[str]] = {}
    for cell in cells:
        variants.setdefault(str(cell.variant), []).append(cell.stack)
    stacks = list(dict.fromkeys(cell.stack for cell in cells))
    row = f"{first.model}/{first.variant}"
    if len(cells) == len(every) and len(stacks) > 1:
        if len(variants) == 1:
            return f" in all {len(stacks)} stacks: {row}"
        return f" in all {len(stacks)} stacks and {len(variants)} variants: {first.model}"
    if len(variants) == 1:
        return f" in {', '.join(stacks)}: {row}"
    spelled = "; ".join(f"{name}@{','.join(several)}" for name, several in variants.items())
    return f" in {len(cells):,} cells: {first.model}: {spelled}"
