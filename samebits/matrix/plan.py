"""Which cells does a run consist of, and how is one of them run again?

Selecting is pure: a matrix and the filters of the command line give a plan, and nothing is done.
"""

from __future__ import annotations

import os
import shlex
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import TYPE_CHECKING

from samebits.base.errors import SelectionError, nearest, shown
from samebits.records.ids import CellId, Variant
from samebits.records.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from samebits.matrix.spec import Matrix, ModelSpec, Rule


class Selection(Record):
    """The filters of the command line: names or shell patterns; an empty one selects all."""

    models: tuple[str, ...] = ()
    stacks: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    attention: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()

    @classmethod
    def parse(
        cls,
        *,
        models: str = "",
        stacks: str = "",
        dtypes: str = "",
        attention: str = "",
        devices: str = "",
    ) -> Selection:
        """Read the filters as they are written: separated by commas."""
        return cls(
            models=_split(models),
            stacks=_split(stacks),
            dtypes=_split(dtypes),
            attention=_split(attention),
            devices=_split(devices),
        )


class PlannedRow(Record):
    """One model in one variant, on the stacks that take part, oldest first."""

    model: str
    variant: Variant
    cells: tuple[CellId, ...]
    reference: str
    """The matrix's reference stack if it takes part in this row, else the oldest that does."""


class Plan(Record):
    """The cells of a run, by rows: models, then variants, in the order of the matrix."""

    rows: tuple[PlannedRow, ...]
    stacks: tuple[str, ...]
    """Ids of the stacks that take part, oldest first."""

    @property
    def cells(self) -> tuple[CellId, ...]:
        """Return every cell once, in the order models, variants, stacks."""
        return tuple(cell for row in self.rows for cell in row.cells)

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names of the models that take part, in the order of the matrix."""
        return tuple(dict.fromkeys(row.model for row in self.rows))

    def cells_of(self, stack: str) -> tuple[CellId, ...]:
        """Return the cells of one stack, in order."""
        return tuple(cell for cell in self.cells if cell.stack == stack)


def plan(matrix: Matrix, selection: Selection) -> Plan:
    """Return the cells that the matrix asks for and the selection lets through.

    Raises SelectionError if a filter matches nothing, or nothing is left.
    """
    problems = _unmatched(matrix, selection)
    if problems:
        raise SelectionError("\n".join(problems))
    rows = [
        row
        for model in matrix.models
        if _is_selected(model.name, selection.models)
        for variant in model.variants
        if _has_variant(selection, variant)
        if (row := _row(matrix, selection, model, variant))
    ]
    if not rows:
        raise SelectionError(_nothing(selection))
    used = {cell.stack for row in rows for cell in row.cells}
    stacks = tuple(stack.id for stack in matrix.stacks if stack.id in used)
    return Plan(rows=tuple(rows), stacks=stacks)


REPRODUCED = "reports/reproduce"
"""Folder beside the matrix for the reports of commands that run one cell again."""


def reproduce(cell: CellId, reference: str | None, matrix_path: str, default_path: str) -> str:
    """Return the command that runs one cell, and its reference, again.

    Its report goes to a folder of its own, as a pasted line must not replace the report it is from.
    """
    variant = cell.variant
    stacks = dict.fromkeys(stack for stack in (reference, cell.stack) if stack)
    words = ["nox", "-s", "matrix", "--"]
    if matrix_path != default_path:
        words += ["--matrix", matrix_path]
    words += ["--models", cell.model, "--dtypes", variant.dtype, "--attention", variant.attention]
    if variant.device != "cpu":
        words += ["--devices", variant.device]
    reports = PurePath(matrix_path).parent / REPRODUCED / f"{cell.model}@{cell.stack}"
    return shlex.join([*words, "--stacks", ",".join(stacks), "--reports", str(reports)])


def shown_path(path: Path) -> str:
    """Return a path as a published report may say it: as it was typed, unless it is this machine's.

    What lies below the home is redacted to ``~`` later. Of another folder of this machine the name is
    left: a command with it finds nothing, and runs no other matrix.
    """
    below_home = path.is_relative_to(os.path.expanduser("~"))  # noqa: PTH111  raises nowhere
    return str(path) if below_home or not path.is_absolute() else f"…/{path.name}"


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))


def _is_selected(name: str, patterns: tuple[str, ...]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _has_variant(selection: Selection, variant: Variant) -> bool:
    return (
        _is_selected(variant.dtype, selection.dtypes)
        and _is_selected(variant.attention, selection.attention)
        and _is_selected(variant.device, selection.devices)
    )


def _row(
    matrix: Matrix, selection: Selection, model: ModelSpec, variant: Variant
) -> PlannedRow | None:
    """Return the row, or None if no stack takes part in it."""
    cells = [
        CellId(model=model.name, variant=variant, stack=stack.id)
        for stack in matrix.stacks
        if _is_selected(stack.id, selection.stacks)
    ]
    cells = [cell for cell in cells if is_in(matrix, cell)]
    if not cells:
        return None
    stacks = [cell.stack for cell in cells]
    reference = matrix.reference if matrix.reference in stacks else stacks[0]
    return PlannedRow(model=model.name, variant=variant, cells=tuple(cells), reference=reference)


def is_in(matrix: Matrix, cell: CellId) -> bool:
    """Return True if the matrix's include and exclude rules leave the cell in."""
    included = not matrix.include or any(matches(rule, cell) for rule in matrix.include)
    return included and not any(matches(rule, cell) for rule in matrix.exclude)


def matches(rule: Rule, cell: CellId) -> bool:
    """Return True if the rule speaks of the cell."""
    return (
        _is_selected(cell.model, rule.model)
        and _is_selected(str(cell.variant), rule.variant)
        and _is_selected(cell.stack, rule.stack)
    )


def _unmatched(matrix: Matrix, selection: Selection) -> list[str]:
    """Return a line for each filter that names nothing of the matrix."""
    models = matrix.models
    known: tuple[tuple[str, tuple[str, ...], Iterable[str]], ...] = (
        ("models", selection.models, (model.name for model in models)),
        ("stacks", selection.stacks, (stack.id for stack in matrix.stacks)),
        ("dtypes", selection.dtypes, (dtype for model in models for dtype in model.dtypes)),
        ("attention", selection.attention, (name for model in models for name in model.attention)),
        ("devices", selection.devices, (name for model in models for name in model.devices)),
    )
    return [
        line
        for option, patterns, names in known
        for line in _unmatched_of(option, patterns, tuple(dict.fromkeys(names)))
    ]


def _unmatched_of(option: str, patterns: tuple[str, ...], names: tuple[str, ...]) -> list[str]:
    return [
        f"--{option}: {shown(pattern)} matches nothing in the matrix: {nearest(pattern, names)}"
        for pattern in patterns
        if not any(fnmatchcase(name, pattern) for name in names)
    ]


def _nothing(selection: Selection) -> str:
    given = [f"--{option} {','.join(patterns)}" for option, patterns in selection if patterns]
    if not given:
        return "no cell is left: include and exclude of the matrix leave out every one"
    return (
        f"no cell is left by {' '.join(given)}: each filter matches something, but no cell "
        "matches all of them and the matrix's include and exclude: leave one filter out"
    )
