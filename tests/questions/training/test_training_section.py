"""The section *Training*, the part of a model's page, and report.html."""

from pathlib import Path

import pytest

from samebits.findings.case import Case
from samebits.questions.registry import findings, texts
from samebits.questions.training.records import TrainingOfRow, TrainingReport
from samebits.questions.training.section import TITLE, training, training_of
from samebits.reports.document import render
from samebits.reports.html import site
from samebits.terminal.screen import screen
from tests.support.builders import Memory, sound
from tests.support.sample_report import only_rows, sample_report, with_cells, with_rows

SIZE = {"n": 4, "n_differ": 4, "max_abs": 0.5, "mean_abs": 0.1}
BROKEN = {
    "relation": "gradient checkpointing = without",
    "holds": False,
    "broken": True,
    "what": "model.norm.weight",
    "distance": SIZE,
    "promoted": SIZE,
}
ITEM = {
    "signal": "loss",
    "batch": "padded",
    "outcome": "diverged",
    "reference": 2.5,
    "candidate": 3.0,
    "own": 0.5,
    "float64": 0.5,
    "formulas": ("mean over the labels, the next token", "sum over the labels, the next token"),
}
STEP = {"losses": {"padded": 2.5}, "norm": 1.5, "behind": 2.25, "n_gradients": 21}


def step(**changed):
    return TrainingReport.model_validate(STEP | changed)


def compared(standing, **changed):
    return {"reference": "4.48", "standing": standing} | changed


def with_answers(**answers):
    """Return a report, and its first row with these answers of questions."""
    whole = sample_report()
    first, *others = whole.rows
    row = first.model_copy(update={"answers": answers})
    return whole.model_copy(update={"rows": (row, *others)}), row


def with_training(**steps):
    return with_answers(training=TrainingOfRow(stacks=steps))


def test_a_step_that_diverged_is_named_with_both_numbers_and_formulas():
    diverged = compared("diverged", first=ITEM, items=[ITEM], counts={"diverged": 1})
    report, row = with_training(**{"4.48": step(), "5.0": step(comparison=diverged)})
    text = render(report)["relations.md"].partition(f"## {TITLE}")[2].partition("\n## ")[0]
    assert "1 cell: diverged" in text
    assert "2.5 → 3" in text
    page = training_of([row])
    assert "sum over the labels" in page
    assert "reference" in page


SIDE = {
    "stack": "5.0",
    "op": "mul.Tensor",
    "arguments": "%, 3",
    "node": "SquareBackward",
    "forward": "mul.Tensor",
    "module": "model.layers.1",
    "function": "Square.backward",
    "source": "modeling_x.py:12",
    "inputs": ("float32[2, 4]",),
}
ORIGIN = {
    "batch": "padded",
    "part": "backward",
    "sink": "gradient of embed",
    "rung": "float64",
    "only_in": "candidate",
    "side": SIDE,
    "counterpart": SIDE | {"stack": "4.48", "arguments": "%, 2", "source": "modeling_x.py:10"},
    "evidence": ("the other side has no mask",),
}


def test_the_first_operation_that_differs_is_in_the_table_and_on_the_page():
    diverged = compared("diverged", first=ITEM, items=[ITEM], origin=ORIGIN)
    report, row = with_training(**{"4.48": step(), "5.0": step(comparison=diverged)})
    words = "begins in the backward with mul.Tensor of SquareBackward behind mul.Tensor"
    table, on_page = training(report), training_of([row])
    for text in (table, on_page):
        assert words in text
        assert "modeling_x.py:12" in text
        assert "modeling_x.py:10" in text
    assert "(%, 3)" in on_page
    assert "the other side has no mask" in on_page
    assert "gradient of embed of batch padded, seen in float64" in on_page


def test_a_side_that_leaves_something_out_is_said():
    left_out = ORIGIN | {"only_in": "reference", "side": SIDE | {"stack": "4.48"}}
    diverged = compared("diverged", first=ITEM, items=[ITEM], origin=left_out)
    report, _ = with_training(**{"4.48": step(), "5.0": step(comparison=diverged)})
    assert "which only 4.48 computes" in training(report)


def test_a_trace_that_shows_nothing_says_why():
    diverged = compared("diverged", first=ITEM, items=[ITEM], no_origin="no memory")
    report, row = with_training(**{"4.48": step(), "5.0": step(comparison=diverged)})
    assert "not known: no memory" in training(report)
    assert "not known: no memory" in training_of([row])


def test_a_broken_way_to_train_is_named_though_the_steps_agree():
    steps = {
        "4.48": step(),
        "5.0": step(comparison=compared("identical"), relations={"relations": [BROKEN]}),
    }
    report, row = with_training(**steps)
    assert "gradient checkpointing = without" in training(report)
    assert "broken" in training_of([row])


def test_quiet_steps_are_counted_and_not_listed():
    report, _ = with_training(**{"4.48": step(), "5.0": step(comparison=compared("identical"))})
    text = training(report)
    assert "1 cell: the same bits" in text
    assert "| stack" not in text


def test_a_model_that_is_not_trained_says_why():
    report, row = with_training(**{"4.48": TrainingReport(reason="forward takes no labels")})
    assert "1 model not trained: forward takes no labels" in training(report)
    assert "forward takes no labels" in training_of([row])


def html(report):
    return "".join(str(text) for text in site.folder(report, ()).values())


def test_report_html_has_the_step_with_what_explains_it():
    diverged = compared(
        "diverged", first=ITEM, items=[ITEM], no_origin="the step is too large to trace"
    )
    broken = {"relations": [BROKEN], "inapplicable": [], "no_float64": ""}
    later = step(comparison=diverged, relations=broken)
    report, row = with_training(**{"4.48": step(), "5.0": later})
    text = html(report)
    assert row.model in text
    assert f"<h2>{TITLE}</h2>" in text
    assert "sum over the labels" in text
    assert "the step is too large to trace" in text
    assert "<td>not tried</td>\n<td>broken</td>" in text


@pytest.mark.parametrize("diverged", [True, False])
def test_a_step_whose_logits_diverge_is_named_beside_a_verdict_that_passes(diverged):
    standing = "diverged" if diverged else "rounding"
    logits = {"signal": "logits", "batch": "padded", "outcome": standing}
    logits |= {"own": 0.5, "float64": 0.5 if diverged else 1e-9}
    comparison = compared(standing, first=logits, items=[logits], counts={standing: 1})
    trained = TrainingOfRow(stacks={"5.0": step(comparison=comparison)})
    case = Case(capture=sound(Memory(), "5.0"), answers={"training": trained})
    row = only_rows("llama").rows[0]
    cells = [
        cell.model_copy(update={"findings": findings(case) if cell.cell.stack == "5.0" else ()})
        for cell in row.cells
    ]
    row = with_cells(row, *cells).model_copy(update={"answers": {"training": trained}})
    report = with_rows(
        row, expected=(), exit_code=0, rules=tuple(texts(["SB840"]) if diverged else ())
    )
    terminal = "\n".join(screen(report, [Path("report.md")], {}))
    places = [render(report)["findings.md"], terminal]
    assert ["SB840" in text for text in places] == [diverged] * len(places)
    assert f"1 cell: {standing}" in render(report)["relations.md"]
    assert "the same bits" not in training(report)
