"""Charts as Vega-Lite specifications, each with the table of what it shows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from samebits.text.markdown import visible
from samebits.text.numbers import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from samebits.records.comparison import CellResult
    from samebits.records.ladder import LadderStep
    from samebits.records.relations import Relation

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""An identifier; nothing is loaded from there."""

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""dtype -> unit roundoff: the largest relative error of one rounding."""

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
"""Colours of series, which people with any colour vision can tell apart (Okabe and Ito)."""


class Chart(NamedTuple):
    """A chart, and the same numbers as a table."""

    name: str
    """Unique within its cell; ``samebits plot`` takes it."""
    title: str
    specification: dict[str, Any]
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    @property
    def json(self) -> Markup:
        """The specification as text that no tag can end."""
        return Markup(safe_json(self.specification))

    @property
    def id(self) -> str:
        """The name as a part of an id."""
        return self.name.replace(" ", "-")


def safe_json(value: object) -> str:
    """Return JSON without characters that mean something in HTML."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def charts_of(cell: CellResult) -> list[Chart]:
    """Return the charts of a cell that differs from its reference."""
    charts = [by_layer(cell), ladder(cell)]
    return [*(chart for chart in charts if chart is not None), *by_position(cell)]


def by_layer(cell: CellResult) -> Chart | None:
    """Return the largest difference after every layer, with the steps of the ladder; or None."""
    own = cell.cell.variant.dtype
    points = [*_layer_points(cell, own), *_step_points(cell)]
    drawn = [point for point in points if point["value"]]
    if not drawn:
        return None
    order = list(dict.fromkeys(str(point["place"]) for point in points))
    order.sort(key=_flow_order)
    series = list(dict.fromkeys(str(point["computed"]) for point in points))
    layers = [
        _lines([p for p in drawn if p["computed"] == own], _x(order)),
        _points(drawn, _x(order), series),
    ]
    if own in ROUNDOFF:
        layers.append(_roundoff(own))
    return Chart(
        "error by layer",
        "Error by layer: the largest absolute difference from the reference",
        _spec(layers, "Largest absolute difference by layer, prompt and precision", width=620),
        ("prompt", "layer", "computed in", "largest absolute difference"),
        tuple((p["prompt"], p["place"], p["computed"], number(p["value"], 4)) for p in points),
    )


def ladder(cell: CellResult) -> Chart | None:
    """Return the distances of every step of the ladder on all rungs; None without a ladder."""
    steps = cell.ladder.steps if cell.ladder else ()
    own = cell.cell.variant.dtype
    names = [_step_name(step) for step in steps]
    points = [
        {"step": name, "computed": rung, "value": value}
        for name, step in zip(names, steps, strict=True)
        for rung, value in _rungs(step, own)
        if value
    ]
    if not points:
        return None
    rungs = list(dict.fromkeys(str(point["computed"]) for point in points))
    layer = _points(points, _log("value"), rungs, y=_sorted("step", names))
    errors = [(name, step.errors) for name, step in zip(names, steps, strict=True)]
    return Chart(
        "ladder",
        "Precision ladder: the same difference in higher precision",
        _spec([layer], "Distance of both sides by step of the ladder and precision", width=480),
        ("step", "result", own, "float32", "float64", "error of reference", "error of candidate"),
        tuple(
            (
                name,
                step.kind,
                *(_distance(value) for value in (step.own, step.float32, step.float64)),
                _distance(error.reference if error else None),
                _distance(error.candidate if error else None),
            )
            for (name, error), step in zip(errors, steps, strict=True)
        ),
    )


MAX_HEATMAPS = 3
"""Prompts with a heatmap, those with the largest differences; report.json has all."""


def by_position(cell: CellResult) -> list[Chart]:
    """Return a heatmap of layers and positions for the prompts that differ most."""
    prompts: dict[str, list[tuple[str, tuple[float, ...]]]] = {}
    for signal in cell.signals:
        if signal.signal not in ("hidden_states", "logits"):
            continue
        for item in signal.items:
            place = item.subject.place if signal.signal == "hidden_states" else signal.signal
            values = item.metrics.by_position if item.metrics else ()
            if values or item.outcome == "identical":
                prompts.setdefault(item.subject.prompt, []).append((place, values))
    sizes = {
        prompt: max((max(values, default=0.0) for _, values in lines), default=0.0)
        for prompt, lines in prompts.items()
    }
    worst = sorted((p for p in prompts if sizes[p]), key=lambda prompt: -sizes[prompt])
    return [_heatmap(prompt, prompts[prompt]) for prompt in worst[:MAX_HEATMAPS]]


def _heatmap(prompt: str, lines: list[tuple[str, tuple[float, ...]]]) -> Chart:
    n_positions = max(len(values) for _, values in lines)
    rows = [(visible(place), values or (0.0,) * n_positions) for place, values in lines]
    rows.sort(key=lambda row: _flow_order(row[0]))
    points = [
        {"place": place, "position": position, "value": value}
        for place, values in rows
        for position, value in enumerate(values)
        if value  # 0 has no place on a log scale: equal positions stay empty
    ]
    order = list(dict.fromkeys(place for place, _ in rows))
    name = visible(prompt)
    return Chart(
        f"layers and positions of {name}",
        f"Layers and positions of prompt {name}: the largest absolute difference; empty: equal",
        _spec(
            [_cells(points, order, n_positions)],
            f"Difference by layer and position of {name}",
            width=620,
        ),
        ("layer", *map(str, range(n_positions))),
        tuple((place, *(number(value, 2) for value in values)) for place, values in rows),
    )


def _cells(points: list[dict[str, Any]], order: list[str], n_positions: int) -> dict[str, Any]:
    return {
        "data": {"values": points},
        "mark": {"type": "rect"},
        "encoding": {
            "x": {
                "field": "position",
                "type": "ordinal",
                "scale": {"domain": list(range(n_positions))},
                "axis": {"title": "position in the prompt", "labelOverlap": True, "labelAngle": 0},
            },
            "y": _sorted("place", order),
            "color": {
                "field": "value",
                "type": "quantitative",
                "scale": {"type": "log", "scheme": "viridis"},
                "legend": {"title": "largest absolute difference", "format": ".0e"},
            },
            "tooltip": [
                {"field": "place"},
                {"field": "position"},
                {"field": "value", "format": ".2e"},
            ],
        },
    }


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
    charts = [_profile(title, part, values) for part, values in parts]
    return [chart for chart in charts if chart is not None]


def quantiles(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Return the median, the 90 % and 99 % quantiles (nearest rank) and the maximum."""
    ranked = sorted(values)
    ranks = (0.5, 0.9, 0.99, 1.0)
    median, ninety, ninety_nine, largest = (
        ranked[max(0, -(-int(len(ranked) * rank * 100) // 100) - 1)] for rank in ranks
    )
    return median, ninety, ninety_nine, largest


def _profile(
    title: str, axis: str, values: Sequence[tuple[str, float, float | None]]
) -> Chart | None:
    points = [
        {"place": visible(place), "computed": computed, "value": value}
        for place, own, promoted in values
        for computed, value in (("own dtype", own), ("float64", promoted))
        if value
    ]
    if not points:
        return None
    series = list(dict.fromkeys(str(point["computed"]) for point in points))
    x = _x([visible(place) for place, *_ in values], axis)
    has_promoted = any(promoted is not None for *_, promoted in values)
    headers = (axis, "own dtype", "float64") if has_promoted else (axis, "own dtype")
    return Chart(
        f"{title} by {axis}",
        f"Largest absolute difference by {axis}",
        _spec([_points(points, x, series)], f"{title}: difference by {axis}", width=480),
        headers,
        tuple(
            (visible(place), _distance(own), _distance(promoted))[: len(headers)]
            for place, own, promoted in values
        ),
    )


def _layer_points(cell: CellResult, own: str) -> Iterable[dict[str, Any]]:
    for signal in cell.signals:
        if signal.signal not in ("hidden_states", "logits", "decode"):
            continue
        for item in signal.items:
            value = item.metrics.max_abs if item.metrics else None
            if item.outcome == "identical":
                value = 0.0
            if value is None:
                continue
            place = item.subject.place if signal.signal == "hidden_states" else signal.signal
            yield _point(item.subject.prompt_row, place, own, value)


def _step_points(cell: CellResult) -> Iterable[dict[str, Any]]:
    own = cell.cell.variant.dtype
    for step in cell.ladder.steps if cell.ladder else ():
        for rung, value in _rungs(step, own)[1:]:
            if value is not None:
                yield _point(step.prompt, step.what, rung, value)


def _point(prompt: str, place: str, computed: str, value: float) -> dict[str, Any]:
    return {
        "prompt": visible(prompt),
        "place": visible(place),
        "computed": computed,
        "value": value,
    }


def _rungs(step: LadderStep, own: str) -> list[tuple[str, float | None]]:
    """Return the distances of a step by precision, each precision once."""
    rungs = {own: step.own}
    for name, value in (("float32", step.float32), ("float64", step.float64)):
        rungs.setdefault(name, value)
    return list(rungs.items())


def _step_name(step: LadderStep) -> str:
    return visible(f"{step.prompt} · {step.what}" if step.prompt else step.what)


def _distance(value: float | None) -> str:
    return "" if value is None else number(value, 4)


def _flow_order(place: str) -> tuple[int, int]:
    """Return where a place stands in the flow of data: layers, logits, decode."""
    if place.startswith("layer "):
        return 0, int(place.split()[1])
    return 1 + (place == "decode"), 0


def _spec(layers: list[dict[str, Any]], description: str, width: int) -> dict[str, Any]:
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": width,
        "layer": layers,
        "resolve": {"scale": {"color": "shared", "shape": "shared"}},
    }


def _x(order: list[str], title: str = "layer") -> dict[str, Any]:
    short = "split(replace(datum.label, /^layer (\\d+).*/, '$1'), '\\n')[0]"
    return _sorted("place", order, title) | {
        "axis": {"title": title, "labelExpr": short, "labelOverlap": True, "labelAngle": 0}
    }


def _sorted(field: str, order: list[str], title: str = "") -> dict[str, Any]:
    axis = {"title": title or None, "labelLimit": 320}
    scale = {"domain": order}
    return {"field": field, "type": "nominal", "sort": order, "scale": scale, "axis": axis}


def _log(field: str) -> dict[str, Any]:
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"type": "log"},
        "axis": {"title": "largest absolute difference", "format": ".0e", "tickCount": 6},
    }


def _lines(points: list[dict[str, Any]], x: dict[str, Any]) -> dict[str, Any]:
    return {
        "data": {"values": points},
        "mark": {"type": "line", "strokeWidth": 1.5, "opacity": 0.6},
        "encoding": {
            "x": x,
            "y": _log("value"),
            "detail": {"field": "prompt"},
            "color": {"field": "computed"},
        },
    }


def _points(
    points: list[dict[str, Any]],
    x: dict[str, Any],
    series: list[str],
    y: dict[str, Any] | None = None,
) -> dict[str, Any]:
    keys = [key for key in points[0] if key != "value"]
    series_scale = {"domain": series, "range": COLORS[: len(series)]}
    return {
        "data": {"values": points},
        "mark": {"type": "point", "filled": False, "size": 70, "strokeWidth": 2},
        "encoding": {
            "x": x,
            "y": y or _log("value"),
            "color": {"field": "computed", "scale": series_scale, "title": "computed in"},
            "shape": {"field": "computed", "scale": {"domain": series}, "title": "computed in"},
            "tooltip": [
                *({"field": key} for key in keys),
                {"field": "value", "format": ".4e"},
            ],
        },
    }


def _roundoff(dtype: str) -> dict[str, Any]:
    label = f"unit roundoff of {dtype}"
    return {
        "data": {"values": [{"value": ROUNDOFF[dtype], "label": label}]},
        "encoding": {"y": {"field": "value", "type": "quantitative"}},
        "layer": [
            {"mark": {"type": "rule", "strokeDash": [6, 4], "opacity": 0.8}},
            {
                "mark": {"type": "text", "align": "right", "dy": -6, "x": "width"},
                "encoding": {"text": {"field": "label"}},
            },
        ],
    }
