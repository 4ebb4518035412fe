"""Charts of relations: how a difference grows by layer, by position and by tensor of the cache."""

from __future__ import annotations

from collections.abc import Sequence

from samebits.questions.relations.records import Relation, signals_of
from samebits.records.report import Row
from samebits.text.chart import Chart, profile
from samebits.text.numbers import number


def relation_charts(relation: Relation) -> list[Chart]:
    """Return the charts of one relation inside a cell: by layer, by position, by cache tensor."""
    title = f"{relation.relation} ({relation.case})"
    layers = [
        (layer.name, layer.distance.max_abs, layer.promoted.max_abs if layer.promoted else None)
        for layer in relation.layers
    ]
    cache = [(tensor.name, tensor.distance.max_abs, None) for tensor in relation.cache]
    positions = [(str(i), value, None) for i, value in enumerate(relation.positions)]
    parts = (("layer", layers), ("position", positions), ("cache tensor", cache))
    charts = [profile(title, part, values) for part, values in parts]
    return [chart for chart in charts if chart is not None]


def quantiles(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the median, the 90 % and 99 % quantiles (nearest rank) and the maximum."""
    ranked = sorted(values)
    ranks = (0.5, 0.9, 0.99, 1.0)
    median, ninety, ninety_nine, largest = (
        ranked[max(0, -(-int(len(ranked) * rank * 100) // 100) - 1)] for rank in ranks
    )
    return median, ninety, ninety_nine, largest


def charts(row: Row) -> list[tuple[str, Chart]]:
    """Return the charts of the relations that do not hold to the bit; equal ones once."""
    shown: dict[str, list[tuple[str, Chart]]] = {}
    for stack, signal in signals_of(row).items():
        for relation in signal.relations:
            name = f"{relation.relation} on {stack}, {relation.case}{_spread(relation)}"
            plots = [(name, chart) for chart in relation_charts(relation)]
            shown.setdefault(repr(relation), plots)
    return [plot for plots in shown.values() for plot in plots]


def _spread(relation: Relation) -> str:
    if not relation.positions:
        return ""
    median, ninety, ninety_nine, largest = map(number, quantiles(relation.positions))
    return f": by position median {median}, 90 % {ninety}, 99 % {ninety_nine}, largest {largest}"
