"""Sections of report.md as HTML: the same text, and nothing that a model could bring in."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samebits.reports.html.prose import rendered, with_code
from samebits.text.blocks import bullets, details, fence, heading, link, linked, page, table
from samebits.text.markdown import Markdown, code, prose

TAGS = re.compile(r"<(/?)([a-z0-9]+)")
OURS = {"h2", "p", "ul", "li", "div", "table", "thead", "tbody", "tr", "th", "td", "code", "pre"}
OURS |= {"details", "summary", "a", "strong", "em"}


def nowhere(_target):
    return ""


def section(text):
    return page(
        [
            heading(2, text),
            prose(text),
            bullets([text]),
            table(["a"], [[text], [code(text)]]),
            details(text, prose(text)),
            fence(text),
        ]
    )


def test_a_table_can_be_scrolled_and_has_no_style():
    html = rendered(table(["a", "b"], [["1", "2"]], right=("b",)), nowhere)
    assert '<div class="scroll"' in html
    assert html.count("<div") == html.count("</div>") == 1
    assert '<th scope="col">a</th>' in html
    assert "style" not in html


def test_a_folded_part_stays_folded():
    html = rendered(details("more", prose("text")), nowhere)
    assert re.sub(r"\s", "", html) == "<details><summary>more</summary><p>text</p></details>"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("models/a.md", '<a href="a.html">a</a>'),
        ("models/b.md", "<a>a</a>"),
    ],
    ids=["a page", "no page"],
)
def test_a_link_leads_to_the_page_of_its_target_or_nowhere(target, expected):
    pages = {"models/a.md": "a.html"}
    assert expected in rendered(link("a", target), lambda t: pages.get(t, ""))


def test_a_web_address_leads_there():
    html = rendered(linked("see https://x.org/"), nowhere)
    assert '<a href="https://x.org/" rel="noreferrer noopener">https://x.org/</a>' in html


def test_names_of_code_in_a_text_are_code_and_the_rest_is_escaped():
    shown = with_code("Set `a='<b>'` or use_cache. <i>")
    assert shown == "Set <code>a=&#39;&lt;b&gt;&#39;</code> or <code>use_cache</code>. &lt;i&gt;"


def test_a_head_that_says_nothing_is_a_plain_cell():
    html = rendered(table(["", "b"], [["1", "2"]]), nowhere)
    assert html.count("<th") == html.count("</th") == 2  # thead, and b
    assert "<td></td>" in html


def test_raw_html_is_text():
    for raw in ("<script>x</script>", "a <b onclick=x>", "<details>\n<summary><i>", "<!-- x -->"):
        html = rendered(Markdown(raw), nowhere)
        assert {tag for _, tag in TAGS.findall(html)} <= {"p"}, html


@given(st.text(max_size=60))
def test_no_text_becomes_a_tag(text):
    html = rendered(section(text), nowhere)
    assert {tag for _, tag in TAGS.findall(html)} <= OURS
    assert "href" not in html
