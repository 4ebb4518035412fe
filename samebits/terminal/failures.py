"""Lines about the failures of one model's cells, one for each distinct failure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from samebits.records.ids import CellId

Outcome = tuple[str, str]
"""Status of the cell's first run, and one line on why it failed; '' if nothing failed."""

_VERBS = {"failed": "failed", "unfinished": "not finished"}
_PARTLY = "failed in part"
"""Verb for a cell that continued after the phase that failed."""


def lines(outcomes: Mapping[CellId, Outcome]) -> list[str]:
    """Return one line for each distinct failure of a model's cells.

    ``outcomes`` has every cell of the model, including those that did not fail.
    """
    groups: dict[tuple[str, str], list[CellId]] = {}
    for cell, (status, text) in outcomes.items():
        if text or status in _VERBS:
            groups.setdefault((_VERBS.get(status, _PARTLY), text), []).append(cell)
    return [
        f"{verb}{_where(cells, outcomes)}{f': {text}' if text else ''}"
        for (verb, text), cells in groups.items()
    ]


def _where(cells: Collection[CellId], all_cells: Collection[CellId]) -> str:
    """Return the place of a failure, such as `` in all 4 stacks: llama/float32-sdpa``."""
    first = next(iter(cells))
    if len(cells) == 1:
        return f": {first}"
    variants: dict[str, list[str]] = {}
    for cell in cells:
        variants.setdefault(str(cell.variant), []).append(cell.stack)
    stacks = list(dict.fromkeys(cell.stack for cell in cells))
    row = f"{first.model}/{first.variant}"
    if len(cells) == len(all_cells) and len(stacks) > 1:
        if len(variants) == 1:
            return f" in all {len(stacks)} environments: {row}"
        return f" in all {len(stacks)} environments and {len(variants)} variants: {first.model}"
    if len(variants) == 1:
        return f" in {', '.join(stacks)}: {row}"
    listed = "; ".join(f"{name}@{','.join(stack_ids)}" for name, stack_ids in variants.items())
    return f" in {len(cells):,} cells: {first.model}: {listed}"
