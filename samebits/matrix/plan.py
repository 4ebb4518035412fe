"""The plan of a run: its cells, and the command that runs one of them again.

A plan follows from the matrix and the filters of the command line, without side effects.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path, PurePath
from typing import Annotated

from samebits.base.errors import SelectionError, nearest, shown
from samebits.base.homes import expanded
from samebits.base.options import Option
from samebits.matrix.spec import ExpectedEntry, Matrix, ModelSpec, Rule
from samebits.matrix.values import is_source, split_source
from samebits.records.ids import CellId, Level, Variant, answering
from samebits.records.record import Record
from samebits.text.lists import comma_list

_COMMAS = {"action": "store", "default": ""}
"""Commas separate the names; an option keeps them as they were typed, as a report repeats them."""
Names = Annotated[tuple[str, ...], Option("NAMES", **_COMMAS)]


class Selection(Record):
    """The filters of the command line: names or shell patterns; an empty filter selects all."""

    models: Names = ()
    """Run only these models: names or patterns, such as 'llama*,gpt2'."""
    environments: Annotated[tuple[str, ...], Option("IDS", **_COMMAS)] = ()
    """Run only in these environments, such as 4.48,5.x."""
    dtypes: Names = ()
    """Run only these dtypes, such as float32,bfloat16."""
    attention: Names = ()
    """Run only these attention implementations, such as eager,sdpa."""
    devices: Names = ()
    """Run only on these devices, such as cpu,cuda."""

    @classmethod
    def parse(cls, **filters: str) -> Selection:
        """Parse filters that are lists separated by commas."""
        return cls(**{name: comma_list(text) for name, text in filters.items()})


class PlannedRow(Record):
    """One model in one variant, with its cells on the selected stacks, oldest first."""

    model: str
    variant: Variant
    cells: tuple[CellId, ...]
    reference: str
    """The matrix's reference stack if the row has a cell on it, else the row's oldest stack."""


class Plan(Record):
    """The cells of a run in rows: by model, then by variant, in the order of the matrix."""

    rows: tuple[PlannedRow, ...]
    stacks: tuple[str, ...]
    """Ids of the stacks that have cells, oldest first."""

    @cached_property
    def cells(self) -> tuple[CellId, ...]:
        """Return every cell once, in the order models, variants, stacks."""
        return tuple(cell for row in self.rows for cell in row.cells)

    @property
    def models(self) -> tuple[str, ...]:
        """Return the names of the models that have cells, in the order of the matrix."""
        return tuple(self.rows_of)

    @cached_property
    def rows_of(self) -> dict[str, tuple[PlannedRow, ...]]:
        """The rows of each model that has cells, in the order of the matrix."""
        rows: dict[str, list[PlannedRow]] = {}
        for row in self.rows:
            rows.setdefault(row.model, []).append(row)
        return {model: tuple(of_model) for model, of_model in rows.items()}


def first_on_cpu(plan: Plan, is_wanted: Callable[[str], bool]) -> tuple[PlannedRow, ...]:
    """Return the row of every model that is wanted which is asked what no variant decides."""
    rows: dict[str, dict[Variant, PlannedRow]] = {}
    for row in plan.rows:
        if is_wanted(row.model):
            rows.setdefault(row.model, {})[row.variant] = row
    chosen = ((of_model, answering(of_model)) for of_model in rows.values())
    return tuple(of_model[variant] for of_model, variant in chosen if variant is not None)


def plan(matrix: Matrix, selection: Selection) -> Plan:
    """Return the cells of the matrix that the selection includes.

    Raises SelectionError if a filter matches nothing, or no cell is left.
    """
    problems = _unmatched_filters(matrix, selection)
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
        raise SelectionError(_no_cell_message(selection))
    used_stacks = {cell.stack for row in rows for cell in row.cells}
    stacks = tuple(stack.id for stack in matrix.stacks if stack.id in used_stacks)
    return Plan(rows=tuple(rows), stacks=stacks)


REPRODUCE_FOLDER = "reports/reproduce"
"""Folder, relative to that of the matrix, for the reports of commands that rerun one cell."""


DEFAULT_MATRIX = "matrix.yaml"


def matrix_words(path: str) -> list[str]:
    """Return the option that names a matrix file; nothing for the default one."""
    return [] if path == DEFAULT_MATRIX else ["--matrix", path]


def command_line(program: Sequence[str], options: Sequence[str]) -> str:
    """Return a command as a shell takes it; nox needs ``--`` before the options of a session."""
    separator = ["--"] if program[0] == "nox" and options else []
    return shlex.join([*program, *separator, *options])


def reproduce(
    cell: CellId,
    reference: str | None,
    program: Sequence[str],
    matrix_path: str | None,
    level: Level = "default",
    releases: Mapping[str, str] | None = None,
) -> str:
    """Return the command that runs one cell and its reference again.

    It writes its report to a separate folder, so that it does not replace the report that it was
    copied from. ``matrix_path`` is None if ``program`` names the model itself; then ``releases`` has
    what the ids of stacks stand for.
    """
    variant = cell.variant
    stacks = list(dict.fromkeys(stack for stack in (reference, cell.stack) if stack))
    words = []
    if matrix_path is not None:
        words += matrix_words(matrix_path)
        words += ["--models", cell.model]
    words += ["--dtypes", variant.dtype, "--attention", variant.attention]
    if variant.device != "cpu":
        words += ["--devices", variant.device]
    words += [] if level == "default" else [f"--{level}"]
    if matrix_path is None:
        ends = [shown_release((releases or {}).get(stack, stack)) for stack in stacks]
        words += ["--from", ends[0], "--to", ends[-1]]
    else:
        words += ["--environments", ",".join(stacks)]
    folder = PurePath(matrix_path or DEFAULT_MATRIX).parent / REPRODUCE_FOLDER
    return command_line(program, [*words, "--reports", str(folder / f"{cell.model}@{cell.stack}")])


def shown_path(path: Path) -> str:
    """Return a path as a published report may contain it: as typed, without a machine's folders.

    An absolute path below the working directory is given from there. One below the home directory is
    redacted to ``~`` later. Any other one is reduced to ``…`` and its name: a command with it finds
    no file, and so never runs another matrix.
    """
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return f"./{path.relative_to(Path.cwd())}"  # a bare name may be one of the hub
    below_home = path.is_relative_to(expanded("~"))
    return str(path) if below_home or not path.is_absolute() else f"…/{path.name}"


def shown_release(text: str) -> str:
    """Return a release as ``--from`` takes it; a source with a path as a published report may contain it."""
    if not is_source(text):
        return text
    path, commit = split_source(text)
    shown = f"{shown_path(Path(path))}{f'@{commit}' if commit else ''}"
    # a bare name is no folder for --from
    return shown if Path(path).is_absolute() or is_source(shown) else f"./{shown}"


@cache
def _is_selected(name: str, patterns: tuple[str, ...]) -> bool:
    """Return True if a pattern matches, or there is none. Cached: each pattern meets every cell."""
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
    """Return the row, or None if it has no cell."""
    cells = [
        CellId(model=model.name, variant=variant, stack=stack.id)
        for stack in matrix.stacks
        if _is_selected(stack.id, selection.environments)
    ]
    cells = [cell for cell in cells if is_included(matrix, cell)]
    if not cells:
        return None
    stacks = [cell.stack for cell in cells]
    reference = matrix.reference if matrix.reference in stacks else stacks[0]
    return PlannedRow(model=model.name, variant=variant, cells=tuple(cells), reference=reference)


def is_included(matrix: Matrix, cell: CellId) -> bool:
    """Return True if the matrix's include and exclude rules keep the cell."""
    included = not matrix.include or any(matches(rule, cell) for rule in matrix.include)
    return included and not any(matches(rule, cell) for rule in matrix.exclude)


def matches(rule: Rule | ExpectedEntry, cell: CellId) -> bool:
    """Return True if the rule's patterns match the cell."""
    return (
        _is_selected(cell.model, rule.model)
        and _is_selected(str(cell.variant), rule.variant)
        and _is_selected(cell.stack, rule.stack)
    )


def _unmatched_filters(matrix: Matrix, selection: Selection) -> list[str]:
    """Return a line for each filter that matches nothing in the matrix."""
    models = matrix.models
    filters: tuple[tuple[str, tuple[str, ...], Iterable[str]], ...] = (
        ("models", selection.models, (model.name for model in models)),
        ("environments", selection.environments, (stack.id for stack in matrix.stacks)),
        ("dtypes", selection.dtypes, (dtype for model in models for dtype in model.dtypes)),
        ("attention", selection.attention, (name for model in models for name in model.attention)),
        ("devices", selection.devices, (name for model in models for name in model.devices)),
    )
    return [
        line
        for option, patterns, names in filters
        for line in _unmatched_patterns(option, patterns, tuple(dict.fromkeys(names)))
    ]


def _unmatched_patterns(
    option: str, patterns: tuple[str, ...], names: tuple[str, ...]
) -> list[str]:
    return [
        f"--{option}: {shown(pattern)} matches nothing in the matrix: {nearest(pattern, names)}"
        for pattern in patterns
        if not any(fnmatchcase(name, pattern) for name in names)
    ]


def _no_cell_message(selection: Selection) -> str:
    options = [f"--{option} {','.join(patterns)}" for option, patterns in selection if patterns]
    if not options:
        return "no cell is left: include and exclude of the matrix leave out every one"
    return (
        f"no cell is left by {' '.join(options)}: each filter matches something, but no cell "
        "matches all of them and the matrix's include and exclude: leave one filter out"
    )
