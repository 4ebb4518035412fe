"""samebits plot: a chart of a cell as a file, and what is said where there is none."""

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from samebits.reports import again
from samebits.reports import json as reports_json
from samebits.reports.html import plot
from samebits.reports.html.charts import charts_of
from tests.support.sample_report import sample_report


@pytest.fixture
def report(tmp_path):
    path = tmp_path / "report.json"
    path.write_text(reports_json.render(sample_report()))
    return path


@pytest.fixture
def drawn(monkeypatch):
    """Return the specifications that a converter in place of vl-convert was given."""
    specifications = []

    def svg(specification):
        specifications.append(specification)
        return "<svg/>"

    def png(specification, scale):
        specifications.append(specification)
        return b"\x89PNG" + bytes([int(scale)])

    converter = SimpleNamespace(vegalite_to_svg=svg, vegalite_to_png=png)
    monkeypatch.setitem(sys.modules, "vl_convert", converter)
    return specifications


def cell_with_charts():
    return next(cell for cell in sample_report().cells if charts_of(cell))


def options(report, **changed):
    named = {"report": report, "cell": str(cell_with_charts().cell), "chart": "", "output": None}
    return argparse.Namespace(**named | changed)


def test_a_chart_is_written_beside_the_report(report, drawn):
    chart = charts_of(cell_with_charts())[0]
    (line,) = plot.write_chart(options(report))
    path = report.with_name(f"{chart.id}.svg")
    assert line == f"{chart.title}: {path}"
    assert path.read_text() == "<svg/>"
    assert drawn == [chart.specification | {"background": "white"}]


@pytest.mark.parametrize("number", range(len(charts_of(cell_with_charts()))))
def test_every_chart_of_a_cell_has_a_name(report, drawn, tmp_path, number):
    chart = charts_of(cell_with_charts())[number]
    output = tmp_path / "chart.PNG"
    plot.write_chart(options(report, chart=chart.name, output=output))
    assert output.read_bytes().startswith(b"\x89PNG")
    assert drawn[0]["background"] == "white"


MISTAKES = {
    "no report": ({"report": "none.json"}, "There is no report"),
    "no cell": ({"cell": "gemma2/float32@9"}, "Its cells with that model: "),
    "no model": ({"cell": "nobody/float32@9"}, "a cell is MODEL/DTYPE-ATTENTION@ENVIRONMENT"),
    "no chart": ({"chart": "pie"}, "has no chart"),
    "another format": ({"output": "chart.pdf"}, "written as .svg or .png"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_says_what_there_is(report, drawn, tmp_path, mistake):
    changed, words = MISTAKES[mistake]
    paths = {k: tmp_path / v for k, v in changed.items() if k in ("report", "output")}
    with pytest.raises(plot.PlotError, match=words):
        plot.write_chart(options(**{"report": report} | changed | paths))
    assert not drawn


def test_a_damaged_report_is_named(report):
    report.write_text(report.read_text()[:100])
    with pytest.raises(again.ReportFileError, match=r"no report\.json that can be read"):
        plot.write_chart(options(report))


@pytest.mark.long
def test_the_committed_report_of_an_earlier_version_can_be_drawn(drawn, tmp_path):
    """The README and a how-to show this command."""
    zoo = Path(__file__).parents[2] / "reports" / "zoo" / "report.json"
    output = tmp_path / "olmo3.svg"
    plot.write_chart(options(zoo, cell="olmo3/float32-default@5.2", output=output))
    assert output.read_bytes().startswith(b"<svg")
    assert drawn


def test_without_the_extra_its_name_is_said(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(plot.PlotError, match=r"samebits\[plot\]"):
        plot.write_chart(options(report))


def test_vl_convert_itself_draws_it(report, tmp_path):
    pytest.importorskip("vl_convert")
    for name, start in (("chart.svg", b"<svg"), ("chart.png", b"\x89PNG")):
        plot.write_chart(options(report, output=tmp_path / name))
        assert (tmp_path / name).read_bytes().startswith(start)
