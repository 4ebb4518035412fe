"""docs/models.md is what the committed report of the zoo says."""

import re

import pytest

from bench import known
from tests.support.zoo import zoo_report


@pytest.fixture(scope="module")
def zoo():
    return zoo_report()


@pytest.fixture(scope="module")
def page(zoo):
    return known.render(zoo)


def test_the_page_holds_what_is_generated(page):
    published = known.PATH.read_text("utf-8")
    assert published == page, "run: python -m bench.known"


def test_every_model_but_our_own_has_one_line(zoo, page):
    lines = re.findall(r"^\| \[([\w.-]+)\]", page, re.MULTILINE)
    names = {row.model for row in zoo.rows if row.group != known.OWN_CODE}
    assert sorted(lines) == sorted(names)
    assert len(names) >= 90


def test_the_worst_variant_decides_the_mark(page):
    """roberta is right in bfloat16, and not in float32."""
    (line,) = [x for x in page.splitlines() if x.startswith("| [roberta]")]
    assert line.split(" | ")[1:5] == ["**✗**", "✓", "✓", "✓"]
    assert "[SB308](findings/SB308.md)" in line


def test_models_that_a_release_does_not_run_come_first(page):
    rounding = page.index("differ by rounding at most")
    assert page.index("[t5]") < page.index("[gemma2]") < rounding < page.index("[llama]")
