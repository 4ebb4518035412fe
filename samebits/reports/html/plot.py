"""``samebits plot``: a chart of a report as SVG or PNG, for a paper or a ticket."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Any

from samebits.base.errors import SamebitsError, shown
from samebits.base.options import Option
from samebits.records.comparison import CellResult
from samebits.records.record import Record
from samebits.records.report import Report
from samebits.reports import again, packed
from samebits.reports.html.charts import charts_of
from samebits.text.chart import Chart

SCALE = 2.0
"""Pixels of a PNG for each point of the chart."""

_MAX_NAMED = 8


class PlotError(SamebitsError):
    """A chart cannot be written."""


class Options(Record):
    """The options of the command."""

    cell: Annotated[str, Option("CELL", "")]
    """Such as olmo3/float32-default@5.2."""
    report: Annotated[Path, Option("FILE")] = Path("reports/latest/report.json")
    """The report.json to read (default: reports/latest/report.json)."""
    chart: Annotated[str, Option("NAME")] = ""
    """'error by layer' (the default) or 'float64 check'."""
    output: Annotated[Path | None, Option("FILE")] = None
    """The .svg or .png file to write (default: NAME.svg beside the report)."""


def write_chart(options: Options) -> list[str]:
    """Write the chart that the options name; return the lines to print.

    Raises:
        PlotError: there is no such report, cell or chart, or no program that draws it.
        ReportFileError: the report cannot be read.

    """
    if Path(options.cell).is_file():
        msg = f"{shown(options.cell)} is a file and no cell: samebits plot CELL --report {options.cell}"
        raise PlotError(msg)
    chart = _chart(_cell(_report(options.report), options.cell), options.chart)
    output = options.output or options.report.with_name(f"{chart.id}.svg")
    output.write_bytes(_drawn(chart, output.suffix.lower()))
    return [f"{chart.title}: {output}"]


def _report(path: Path) -> Report:
    if path.exists() or path.with_name(packed.COMPRESSED).exists():
        return again.read(path).report
    raise PlotError(
        f"There is no report {shown(str(path))}.\n"
        "Run samebits matrix first, or name a report.json with --report."
    )


def _cell(report: Report, name: str) -> CellResult:
    cells = {str(cell.cell): cell for cell in report.cells}
    if name in cells:
        return cells[name]
    near = [
        of_model
        for of_model in cells
        if name.partition("/")[0] in of_model and cells[of_model].signals
    ]
    listed = ", ".join(map(shown, near[:_MAX_NAMED]))
    msg = f"The report has no cell {shown(name)}; a cell is MODEL/DTYPE-ATTENTION@ENVIRONMENT."
    raise PlotError(f"{msg}\nIts cells with that model: {listed}." if near else msg)


def _chart(cell: CellResult, name: str) -> Chart:
    charts = {chart.name: chart for chart in charts_of(cell)}
    if not charts:
        raise PlotError(
            f"Cell {cell.cell} has nothing to draw: it is {cell.verdict}, and no distance from its "
            "reference was measured.\nName a cell that differs."
        )
    if not name:
        return next(iter(charts.values()))
    if name not in charts:
        msg = f"Cell {cell.cell} has no chart {shown(name)}; it has: {', '.join(charts)}."
        raise PlotError(msg)
    return charts[name]


def _drawn(chart: Chart, suffix: str) -> bytes:
    converter = _converter()
    specification = chart.specification | {"background": "white"}
    if suffix == ".svg":
        return str(converter.vegalite_to_svg(specification)).encode()
    if suffix == ".png":
        return bytes(converter.vegalite_to_png(specification, scale=SCALE))
    raise PlotError(
        f"A chart is written as .svg or .png, not as {shown(suffix or 'a file without a suffix')}."
    )


def _converter() -> Any:  # noqa: ANN401  the package has no types
    try:
        return importlib.import_module("vl_convert")
    except ImportError as error:
        raise PlotError(
            "Drawing a chart without a browser needs the package vl-convert-python.\n"
            'Install it with pip install "samebits[plot]", or press "Save as SVG" below the chart '
            "in report.html."
        ) from error
