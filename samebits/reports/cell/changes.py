"""Changes around a difference that may explain it: config, load, attention, weights layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from samebits.compare.facts import ABSENT, material_changes, paired_calls
from samebits.records.comparison import CellResult, FactChange
from samebits.records.report import Row
from samebits.reports.stories import Shared, Story, joined_lines
from samebits.text.blocks import below, details, folded, page, table, titled
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.names import numbered
from samebits.text.numbers import plural

LIKELY_KINDS = ("attention.kernel", "weights layout", "load", "config")
"""Kinds of changes that are shown first; the most frequent causes lead."""

INACTIVE_VALUES = frozenset({"None", "False", "0", "1", "0.0", "1.0", "''", "{}", "[]"})
"""Values of a field that has no effect, as Python writes them."""

GENERATION_DEFAULTS = {"max_length": "20", "top_k": "50"}
"""Defaults of generation that look like a choice; 4.x kept them in the config, 5.x does not."""

HEADERS = ["what", "only on", "reference", "candidate"]


def changes(shared: Shared, story: Story) -> Markdown:
    """Return the changes on any of the cells, kind by kind."""
    kinds = {kind for cell in shared.cells for kind, facts in cell.changes.items() if facts}
    ranked = [kind for kind in LIKELY_KINDS if kind in kinds]
    others = sorted(kinds.difference(LIKELY_KINDS))
    renderers = {"config": _config, "attention.kernel": _attention}
    return page(
        renderers[kind](shared, story) if kind in renderers else _all_changes(kind, shared, story)
        for kind in (*ranked, *others)
    )


def _all_changes(kind: str, shared: Shared, story: Story) -> Markdown:
    return _folded_changes(kind, _change_rows(kind, shared, story))


def _folded_changes(kind: str, rows: list[list[str]]) -> Markdown:
    title = f"{kind}: {plural(len(rows), 'change')}, which may explain it"
    return folded(title, table(HEADERS, rows)) if rows else EMPTY


def _change_rows(
    kind: str,
    shared: Shared,
    story: Story,
    is_shown: Callable[[FactChange], bool] = lambda _: True,
) -> list[list[str]]:
    rows = joined_lines(
        shared,
        story,
        lambda cell: map(_change, filter(is_shown, cell.changes.get(kind, ()))),
    )
    return [[what, where, *sides] for where, (what, *sides) in rows]


def _change(change: FactChange) -> tuple[Markdown, ...]:
    return code(change.what), _value(change.reference), _value(change.candidate)


def _value(value: object) -> Markdown:
    return prose(ABSENT) if _is_absent(value) else code(_python_text(value))


def _is_absent(value: object) -> bool:
    return isinstance(value, str) and value == ABSENT


def _python_text(value: object) -> str:
    """Return ``value`` as Python writes it; a tuple as a list, which report.json makes of it."""
    return repr(list(value) if isinstance(value, tuple) else value)


def _config(shared: Shared, story: Story) -> Markdown:
    """Return the changes, and in one line the fields that came or went and have no effect."""
    effective = _change_rows("config", shared, story, lambda change: not _does_nothing(change))
    idle_fields = joined_lines(shared, story, _idle_fields)
    names: dict[tuple[str, Markdown], list[str]] = {}
    for where, (side, name) in idle_fields:
        names.setdefault((where, side), []).append(name)
    return page(
        [
            _folded_changes("config", effective),
            *(_idle(*key, fields) for key, fields in names.items()),
        ]
    )


def _does_nothing(change: FactChange) -> bool:
    sides = change.reference, change.candidate
    values = [_python_text(side) for side in sides if not _is_absent(side)]
    return len(values) == 1 and (
        values[0] in INACTIVE_VALUES or values[0] == GENERATION_DEFAULTS.get(change.what)
    )


def _idle_fields(cell: CellResult) -> Iterator[tuple[Markdown, Markdown]]:
    for change in filter(_does_nothing, cell.changes.get("config", ())):
        side = "reference" if _is_absent(change.candidate) else "candidate"
        yield Markdown(side), prose(change.what)


def _idle(where: str, side: Markdown, names: list[str]) -> Markdown:
    place = fill(" on {}", where) if where else EMPTY
    fields = plural(len(names), "field")
    return fill(
        "config{}: {} only in the {}, off or at a default: {}.", place, fields, side, join(names)
    )


def _attention(shared: Shared, story: Story) -> Markdown:
    """Return what can change the numbers, and, folded, everything that changed."""
    kind = "attention.kernel"
    rows = {row.variant: row for row in story.rows}
    if not all(_observed(rows[str(cell.cell.variant)], cell) for cell in shared.cells):
        return _all_changes(kind, shared, story)
    model_facts = _change_rows(kind, shared, story, _is_model_fact)
    material = joined_lines(
        shared, story, lambda cell: _material(rows[str(cell.cell.variant)], cell)
    )
    spellings = _change_rows(kind, shared, story, lambda change: not _is_model_fact(change))
    n_changes = plural(len(spellings), "argument or name", "arguments and names")
    headers = ["layers", "prompts", *HEADERS]
    calls = [
        [layers, prompts, what, where, *sides]
        for where, (layers, prompts, what, *sides) in material
    ]
    return page(
        [
            _titled_table("attention.kernel: for the whole model", HEADERS, model_facts),
            _titled_table("attention.kernel: changes that can affect the numbers", headers, calls),
            details(f"attention.kernel: {n_changes} that changed", table(HEADERS, spellings))
            if spellings
            else EMPTY,
        ]
    )


def _titled_table(title: str, headers: list[str], rows: list[list[str]]) -> Markdown:
    return below(titled(title), table(headers, rows))


def _is_model_fact(change: FactChange) -> bool:
    """Return True if a fact about attention concerns more than the arguments of one call."""
    return change.module is None


def _observed(row: Row, cell: CellResult) -> bool:
    reference = cell.reference.stack if cell.reference else None
    return reference in row.attention and cell.cell.stack in row.attention


def _material(row: Row, cell: CellResult) -> list[tuple[Markdown, ...]]:
    """Return layers, prompts, what changed, and both sides.

    Layers and prompts with the same change share an entry.
    """
    assert cell.reference is not None
    reference, candidate = row.ran(cell.reference.stack), row.ran(cell.cell.stack)
    modules: dict[tuple[Markdown, ...], dict[str, dict[str, None]]] = {}
    for prompt in reference.calls:
        for reference_call, candidate_call in paired_calls(
            reference.calls[prompt], candidate.calls.get(prompt, ())
        ):
            for change in material_changes(reference_call, candidate_call):
                prompts = modules.setdefault(_change(change), {})
                prompts.setdefault(prompt, {})[reference_call.module] = None
    layers: dict[tuple[Markdown, ...], list[str]] = {}
    for change_cells, by_prompt in modules.items():
        for prompt, layer_names in by_prompt.items():
            layers.setdefault((join(map(code, numbered(layer_names))), *change_cells), []).append(
                prompt
            )
    return [(key[0], join(prompts), *key[1:]) for key, prompts in layers.items()]
