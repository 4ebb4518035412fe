"""bench.levels: what two levels conclude about the same cells."""

import pytest

from bench import page
from bench.levels import compare, counted, extent
from samebits.questions.relations.records import RelationsOfRow, signals_of
from samebits.records.finding import Finding
from samebits.records.ids import Verdict
from tests.support.sample_report import relation, sample_report

REPORT = sample_report()
CELL = next(c for row in REPORT.rows for c in row.cells if c.verdict == Verdict.IDENTICAL)


def changed(report=REPORT, **update):
    rows = (
        row.model_copy(
            update={
                "cells": tuple(
                    cell.model_copy(update=update) if cell.cell == CELL.cell else cell
                    for cell in row.cells
                )
            }
        )
        for row in report.rows
    )
    return report.model_copy(update={"rows": tuple(rows)})


def with_relations(*relations):
    signal = next(signal for row in REPORT.rows for signal in signals_of(row).values())
    signals = {CELL.cell.stack: signal.model_copy(update={"relations": relations})}
    answers = {"relations": RelationsOfRow(stacks=signals)}
    rows = (
        row.model_copy(update={"answers": answers}) if CELL in row.cells else row
        for row in REPORT.rows
    )
    return REPORT.model_copy(update={"rows": tuple(rows)})


DEEPER = {
    "a finding": changed(findings=(Finding(code="SB101", where="weight", evidence=()),)),
    "a broken relation": with_relations(relation("batch size", "40 tokens", 1.0, promoted=1.0)),
}


def test_the_same_report_twice_has_no_difference():
    assert compare(REPORT, REPORT) == ([], [])


@pytest.mark.parametrize("deeper", DEEPER.values(), ids=DEEPER)
def test_what_only_the_deeper_level_sees_is_listed(deeper):
    base = REPORT if deeper is DEEPER["a finding"] else with_relations()
    seen = compare(base, deeper)
    assert [line.cell for line in seen.deeper] == [str(CELL.cell)]
    assert not seen.contradictions


@pytest.mark.parametrize("deeper", DEEPER.values(), ids=DEEPER)
def test_what_the_deeper_level_does_not_confirm_contradicts_it(deeper):
    base = REPORT if deeper is DEEPER["a finding"] else with_relations()
    assert [line.cell for line in compare(deeper, base).contradictions] == [str(CELL.cell)]


def test_another_verdict_contradicts_the_deeper_level():
    result = compare(REPORT, changed(verdict=Verdict.DIVERGED))
    assert [line.text for line in result.contradictions] == ["identical"]


def test_a_cell_that_only_the_deeper_level_finds_unstable_is_no_contradiction():
    result = compare(REPORT, changed(verdict=Verdict.UNSTABLE, signals=()))
    assert [line.text for line in result.deeper] == ["unstable"]
    assert not result.contradictions


def test_conclusions_are_counted_by_cell_and_without_their_place():
    findings = tuple(Finding(code="SB101", where=where, evidence=()) for where in ("a", "b"))
    step = counted("quick", "default", compare(REPORT, changed(findings=findings)))
    assert step["only_deeper"] == {"finding SB101": 1}
    assert step["contradictions"] == {}


def test_the_document_lists_what_only_a_deeper_level_concludes():
    step = counted("quick", "default", compare(REPORT, DEEPER["a finding"]))
    levels = {"date": "2026-01-02", "steps": [step], **extent(REPORT)}
    text = "\n".join(page._levels(levels))
    assert "| quick and default | only default concludes | finding SB101 (1)" in " ".join(
        text.split()
    )
    assert f"{extent(REPORT)['cells']} cells" in text
    assert "contradicted by default | none" in " ".join(text.split())
