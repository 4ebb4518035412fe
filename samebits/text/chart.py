"""Charts as Vega-Lite specifications, each with the table of what it shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from samebits.text.markdown import visible
from samebits.text.numbers import number

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""An identifier; nothing is loaded from there."""

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
    def height(self) -> int:
        """About how high it is drawn, in pixels, so that a page keeps the place."""
        layers = self.specification["layer"]
        axes = [layer.get("encoding", {}).get("y", {}) for layer in layers]
        rows = max(len(axis.get("scale", {}).get("domain", ())) for axis in axes)
        legend = sum(map(_entries, layers))
        return _AROUND + max(rows * _STEP if rows else _HEIGHT, legend * _ENTRY)

    @property
    def json(self) -> Markup:
        """The specification as text that no tag can end."""
        return Markup(safe_json(self.specification))

    @property
    def id(self) -> str:
        """The name as a part of an id."""
        return self.name.replace(" ", "-")


_AROUND, _HEIGHT, _STEP, _ENTRY = 80, 300, 20, 15
"""Pixels: axis and button of a chart, the default height of Vega-Lite, its step of a nominal axis, and a
line of a legend."""


def _entries(layer: dict[str, Any]) -> int:
    """Return the lines of the legends of a layer, with their titles."""
    encoding = layer.get("encoding", {})
    n_series = len(encoding.get("shape", {}).get("scale", {}).get("domain", ()))
    dashed = encoding.get("strokeDash")
    n_dashed = len({point[dashed["field"]] for point in layer["data"]["values"]}) if dashed else 0
    return sum(n + 1 for n in (n_series, n_dashed) if n)


def safe_json(value: object) -> str:
    """Return JSON without characters that mean something in HTML."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")


def profile(
    title: str, axis: str, values: Sequence[tuple[str, float, float | None]]
) -> Chart | None:
    """Return a chart of differences along an axis; None if all are zero.

    ``values`` are a place, the difference there, and the same in float64.
    """
    points = [
        {"place": visible(place), "computed": computed, "value": value}
        for place, own, promoted in values
        for computed, value in (("own dtype", own), ("float64", promoted))
        if value
    ]
    if not points:
        return None
    series = list(dict.fromkeys(str(point["computed"]) for point in points))
    x = x_axis([visible(place) for place, *_ in values], axis)
    has_promoted = any(promoted is not None for *_, promoted in values)
    headers = (axis, "own dtype", "float64") if has_promoted else (axis, "own dtype")
    return Chart(
        f"{title} by {axis}",
        f"Largest absolute difference by {axis}",
        spec([points_layer(points, x, series)], f"{title}: difference by {axis}", width=480),
        headers,
        tuple(
            (visible(place), distance_text(own), distance_text(promoted))[: len(headers)]
            for place, own, promoted in values
        ),
    )


def distance_text(value: float | None) -> str:
    """Return a distance for a table; '' without one."""
    return "" if value is None else number(value, 4)


def spec(layers: list[dict[str, Any]], description: str, width: int) -> dict[str, Any]:
    """Return a specification of layers that share their scales."""
    return {
        "$schema": SCHEMA,
        "description": description,
        "width": width,
        "layer": layers,
        "resolve": {"scale": {"color": "shared", "shape": "shared"}},
    }


def x_axis(order: list[str], title: str = "layer") -> dict[str, Any]:
    """Return the axis of places, in their order."""
    short = "split(replace(datum.label, /^layer (\\d+).*/, '$1'), '\\n')[0]"
    return sorted_axis("place", order, title) | {
        "axis": {"title": title, "labelExpr": short, "labelOverlap": True, "labelAngle": 0}
    }


def sorted_axis(field: str, order: list[str], title: str = "") -> dict[str, Any]:
    """Return a nominal axis in this order."""
    axis = {"title": title or None, "labelLimit": 320}
    scale = {"domain": order}
    return {"field": field, "type": "nominal", "sort": order, "scale": scale, "axis": axis}


def log_axis() -> dict[str, Any]:
    """Return the axis of differences."""
    return {
        "field": "value",
        "type": "quantitative",
        "scale": {"type": "log"},
        "axis": {"title": "largest absolute difference", "format": ".0e", "tickCount": 6},
    }


def lines(points: list[dict[str, Any]], x: dict[str, Any]) -> dict[str, Any]:
    """Return a layer with a line for each prompt."""
    return {
        "data": {"values": points},
        "mark": {"type": "line", "strokeWidth": 1.5, "opacity": 0.6},
        "encoding": {
            "x": x,
            "y": log_axis(),
            "strokeDash": {"field": "prompt", "title": "prompt"},
            "color": {"field": "computed"},
        },
    }


def points_layer(
    points: list[dict[str, Any]],
    x: dict[str, Any],
    series: list[str],
    y: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a layer of points, coloured by the precision that computed them."""
    keys = [key for key in points[0] if key != "value"]
    series_scale = {"domain": series, "range": COLORS[: len(series)]}
    # marks of one place lie within each other
    sizes = [30 + 90 * (len(series) - 1 - place) for place in range(len(series))]
    size = {"field": "computed", "type": "ordinal", "legend": None} | {
        "scale": {"domain": series, "range": sizes}
    }
    return {
        "data": {"values": points},
        "mark": {"type": "point", "filled": False, "size": 70, "strokeWidth": 2},
        "encoding": {
            "x": x,
            "y": y or log_axis(),
            "color": {"field": "computed", "scale": series_scale, "title": "computed in"},
            **({"size": size} if len(series) > 1 else {}),
            "shape": {"field": "computed", "scale": {"domain": series}, "title": "computed in"},
            "tooltip": [
                *({"field": key} for key in keys),
                {"field": "value", "format": ".4e"},
            ],
        },
    }
