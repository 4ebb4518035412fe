"""docs/models.md is what the committed report of the zoo says."""

import re

import pytest

from bench import known
from samebits.reports import again
from samebits.reports.packed import NAME


@pytest.fixture(scope="module")
def zoo():
    return again.read(known.ZOO / NAME).report


def test_the_page_holds_what_is_generated(zoo):
    published = known.PATH.read_text("utf-8")
    assert published == known.render(zoo), "run: python -m bench.known"


def test_every_model_but_our_own_has_one_line(zoo):
    lines = re.findall(r"^\| \[([\w.-]+)\]", known.render(zoo), re.MULTILINE)
    names = {row.model for row in zoo.rows if row.group != known.OWN_CODE}
    assert sorted(lines) == sorted(names)
    assert len(names) >= 90


def test_the_worst_variant_decides_the_mark(zoo):
    """roberta is right in bfloat16, and not in float32."""
    (line,) = [x for x in known.render(zoo).splitlines() if x.startswith("| [roberta]")]
    assert line.split(" | ")[1:5] == ["**✗**", "✓", "✓", "✓"]
    assert "[SB308](findings/SB308.md)" in line


def test_models_that_a_release_does_not_run_come_first(zoo):
    text = known.render(zoo)
    assert text.index("[t5]") < text.index("[gemma2]") < text.index("differ by rounding at most")
    assert text.index("differ by rounding at most") < text.index("[llama]")
