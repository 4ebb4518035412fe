"""A model's page: each remedy once and in view, what stands behind it folded."""

import re

from samebits.questions.registry import texts
from samebits.records.finding import Explanation, Finding
from samebits.records.ids import Variant, Verdict
from samebits.reports.document import render
from samebits.reports.model_pages import LONG, _folded
from samebits.text.markdown import Markdown
from tests.support.sample_report import cell, ended, row, with_rows

VARIANT = Variant(dtype="float32", attention="default")
_FOLDS = re.compile(r"<details>.*?</details>", re.DOTALL)


def model_page(*findings, explained=()):
    """Return the page of a model whose newest release has these findings, and what of it is in view."""
    reasons = tuple(Explanation(code=code, where="w", stack="5.23") for code in explained)
    cells = {
        "4.57": cell("tiny", VARIANT, "4.57", Verdict.REFERENCE),
        "5.23": cell("tiny", VARIANT, "5.23", Verdict.DIVERGED, findings=findings).model_copy(
            update={"explained_by": reasons}
        ),
    }
    rules = tuple(texts({finding.code for finding in findings}))
    report = ended(with_rows(row("tiny", VARIANT, cells), rules=rules))
    whole = render(report)["models/tiny.md"].partition("## Findings")[2]
    return whole, _FOLDS.sub("", whole)


def test_each_finding_has_its_remedy_in_view_and_its_cause_folded():
    codes = ("SB203", "SB301", "SB404", "SB843", "SB916")
    found = [Finding(code=code, where="w", evidence=("seen",)) for code in codes]
    whole, in_view = model_page(*found)
    for text in texts(codes):
        assert in_view.count(f"### {text.code} ") == 1
        remedy = " ".join(text.remedy.split()[:3]).replace("`", "")
        assert in_view.replace("`", "").count(f"**Remedy.** {remedy}") == 1
    assert "**Cause.**" in whole
    assert "**Cause.**" not in in_view


def test_a_defect_that_goes_with_another_one_refers_to_its_remedy():
    found = [Finding(code=c, where="lm_head.weight", evidence=(c,)) for c in ("SB304", "SB404")]
    _, in_view = model_page(*found, explained=("SB304", "SB404"))
    assert "**Remedy.** That of SB404, which mends this, too." in in_view
    assert in_view.count("**Remedy.** ") == 2
    _, alone = model_page(found[0], explained=("SB304",))
    assert "**Remedy.** Compare the names" in alone


def test_places_with_the_same_evidence_have_it_once():
    alike = [Finding(code="SB301", where=f"layers.{i}", evidence=("unwritten",)) for i in range(3)]
    other = Finding(code="SB301", where="head", evidence=("partly written",))
    _, in_view = model_page(*alike, other)
    assert in_view.count("- unwritten") == 1
    assert "`layers.0`, `layers.1`, `layers.2`, float32" in in_view
    assert in_view.count("- partly written") == 1


def test_long_sections_are_folded_below_their_headings_and_short_ones_are_not():
    long = "\n".join(f"- line {i}" for i in range(LONG + 1))
    page = _folded(Markdown(f"## Training\n\n{long}\n\n## Loading\n\n- one"))
    assert page.startswith("## Training\n\n<details>\n<summary>Show</summary>\n\n- line 0\n")
    assert page.endswith("</details>\n\n## Loading\n\n- one")
