"""Every place that says why a cell does not pass names what decides, and the first difference apart."""

import pytest

from samebits.records.comparison import Difference
from samebits.records.ids import Verdict
from samebits.reports.formats.github import summary, workflow_commands
from samebits.reports.formats.registry import DEFAULT, render
from samebits.reports.head import head
from samebits.reports.issue import new_issue
from tests.support.sample_report import sample_report

FIRST = Difference(
    signal="hidden_states", item="short", what="hidden_states: layer 1: max abs 5.6e-09"
)
DECIDING = Difference(
    signal="outputs",
    item="short · rope_deltas",
    what="outputs: short · rope_deltas: forward no longer returns it",
)


def report(deciding):
    sample = sample_report()
    row = next(row for row in sample.rows if row.model == "gemma2")
    cells = tuple(
        cell
        if cell.verdict in (Verdict.REFERENCE, Verdict.IDENTICAL)
        else cell.model_copy(
            update={
                "verdict": Verdict.DIVERGED,
                "judged": Verdict.DIVERGED,
                "rest": None,
                "failure": None,
                "expected": (),
                "first": FIRST,
                "deciding": deciding,
                "headline": (deciding or FIRST).what,
                "figure": "outputs 1 of 5",
                "cause": None,
                "graft": None,
            }
        )
        for cell in row.cells
    )
    rows = (row.model_copy(update={"cells": cells}),)
    return sample.model_copy(update={"rows": rows, "expected": (), "exit_code": 1})


def places(sample):
    """Return every text that says why a cell does not pass, by its name."""
    files = render(sample, [*DEFAULT, "junit", "github"])
    texts = {path: text for path, text in files.items() if isinstance(text, str)}
    wanted = {
        name: next(text for path, text in texts.items() if path.endswith(name))
        for name in ("report.md", "models/gemma2.md", "junit.xml", "models/gemma2.html")
    }
    return wanted | {
        "annotation": "\n".join(workflow_commands(sample)),
        "summary": summary(sample),
        "issue": new_issue(sample).body,
    }


@pytest.mark.parametrize(
    "name",
    [
        *("report.md", "models/gemma2.md", "models/gemma2.html", "junit.xml"),
        *("annotation", "summary", "issue"),
    ],
)
def test_what_decides_is_named_before_the_first_difference(name):
    text = places(report(DECIDING))[name].replace("\\_", "_")
    assert "forward no longer returns it" in text
    if "5.6e-09" in text:
        assert text.index("forward no longer returns it") < text.index("5.6e-09")
    clean = places(report(None))[name]
    assert "5.6e-09" in clean
    assert "forward no longer returns it" not in clean


def test_the_head_has_the_figure_of_what_decides():
    assert any("outputs 1 of 5" in line for line in head(report(DECIDING)))
