"""What changed around a difference and may explain it: config, load, attention, weights layout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.facts import ABSENT, material_changes, paired_calls
from samebits.text.blocks import details, folded, page, table, titled
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.names import numbered
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from samebits.records.comparison import CellResult, FactChange
    from samebits.records.report import Row
    from samebits.reports.stories import Shared, Story

MOST_TELLING = ("attention.kernel", "weights layout", "load", "config")
"""Kinds of changes: those that most often are the cause first."""

SWITCHED_OFF = frozenset({"None", "False", "0", "1", "0.0", "1.0", "''", "{}", "[]"})
"""Values of a field that does nothing, as Python writes them."""

GENERATION = {"max_length": "20", "top_k": "50"}
"""Defaults of generation that read like a choice; 4.x kept them in the config, 5.x does not."""

WHOLE_MODEL = ("requested", "resolved", "number of calls")
"""Facts of attention that speak of more than how one call is written."""

HEADERS = ["what", "only on", "reference", "candidate"]


def changes(shared: Shared, story: Story) -> Markdown:
    """Return what changed on any of the cells, kind by kind."""
    kinds = {kind for cell in shared.cells for kind, found in cell.changes.items() if found}
    ranked = [kind for kind in MOST_TELLING if kind in kinds]
    others = sorted(kinds.difference(MOST_TELLING))
    special = {"config": _config, "attention.kernel": _attention}
    return page(
        special[kind](shared, story) if kind in special else _all_of(kind, shared, story)
        for kind in (*ranked, *others)
    )


def _all_of(kind: str, shared: Shared, story: Story) -> Markdown:
    return _folded_changes(kind, _changed(kind, shared, story))


def _folded_changes(kind: str, rows: list[list[str]]) -> Markdown:
    name = f"{kind}: {plural(len(rows), 'change')}, which may explain it"
    return folded(name, table(HEADERS, rows)) if rows else EMPTY


def _changed(
    kind: str,
    shared: Shared,
    story: Story,
    chosen: Callable[[FactChange], bool] = lambda _: True,
) -> list[list[str]]:
    rows = _joined(
        shared,
        story,
        lambda cell: map(_change, filter(chosen, cell.changes.get(kind, ()))),
    )
    return [[what, on, *sides] for on, (what, *sides) in rows]


def _joined(
    shared: Shared, story: Story, lines: Callable[[CellResult], Iterable[tuple[Markdown, ...]]]
) -> list[tuple[str, tuple[Markdown, ...]]]:
    """Return the lines of all cells once, each with where it holds unless that is everywhere."""
    cells: dict[tuple[Markdown, ...], list[CellResult]] = {}
    for cell in shared.cells:
        for line in lines(cell):
            cells.setdefault(line, []).append(cell)
    return [
        ("" if len(on) == len(shared.cells) else story.where(on), line)
        for line, on in cells.items()
    ]


def _change(change: FactChange) -> tuple[Markdown, ...]:
    return code(change.what), _value(change.reference), _value(change.candidate)


def _value(value: object) -> Markdown:
    return prose(ABSENT) if _is_absent(value) else code(_written(value))


def _is_absent(value: object) -> bool:
    return isinstance(value, str) and value == ABSENT


def _written(value: object) -> str:
    """Return ``value`` as Python writes it; a tuple as the list that report.json makes of it."""
    return repr(list(value) if isinstance(value, tuple) else value)


def _config(shared: Shared, story: Story) -> Markdown:
    """Return what changed, and in one line the fields that came or went and do nothing."""
    telling = _changed("config", shared, story, lambda change: not _does_nothing(change))
    idle = _joined(shared, story, _idle_fields)
    names: dict[tuple[str, Markdown], list[str]] = {}
    for on, (side, name) in idle:
        names.setdefault((on, side), []).append(name)
    return page(
        [_folded_changes("config", telling), *(_idle(*key, found) for key, found in names.items())]
    )


def _does_nothing(change: FactChange) -> bool:
    sides = change.reference, change.candidate
    held = [_written(side) for side in sides if not _is_absent(side)]
    return len(held) == 1 and (held[0] in SWITCHED_OFF or held[0] == GENERATION.get(change.what))


def _idle_fields(cell: CellResult) -> Iterator[tuple[Markdown, Markdown]]:
    for change in filter(_does_nothing, cell.changes.get("config", ())):
        side = "reference" if _is_absent(change.candidate) else "candidate"
        yield Markdown(side), prose(change.what)


def _idle(on: str, side: Markdown, names: list[str]) -> Markdown:
    where = fill(" on {}", on) if on else EMPTY
    fields = plural(len(names), "field")
    return fill(
        "config{}: {} only in the {}, off or at a default: {}.", where, fields, side, join(names)
    )


def _attention(shared: Shared, story: Story) -> Markdown:
    """Return what can make the numbers come out otherwise, and, folded, all that is not the same."""
    kind = "attention.kernel"
    rows = {row.variant: row for row in story.rows}
    if not all(_observed(rows[str(cell.cell.variant)], cell) for cell in shared.cells):
        return _all_of(kind, shared, story)
    whole = _changed(kind, shared, story, _of_whole_model)
    material = _joined(shared, story, lambda cell: _material(rows[str(cell.cell.variant)], cell))
    written = _changed(kind, shared, story, lambda change: not _of_whole_model(change))
    names = plural(len(written), "argument or name", "arguments and names")
    headers = ["layers", "prompts", *HEADERS]
    calls = [
        [layers, prompts, what, on, *sides] for on, (layers, prompts, what, *sides) in material
    ]
    return page(
        [
            _titled_table("attention.kernel: of the whole model", HEADERS, whole),
            _titled_table("attention.kernel: what can change the numbers", headers, calls),
            details(f"attention.kernel: {names} that changed", table(HEADERS, written))
            if written
            else EMPTY,
        ]
    )


def _titled_table(title: str, headers: list[str], rows: list[list[str]]) -> Markdown:
    return page([titled(title), table(headers, rows)]) if rows else EMPTY


def _of_whole_model(change: FactChange) -> bool:
    return change.what.rpartition(" · ")[2] in WHOLE_MODEL


def _observed(row: Row, cell: CellResult) -> bool:
    reference = cell.reference.stack if cell.reference else None
    return reference in row.attention and cell.cell.stack in row.attention


def _material(row: Row, cell: CellResult) -> list[tuple[Markdown, ...]]:
    """Return layers, prompts, what, and both sides, for what the same is true of once."""
    assert cell.reference is not None
    mine, theirs = row.ran(cell.reference.stack), row.ran(cell.cell.stack)
    modules: dict[tuple[Markdown, ...], dict[str, dict[str, None]]] = {}
    for prompt in mine.calls:
        for one, other in paired_calls(mine.calls[prompt], theirs.calls.get(prompt, ())):
            for change in material_changes(one, other):
                prompts = modules.setdefault(_change(change), {})
                prompts.setdefault(prompt, {})[one.module] = None
    layers: dict[tuple[Markdown, ...], list[str]] = {}
    for told, found in modules.items():
        for prompt, names in found.items():
            layers.setdefault((join(map(code, numbered(names))), *told), []).append(prompt)
    return [(key[0], join(prompts), *key[1:]) for key, prompts in layers.items()]
