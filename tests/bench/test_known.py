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
    models = page.partition("## The defects, and who is hit")[0]
    lines = re.findall(r"^\| \[([\w.-]+)\]", models, re.MULTILINE)
    names = {row.model for row in zoo.rows if row.group != known.OWN_CODE}
    assert sorted(lines) == sorted(names)
    assert len(names) >= 90


def test_the_worst_variant_decides_the_mark(page):
    """roberta is right in bfloat16, and not in float32."""
    (line,) = [x for x in page.splitlines() if x.startswith("| [roberta]")]
    assert line.split(" | ")[1:5] == ["**✗**", "✓", "✓", "✓"]
    assert "[SB308](findings/SB308.md)" in line


def test_each_defect_says_who_is_hit_in_which_releases_and_what_to_do(page):
    lines, defects = page.split("## The defects, and who is hit")
    rows = [line.strip("| ").split(" | ") for line in defects.splitlines() if "| [SB" in line]
    named = re.findall(r"findings/(SB\d+)\.md", lines)
    assert [re.findall(r"SB\d+", row[0])[0] for row in rows] == sorted(set(named))
    incomplete = [row[0] for row in rows if len(row) != 5 or not all(row)]
    assert incomplete == [], (
        "each page of these findings needs a paragraph that begins with **Hit if**"
    )
    (gemma2,) = [row for row in rows if "SB605" in row[0]]
    assert "`attn_logit_softcapping`" in gemma2[1]
    assert "gemma2: 4.48 to 5.20" in gemma2[2]
    (decoding,) = [row for row in rows if "SB704" in row[0]]
    assert "4.48.3, 4.57.6, 5.2.0: mamba2" in decoding[4]


def test_the_line_of_a_model_says_which_side_is_wrong_and_what_to_do(page):
    (line,) = [x for x in page.splitlines() if x.startswith("| [gemma2]")]
    assert "| 4.48 is wrong: SDPA leaves out" in line
    assert "Set `attn_implementation='eager'`" in line


def test_models_that_a_release_does_not_run_come_first(page):
    rounding = page.index("differ by rounding at most")
    assert page.index("[t5]") < page.index("[gemma2]") < rounding < page.index("[llama]")
