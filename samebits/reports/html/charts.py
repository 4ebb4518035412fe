"""Charts of cells that differ from their references."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from samebits.records.comparison import CellResult
from samebits.records.ladder import LadderStep
from samebits.text.chart import (
    Chart,
    distance_text,
    lines,
    log_axis,
    points_layer,
    sorted_axis,
    spec,
    x_axis,
)
from samebits.text.markdown import visible
from samebits.text.numbers import number

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""dtype -> unit roundoff: the largest relative error of one rounding."""


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
        lines([p for p in drawn if p["computed"] == own], x_axis(order)),
        points_layer(drawn, x_axis(order), series),
    ]
    if own in ROUNDOFF:
        layers.append(_roundoff(own))
    return Chart(
        "error by layer",
        "Error by layer: the largest absolute difference from the reference",
        spec(layers, "Largest absolute difference by layer, prompt and precision", width=620),
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
    layer = points_layer(points, log_axis(), rungs, y=sorted_axis("step", names))
    errors = [(name, step.errors) for name, step in zip(names, steps, strict=True)]
    return Chart(
        "float64 check",
        "Float64 check: the same difference in higher precision",
        spec([layer], "Distance of both sides by step and precision", width=480),
        ("step", "result", own, "float32", "float64", "error of reference", "error of candidate"),
        tuple(
            (
                name,
                step.kind,
                *(distance_text(value) for value in (step.own, step.float32, step.float64)),
                distance_text(error.reference if error else None),
                distance_text(error.candidate if error else None),
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
        spec(
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
            "y": sorted_axis("place", order),
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


def _flow_order(place: str) -> tuple[int, int]:
    """Return where a place stands in the flow of data: layers, logits, decode."""
    if place.startswith("layer "):
        return 0, int(place.split()[1])
    return 1 + (place == "decode"), 0


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
