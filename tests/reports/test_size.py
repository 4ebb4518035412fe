"""report.md fits a pull request and a model's page a screen or few, also for the largest matrix."""

from pathlib import Path

import pytest

from samebits.matrix import load
from samebits.reports import details, document
from samebits.reports.model_pages import MAX_SECTION, MAX_STORIES
from samebits.text.blocks import cut, fence, page
from samebits.text.blocks import details as folded
from samebits.text.markdown import Markdown
from tests.support.pages import links_of
from tests.support.sample_report import sample_report
from tests.support.zoo import zoo_report

ROOT = Path(__file__).parents[2]
MAX_PAGE = 84_000
"""Bytes of a model's page; what has no limit of its own, such as the averages, is small."""


@pytest.fixture(scope="module")
def zoo():
    return zoo_report()


@pytest.fixture(scope="module")
def pages(zoo):
    return document.render(zoo)


def of_default_matrix(report):
    """Return the report with the models of matrix.yaml, which are models of the zoo as well."""
    names = {model.name for model in load.load(ROOT / "matrix.yaml").models}
    rows = tuple(row for row in report.rows if row.model in names)
    assert len(rows) >= 16
    return report.model_copy(update={"rows": rows})


def test_the_report_of_the_default_matrix_fits_a_pull_request(zoo):
    assert len(document.render(of_default_matrix(zoo))["report.md"].splitlines()) <= 200


def test_so_does_that_of_the_zoo(pages):
    assert len(pages["report.md"].splitlines()) <= 200
    assert len(pages["report.md"].encode()) < 40_000


def test_every_page_of_a_model_is_small(pages):
    sizes = {path: len(text.encode()) for path, text in pages.items() if path.startswith("models/")}
    assert len(sizes) > 100
    assert {path: size for path, size in sizes.items() if size > MAX_PAGE} == {}
    assert sum(sizes.values()) / len(sizes) < 34_000


def test_report_md_leads_to_every_page_of_a_subject(pages):
    assert set(details.PATHS) <= set(links_of(pages["report.md"]))


def test_the_committed_pages_have_these_sizes():
    folder = ROOT / "reports" / "zoo"
    assert len((folder / "report.md").read_text("utf-8").splitlines()) <= 200
    assert max(path.stat().st_size for path in (folder / "models").iterdir()) <= MAX_PAGE


@pytest.mark.parametrize("n", [1, 30])
def test_many_failing_models_do_not_make_it_longer(n):
    sample = sample_report()
    rows = tuple(
        row.model_copy(update={"model": f"{row.model}-{i}"})
        for i in range(n)
        for row in sample.rows
    )
    report = sample.model_copy(update={"rows": rows})
    assert len(document.render(report)["report.md"].splitlines()) <= 200


# cutting


MORE = Markdown("*more*")


def test_a_short_block_is_not_cut():
    block = page([Markdown("## h"), Markdown("a")])
    assert cut(block, MAX_SECTION, MORE) == block


@pytest.mark.parametrize("limit", [0, 10, 40, 100, 200, MAX_STORIES])
def test_a_block_is_cut_between_paragraphs(limit):
    fenced = fence("a\n\nb\n\n```\n\nc")
    hidden = folded("more", Markdown("x\n\ny"), fenced)
    parts = [Markdown("## h"), Markdown("one"), fenced, hidden, Markdown("last")]
    block = page(parts)
    shown = cut(block, limit, MORE)
    kept = [n for n in range(1, len(parts) + 1) if shown in (page([*parts[:n], MORE]), block)]
    assert kept, shown
    assert len(shown) <= max(limit, len(page([parts[0], MORE])))


def test_every_finding_of_a_model_has_its_evidence_on_the_page(zoo, pages):
    """The first screen says *see below*; of most models with many findings the later ones were cut."""
    texts = {text.code: text for text in zoo.rules if text.scope == "model"}
    n_many = 0
    for row in zoo.rows:
        named = {f.code for cell in row.cells for f in cell.findings} & texts.keys()
        n_many += len(named) > 8
        page_of_model = pages[f"models/{row.model}.md"] if named else ""
        section = page_of_model.partition("## Findings\n")[2].partition("\n## ")[0]
        assert {code for code in named if f"{code} " not in section} == set(), row.model
        assert "Cut here" not in section, row.model
    assert n_many > 10
