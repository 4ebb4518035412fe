"""Averages over many prompts, layer by layer: the tables and plots of issue 25420."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from samebits.questions.relations.records import signals_of
from samebits.records.report import Row
from samebits.text.blocks import fence, heading, page, table
from samebits.text.lists import group_equal
from samebits.text.markdown import EMPTY, Markdown, fill
from samebits.text.numbers import size

LOGITS = "logits"
"""Name of the last line of every table, which is no layer."""

DIGITS = 7
"""Digits of a mean; the tables of the issue have six decimals."""

MAX_LABELS = 40
"""Limit for the layers that a plot labels one by one."""

COLOURS = {
    "blue": "#1f77b4",
    "red": "#d62728",
    "green": "#2ca02c",
    "purple": "#9467bd",
    "orange": "#ff7f0e",
    "grey": "#7f7f7f",
}
"""Colours of the lines of a plot; mermaid draws no legend."""


class Column(NamedTuple):
    """The means of one variant, on the stacks that have exactly these means."""

    variant: str
    stacks: list[str]
    samples: int
    layers: Mapping[str, float]


def has_averages(row: Row) -> bool:
    """Return True if a row has averages over prompts."""
    return any(signal.averages for signal in signals_of(row).values())


def averages(rows: Iterable[Row]) -> Markdown:
    """Return one table for a model, a column per variant, and the growth over its layers."""
    rows = [row for row in rows if has_averages(row)]
    columns = [column for row in rows for column in _columns(row)]
    if not columns:
        return EMPTY
    samples = ", ".join(dict.fromkeys(f"{column.samples:,}" for column in columns))
    intro = fill("Mean over {} prompts of the largest difference of each layer:", samples)
    newest_columns = [_columns(row)[-1] for row in rows]
    return page(
        [heading(3, "Averages over prompts"), intro, _table(columns), _plot(newest_columns)]
    )


def _columns(row: Row) -> list[Column]:
    """Return the columns of a row; the column of its newest stack is last."""
    by_stack = {stack: s.averages for stack, s in signals_of(row).items() if s.averages}
    groups = group_equal(by_stack)
    groups.sort(key=lambda group: list(by_stack).index(group[0][-1]))
    return [Column(row.variant, stacks, a.samples, a.layers) for stacks, a in groups]


def _table(columns: list[Column]) -> Markdown:
    names = dict.fromkeys(name for column in columns for name in column.layers if name != LOGITS)
    rows = [[name, *(_mean(column, name) for column in columns)] for name in (*names, LOGITS)]
    headers = ["layer", *(_header(column, columns) for column in columns)]
    return table(headers, rows, right=headers[1:])


def _header(column: Column, columns: list[Column]) -> str:
    """Return the variant, with stacks where not all of them have the same means."""
    if len([sibling for sibling in columns if sibling.variant == column.variant]) == 1:
        return column.variant
    return f"{column.variant} on {', '.join(column.stacks)}"


def _mean(column: Column, name: str) -> str:
    return size(column.layers[name], DIGITS) if name in column.layers else ""


def _plot(columns: list[Column]) -> Markdown:
    """Return the growth as a mermaid plot, with the names of its colours.

    The plot holds no names of models or stacks: a name could end the quotes of a title.
    """
    columns = columns[: len(COLOURS)]
    curves = [_logarithms(column) for column in columns]
    heights = [height for curve in curves for height in curve if height is not None]
    n_layers = max(map(len, curves))
    if not heights or n_layers < 2:
        return EMPTY
    low, high = math.floor(min(heights)) - 1, math.ceil(max(heights)) + 1
    plots = [f"    line [{', '.join(_height(h, low) for h in curve)}]" for curve in curves]
    palette = ", ".join(list(COLOURS.values())[: len(columns)])
    text = "\n".join(
        [
            (
                '%%{init: {"themeVariables": {"xyChart": '
                f'{{"plotColorPalette": "{palette}"}}}}}}}}%%'
            ),
            "xychart-beta",
            '    title "Largest difference by layer, mean over prompts"',
            f'    x-axis "layer" {_axis(n_layers)}',
            f'    y-axis "log10" {low} --> {high}',
            *plots,
        ]
    )
    return page([fence(text, "mermaid"), _legend(columns)])


def _axis(n_layers: int) -> str:
    """Return a label for each layer while they fit; for more, mermaid chooses round numbers."""
    if n_layers > MAX_LABELS:
        return f"0 --> {n_layers - 1}"
    return f"[{', '.join(map(str, range(n_layers)))}]"


def _logarithms(column: Column) -> list[float | None]:
    means = [mean for name, mean in column.layers.items() if name != LOGITS]
    return [math.log10(mean) if 0 < mean < sys.float_info.max else None for mean in means]


def _height(height: float | None, low: int) -> str:
    return f"{low if height is None else height:.3f}"


def _legend(columns: list[Column]) -> Markdown:
    """Return the meaning of each line; values without a logarithm are on the lower edge."""
    curve_names = "; ".join(
        f"{colour}: {column.variant} on {column.stacks[-1]}"
        for colour, column in zip(COLOURS, columns, strict=False)
    )
    return fill(
        "{}. Values without a logarithm, such as 0, are drawn on the lower edge.",
        f"Lines: {curve_names}",
    )
