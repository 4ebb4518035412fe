"""The part of report.md that goes release by release."""

import re

import pytest

from samebits.records.band import Band
from samebits.records.report import StackReport
from samebits.reports.sections.releases import releases
from tests.support.sample_report import sample_report

DASH = "\N{EN DASH}"
IDS = {"4.48": "4.48.3", "4.49": "4.49.0", "5.0": "5.0.1", "5.x": "5.23.0"}


def report(*bands, models=("llama",), between=("4.49", "5.0"), broken=()):
    """Return a report whose rows, one for each of ``bands``, have these."""
    row = sample_report().rows[0]
    stacks = [
        StackReport(
            id=id,
            transformers=None if id in broken else version,
            between=id in between,
            failure="no wheel" if id in broken else None,
        )
        for id, version in IDS.items()
    ]
    rows = [
        row.model_copy(update={"model": m, "bands": b}) for m, b in zip(models, bands, strict=True)
    ]
    return sample_report().model_copy(update={"stacks": tuple(stacks), "rows": tuple(rows)})


BROKEN = (
    Band(stacks=("4.48", "4.49"), does="A"),
    Band(stacks=("5.0",), does="B", moved=("buffers", "logits")),
    Band(stacks=("5.x",), does="A", moved=("buffers", "logits")),
)
SAME = (Band(stacks=tuple(IDS), does="A"),)


def line(text, start):
    (found,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_a_matrix_as_it_stands_has_no_such_part():
    assert releases(report(BROKEN, between=())) == ""


def test_bands_and_where_they_move():
    text = releases(report(BROKEN, SAME, models=("llama", "gpt2")))
    assert "2 releases between those of matrix.yaml" in text
    assert line(text, "`llama/") == [
        "`llama/float32-sdpa`",
        f"**A** 4.48{DASH}4.49 · **B** 5.0 · **A** 5.x",
    ]
    assert line(text, "`gpt2/")[1] == f"**A** 4.48{DASH}5.x"
    assert line(text, "[4.49") == [
        "[4.49\u00a0→\u00a05.0](https://github.com/huggingface/transformers/compare/v4.49.0...v5.0.1)",
        "A → B",
        "`llama/float32-sdpa`",
        "buffers, logits",
    ]
    assert line(text, "[5.0")[1] == "B → A"
    assert "--releases --causes --models llama --environments 4.49,5.0`" in text


def test_two_releases_that_are_compared_already_need_no_command():
    told = report((Band(stacks=("4.49",), does="A"), Band(stacks=("5.0",), does="B")))
    assert "--causes" in releases(told)
    two = told.model_copy(update={"stacks": told.stacks[1:3]})
    assert "--causes" not in releases(two)


def test_rows_that_do_the_same_stand_together():
    text = releases(report(BROKEN, BROKEN, models=("llama", "gpt2")))
    assert "`llama/float32-sdpa`, `gpt2/float32-sdpa`" in line(text, "`llama/")[0]
    assert "`gpt2/float32-sdpa`" in line(text, "[4.49")[2]


def test_where_nothing_moves_there_are_no_steps():
    text = releases(report(SAME))
    assert "Where the bits change" not in text
    assert "--causes" not in text


def test_a_release_that_could_not_be_built_is_named_and_not_linked():
    failed = (BROKEN[0], Band(stacks=("5.0",), does="failed"), Band(stacks=("5.x",), does="A"))
    text = releases(report(failed, broken=("5.0",)))
    assert "Could not be built, so they are not covered: `5.0`." in text
    assert line(text, "4.49")[:2] == ["4.49\u00a0→\u00a05.0", "A → failed"]


@pytest.mark.parametrize("name", ["a|b", "<b>x</b>", "`"])
def test_a_name_stays_text(name):
    text = releases(report(BROKEN, models=(name,)))
    assert "<b>" not in re.sub("`[^`]*`", "", text)
    assert all(row.count(" | ") <= 3 for row in text.splitlines() if row.startswith("| "))
