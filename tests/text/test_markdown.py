import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from samebits.text import blocks, numbers
from samebits.text import markdown as text_markdown
from samebits.text.markdown import Markdown, code, fill, html_text, prose, shorten, visible
from samebits.text.names import numbered, page_path
from tests.support.pages import NASTY

GFM = MarkdownIt("commonmark").enable(["table", "strikethrough"])


texts = st.one_of(
    st.sampled_from(NASTY),
    st.lists(st.sampled_from(NASTY), min_size=2, max_size=3).map("".join),
    st.text(st.characters(codec=None), max_size=40),
    st.text("|`\\*_[]<>&#~-=+1. \n\t", max_size=12),
)


def structure(markdown):
    """Return every token of the document without its text."""
    return [
        (token.type, [child.type for child in token.children or [] if child.type != "text"])
        for token in GFM.parse(markdown)
    ]


def words(markdown):
    """Return the visible text of one inline token."""
    inline = next(token for token in GFM.parse(markdown) if token.type == "inline")
    return "".join(child.content for child in inline.children)


@given(texts)
@example("foo #")
@example("-")
@example("a_b__c_ _d")
def test_prose_stays_one_paragraph_of_text(raw):
    shown = prose(raw)
    expected = [("paragraph_open", []), ("inline", []), ("paragraph_close", [])]
    assert structure(shown) == (expected if shown else [])


@given(texts)
def test_prose_shows_what_was_given(raw):
    if shown := prose(raw):
        assert words(shown) == visible(" ".join(raw.split()))


@given(texts)
def test_prose_in_a_heading_stays_in_the_heading(raw):
    tokens = GFM.parse(blocks.heading(2, fill("a {}", raw)))
    assert [token.type for token in tokens] == ["heading_open", "inline", "heading_close"]
    assert tokens[1].children
    assert all(child.type == "text" for child in tokens[1].children)
    assert tokens[1].children[0].content == f"a {visible(' '.join(raw.split()))}".strip()


@given(texts)
def test_code_stays_one_code_span_and_shows_what_was_given(raw):
    shown = shorten(visible(raw))
    assert structure(code(raw)) == [
        ("paragraph_open", []),
        ("inline", ["code_inline"]),
        ("paragraph_close", []),
    ]
    assert words(code(raw)).strip("'").strip() == shown.strip("'").strip()


@given(st.lists(st.lists(texts, min_size=3, max_size=3), min_size=1, max_size=3))
def test_a_table_has_the_columns_it_was_given(rows):
    cells = [[prose(a), code(b), fill("x {}", c)] for a, b, c in rows]
    kinds = [kind for kind, _ in structure(blocks.table(["a", "b", "c"], cells))]
    columns = 3 if any(row[0] for row in cells) else 2
    assert kinds.count("td_open") == columns * len(rows)
    assert kinds.count("th_open") == columns
    assert kinds[0] == "table_open"
    assert kinds[-1] == "table_close"


@given(texts)
def test_a_table_shows_what_was_given(raw):
    table = blocks.table(["a", "b"], [["x", code(f"a{raw}b")]])
    cells = [token for token in GFM.parse(table) if token.type == "inline"]
    assert cells[-1].children[0].content == shorten(visible(f"a{raw}b"))


@given(texts)
def test_a_list_has_the_items_it_was_given(raw):
    kinds = [kind for kind, _ in structure(blocks.bullets([raw or "x", "y"]))]
    assert kinds.count("list_item_open") == 2
    assert kinds.count("bullet_list_open") == 1


@given(texts)
def test_a_fence_holds_all_of_its_text(raw):
    tokens = GFM.parse(f"{blocks.fence(raw)}\n\nafter")
    assert next(token.type for token in tokens) == "fence"
    assert len(tokens) == 4
    assert tokens[0].content.count("\n") == raw.strip("\r\n").count("\n") + 1


@given(texts)
def test_a_folded_part_holds_nothing_but_its_own_tags(raw):
    part = blocks.details(raw, prose(raw))
    html = [token.content for token in GFM.parse(part) if token.type == "html_block"]
    tags = re.findall(r"</?[a-z!]+", "".join(html))
    assert tags == ["<details", "<summary", "</summary", "</details"]


@given(texts)
def test_nothing_invisible_is_left(raw):
    assert visible(raw).isprintable()
    assert html_text(raw).isprintable()


def test_control_characters_are_written_out():
    assert visible("\x1b[31m\u202e\n") == r"\x1b[31m\u202e\n"


def test_a_leading_combining_mark_is_written_out():
    assert visible("\u0301a") == r"\u0301a"
    assert visible("e\u0301") == "e\u0301"


def test_names_read_as_they_are():
    assert prose("inv_freq of model.layers.0, 4.48 (#25420)") == (
        "inv_freq of model.layers.0, 4.48 (#25420)"
    )


def test_code_without_visible_ends_is_quoted():
    assert code("") == "`''`"
    assert code(" the") == "`' the'`"


def test_long_text_is_shortened_in_its_middle():
    short = shorten("a" * 100 + "b" * 2000, 30)
    assert short == f"{'a' * 20} …2,070 characters… {'b' * 10}"
    assert shorten("a" * 55, 30) == "a" * 55


def test_what_is_clipped_ends_in_dots():
    assert text_markdown.clip("abc def", 5) == "abc…"
    assert text_markdown.clip("abc", 3) == "abc"
    assert text_markdown.clip("one, two three", 9) == "one, two…"
    assert text_markdown.clip("one two, (three)", 12) == "one two…"
    assert text_markdown.clip("a verylongword", 9) == "a verylo…"


@given(texts, st.integers(10, 60))
def test_a_brief_text_is_never_longer_than_its_limit(raw, limit):
    assert len(text_markdown.brief(raw, limit)) <= limit


def test_a_brief_text_keeps_the_figures_at_its_end():
    assert (
        text_markdown.brief("logits: a  long\nstory of it: max abs 1", 30)
        == "logits: a long…: max abs 1"
    )
    assert text_markdown.brief("one two three four", 10) == "one two…"
    assert text_markdown.brief(f"a: {'b' * 20}", 10) == "a: bbbbbb…"
    assert text_markdown.brief("a: b", 10) == "a: b"


def test_fill_trusts_its_template_and_no_value():
    assert fill("**{}** {}", "*a*", Markdown("*b*")) == r"**\*a\*** *b*"


def test_web_addresses_become_links_and_nothing_else_does():
    linked = blocks.linked("see https://github.com/a/b/pull/1 or javascript:alert(1)")
    assert linked == "see <https://github.com/a/b/pull/1> or javascript:alert(1)"
    assert blocks.linked("https://a.b/<x>") == r"https://a.b/\<x>"


def test_a_link_keeps_its_target_in_its_brackets():
    assert blocks.link("lock", "locks/a b).txt") == "[lock](locks/a%20b%29.txt)"


def test_slugs_are_those_of_github():
    assert blocks.slug("llama/float32-sdpa") == "llamafloat32-sdpa"
    assert blocks.slug("Qwen3.5 x_y") == "qwen35-x_y"


def test_a_last_column_of_words_is_not_padded():
    rows = [["1", "2"], ["1", "long"]]
    assert "| 2 |\n" in blocks.table(["a", "b"], rows)
    assert "|    2 |\n" in blocks.table(["a", "b"], rows, right=("b",))


def test_the_path_of_a_page_stays_in_its_folder():
    assert page_path("qwen3.5_moe-x") == "models/qwen3.5_moe-x.md"
    assert page_path("../a b\ud800") == "models/..%2Fa%20b%5Cud800.md"


def test_empty_columns_are_left_out():
    table = blocks.table(["a", "b"], [["1", ""], ["2", ""]])
    assert "b" not in table
    assert blocks.table(["a"], []) == ""


def test_digits_stay_as_they_are():
    assert "4.50" in blocks.table(["a"], [["4.50"]])
    assert "1e5" in blocks.table(["a"], [["1e5"]])


def test_long_fences_are_shortened_in_their_middle():
    shown = blocks.fence("\n".join(map(str, range(1000))))
    assert "… 880 lines …" in shown
    assert shown.count("\n") < 130


def test_a_list_of_names_says_how_many_it_leaves_out():
    assert blocks.codes("abcd", limit=2) == "`a`, `b` and 2 more"
    assert blocks.codes("ab", limit=2) == "`a`, `b`"


def test_long_blocks_are_folded():
    assert blocks.folded("t", Markdown("a\nb"), longest=1).startswith("<details>")
    assert blocks.folded("t", Markdown("a"), longest=1) == "t:\n\na"


@pytest.mark.parametrize(
    ("n", "total", "expected"),
    [
        (0, 10, "0 %"),
        (10, 10, "100 %"),
        (1, 10**9, "<0.1 %"),
        (10**9 - 1, 10**9, ">99.9 %"),
        (1, 3, "33.3 %"),
        (0, 0, "none compared"),
        (9995, 10_000, ">99.9 %"),
        (999, 1000, "99.9 %"),
    ],
)
def test_shares_never_round_into_none_or_all(n, total, expected):
    assert numbers.share(n, total) == expected


@given(st.integers(1, 10**12), st.integers(0, 10**12))
def test_a_share_of_some_is_neither_none_nor_all(n, more):
    share = numbers.share(n, n + more)
    assert (share == "100 %") == (more == 0)
    assert share not in ("0 %", "0.0 %", "100.0 %")


@pytest.mark.parametrize(
    ("value", "expected"),
    [(7.9e-07, "7.9e-07"), (0.0, "0"), (-0.0, "0"), (float("nan"), "nan"), (float("inf"), "inf")],
)
def test_numbers_are_written_one_way(value, expected):
    assert numbers.number(value) == expected


def test_exact_shows_powers_of_two():
    assert numbers.exact(2**-9) == "1.953125e-03"


def test_a_pair_of_other_values_never_looks_equal():
    assert numbers.pair(1.0, 1.0 + 2**-52) == ("1.0", "1.0000000000000002")
    assert numbers.pair(-6.34375, -6.21875) == ("-6.34375", "-6.21875")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.44, "0.4 s"),
        (9.96, "10 s"),
        (59.7, "1 min 0 s"),
        (754.2, "12 min 34 s"),
        (7800, "2 h 10 min"),
        (-1, "0.0 s"),
    ],
)
def test_durations(seconds, expected):
    assert numbers.duration(seconds) == expected


def test_huge_distances_are_sizes():
    assert numbers.ulp(999_999) == "999,999"
    assert numbers.ulp(2_092_982_002) == "2.1e+09"
    text = numbers.rounded_ulp("1 of 2,092,982,002 elements (18,432 ULP) (2,092,982,002 ULP)")
    assert text == "1 of 2,092,982,002 elements (18,432 ULP) (2.1e+09 ULP)"


def test_counts_and_plurals():
    assert numbers.part(12, 4096) == "12 of 4,096 (0.3 %)"
    assert numbers.plural(1, "cell") == "1 cell"
    assert numbers.plural(1200, "cell") == "1,200 cells"


def test_names_with_running_numbers_are_joined():
    names = [f"model.layers.{i}.self_attn" for i in (0, 1, 2, 5)]
    assert numbered(["lm_head", *names]) == ["lm_head", "model.layers.0-2,5.self_attn"]
    assert numbered(["h.0", "h.1", "g.0", "conv1d"]) == ["h.0-1", "g.0", "conv1d"]


def test_join_escapes_what_is_not_markdown():
    assert text_markdown.join(["*a*", code("b")], " → ") == r"\*a\* → `b`"
