"""report.html: what its pages hold and link to, without a browser."""

import html
import json
import posixpath
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from samebits.questions.relations.chart import quantiles
from samebits.records.band import Band
from samebits.records.comparison import TokenSplit
from samebits.records.finding import Explanation, Finding, Step
from samebits.records.graft import Graft, GraftSuspect, Try, Untried
from samebits.records.ids import Verdict
from samebits.records.trace import Side, SourceDiff, TraceLine, TracePair
from samebits.reports import document, upgrade
from samebits.reports.answer import answers, is_quiet
from samebits.reports.html import bands, charts, flow, site, states
from samebits.reports.html.addresses import (
    HOME,
    Addresses,
    anchor,
    model_page,
    upgrade_page,
    web_address,
)
from samebits.reports.html.answers import Answers
from samebits.reports.html.diff import source_diff
from samebits.reports.html.matrix import chips, filters, lines, severity
from samebits.text.chart import lines as chart_lines
from samebits.text.chart import points_layer, safe_json
from tests.support.builders import cause_in
from tests.support.sample_report import (
    NEVER_WRITTEN,
    STACKS,
    each_cell,
    raised,
    renamed,
    sample_report,
    with_cells,
)

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e\x1b[31m</style>--><!--"
TAGS_OF_A_PAGE = {
    *("html", "head", "meta", "title", "link", "script", "style", "body", "header", "nav", "main"),
    *("div", "span", "a", "b", "p", "br", "code", "pre", "small", "strong", "bdi", "section"),
    *("h1", "h2", "h3", "h4", "ol", "ul", "li", "dl", "dt", "dd", "article", "figure"),
    *("figcaption", "details", "summary", "table", "caption", "thead", "tbody", "tr", "th", "td"),
    *("form", "label", "input", "select", "option", "button"),
}


class Reader(HTMLParser):
    """Collects ids, links, tags and attributes of a page."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.tags, self.attributes = [], [], set(), set()
        self.scripts = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        fields = dict(attrs)
        self.tags.add(tag)
        self.attributes |= set(fields)
        self.ids += [fields["id"]] if "id" in fields else []
        self.links += [fields[name] for name in ("href", "src") if name in fields]
        if tag == "option" and fields.get("value", "").endswith(".html"):
            self.links.append(fields["value"])
        if tag == "script":
            self.scripts.append(fields)


@pytest.fixture(scope="module")
def report():
    return sample_report()


@pytest.fixture(scope="module")
def files(report):
    return site.folder(report, document.render(report))


@pytest.fixture(scope="module")
def pages(files):
    return {path: Reader(text) for path, text in files.items() if path.endswith(".html")}


def test_every_model_and_every_pair_of_releases_has_a_page(report, files):
    models = {row.model for row in report.rows}
    assert {model_page(model) for model in models} <= files.keys()
    assert {upgrade_page(*pair) for pair in upgrade.pairs(report)} <= files.keys()
    assert HOME in files


def test_every_link_leads_to_a_file_and_a_place_that_exist(report, files, pages):
    names = {*files, *document.render(report)}
    checked = 0
    for path, page in pages.items():
        for link in page.links:
            if link.startswith(("https://", "#?")):  # the second sets a filter
                continue
            target, _, place = link.partition("#")
            joined = posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(target)))
            joined = joined if target else path
            if "/repro/" in f"/{joined}":
                continue
            assert joined in names, (path, link)
            if place:
                assert unquote(place) in pages[joined].ids, (path, link)
            checked += 1
    assert checked > 100


def test_ids_are_unique(pages):
    for path, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), path


def test_a_single_file_has_every_page_and_needs_no_other_file(report):
    made = site.single(report, document.render(report))
    assert list(made) == [HOME]
    page = Reader(made[HOME])
    assert len(page.ids) == len(set(page.ids))
    for link in page.links:
        if link.startswith("#"):
            assert unquote(link[1:]) in page.ids or link == "#" or link.startswith("#?"), link
        else:
            assert link.startswith(("https://", "models/", "repro/")), link
    for row in report.rows:
        assert Addresses.part(model_page(row.model)) in page.ids


@pytest.mark.parametrize("is_single", [False, True])
def test_hostile_names_and_texts_stay_text(is_single):
    hostile = sample_report(text=HOSTILE, message=HOSTILE, token=HOSTILE)
    made = (site.single if is_single else site.folder)(hostile, document.render(hostile))
    for path, text in made.items():
        if not path.endswith(".html"):
            continue
        # in a single file, the libraries hold strings of HTML
        page = Reader(re.sub(r"(?s)<(script|style) nonce.*?</\1>", "", text) if is_single else text)
        assert page.tags <= TAGS_OF_A_PAGE, path
        assert not {name for name in page.attributes if name.startswith("on")}, path
        assert "\u202e" not in text, path
        assert "\x1b" not in text, path
        assert all(
            "nonce" in script or script["type"] == "application/json" for script in page.scripts
        )


def test_the_policy_allows_nothing_but_what_bears_the_nonce(files):
    for path, text in files.items():
        if path.endswith(".html"):
            (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
            assert policy.startswith("default-src 'none'; script-src 'nonce-")
            assert "unsafe" not in policy
            assert "http" not in policy


def test_the_nonce_depends_on_the_result(report):
    other = sample_report(message="another")
    nonces = [re.search("nonce-([0-9a-f]+)", site.folder(r, ())[HOME])[1] for r in (report, other)]
    assert nonces[0] != nonces[1]


def test_equal_reports_give_equal_pages(report, files):
    assert site.folder(sample_report(), document.render(report)) == files


def test_tables_are_in_the_html_without_a_script(report, files):
    text = files[HOME]
    for row in report.rows:
        assert f">{row.model}</bdi>" in text
    assert text.count("<tr data-dtype") == len(report.rows)


def test_the_matrix_can_be_filtered_by_what_its_rows_hold(report):
    matrix = matrix_of(report)
    choices = {choice.name: choice.values for choice in filters(matrix)}
    assert set(choices) >= {"verdicts", "dtype"}
    assert {cell.verdict.value for cell in report.cells} <= {*choices["verdicts"]}
    assert all(len(values) > 1 for values in choices.values())


def matrix_of(report):
    return lines(report, HOME, Addresses(is_single=False), Answers(report))


def test_rows_stand_worst_first_and_the_counts_are_those_of_the_filters(report):
    matrix = matrix_of(report)
    rows = {(row.model, str(row.variant)): row for row in report.rows}
    keys = [severity(rows[line.model, line.variant]) for line in matrix]
    assert keys == sorted(keys)
    assert not matrix[0].is_same
    assert matrix[-1].is_same
    shown = chips(matrix)
    assert [chip.word for chip in shown][:2] == ["new", "fail"]
    for chip in shown:
        assert chip.n == sum(chip.value in row.verdicts for row in matrix), chip
    assert shown[0].n == sum(not all(c.verdict.passes for c in row.cells) for row in report.rows)


def test_a_number_stands_in_place_of_the_word_and_a_frame_in_place_of_expected(report):
    cell = next(c for c in report.cells if (c.cell.model, c.cell.stack) == ("gemma2", "5.0"))
    known = cell.model_copy(
        update={
            "verdict": Verdict.EXPECTED,
            "judged": Verdict.DIVERGED,
            "figure": "logits 0.74",
            "expected": ("sdpa leaves out the softcap",),
        }
    )
    state = states.state(known, HOME, Addresses(is_single=False))
    assert (state.value, state.what, state.word) == ("0.74", "logits", "diverged")
    assert state.classes == ["s-diverged", "expected"]
    assert state.short.endswith("; known: sdpa leaves out the softcap")  # the search finds it
    failed = known.model_copy(update={"failure": raised("forward", "a.KeyError", "x")})
    state = states.state(failed, HOME, Addresses(is_single=False))
    assert (state.value, state.what) == ("", "KeyError")


def wrong_reference_of(report):
    """Return the report with a row whose reference has the defect that explains the candidate."""
    row = next(row for row in report.rows if row.model == "gemma2")
    reference = next(cell for cell in row.cells if cell.verdict is Verdict.REFERENCE)
    finding = Finding(code="SB301", where="head.bias", evidence=("never written",))
    explained = (Explanation(code="SB301", where="head.bias", stack=reference.cell.stack),)
    cells = [
        cell.model_copy(update={"findings": (finding,), "explained_by": ()})
        if cell is reference
        else cell.model_copy(update={"findings": (), "explained_by": explained})
        for cell in row.cells
    ]
    others = [each for each in report.rows if each.model != "gemma2"]
    rows = (with_cells(row, *cells), *others)
    return report.model_copy(update={"rows": rows, "rules": (NEVER_WRITTEN,)})


def test_the_side_that_is_wrong_is_marked_be_it_the_reference(report):
    changed = wrong_reference_of(report)
    line = next(line for line in matrix_of(changed) if line.model == "gemma2")
    marked = [state for state in line.states if state and state.wrong]
    assert [(state.word, state.wrong) for state in marked] == [("reference", ("SB301",))]
    assert "wrong" in marked[0].classes
    assert [finding.code for finding in line.findings if finding.explains] == ["SB301"]
    page = site.folder(changed, ())["html/models/gemma2.html"]
    assert re.search(r"<dt>Which side is right</dt><dd>[\w. ]+ is wrong: ", page)
    assert "compute it in forward" in page
    assert not any(state.wrong for line in matrix_of(report) for state in line.states if state)


def answers_of(page):
    """Return the rows of the answers on top of a page, as lists of texts."""
    table = page.partition('<table class="data answers">')[2].partition("</table>")[0]
    rows = [re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL) for row in table.split("<tr>")[2:]]
    return [[re.sub(r"<.*?>", "", cell).strip() for cell in row] for row in rows]


def test_the_answers_stand_above_the_matrix_and_on_the_page_of_each_model(report):
    found = [each for each in answers(report) if not is_quiet(each)]
    files = site.folder(report, ())
    top = answers_of(files[HOME])
    n_models = len({each.model for each in found})
    n = n_models if n_models <= site.MAX_SUMMARIES else site.SOME_SUMMARIES
    assert [row[0].split()[0] for row in top] == [each.model for each in found[:n]]
    assert [row[2] for row in top] == [each.start for each in found[:n]]
    assert "with verdict" not in files[HOME]
    assert "5.15 could not be built" in files[HOME]
    assert files[HOME].index('class="data answers"') < files[HOME].index("data-matrix")
    for each in found:
        page = files[f"html/models/{each.model}.html"]
        whole = [html.unescape(" ".join(row)) for row in answers_of(page)]
        assert any(each.side.why in row and each.do.replace("`", "") in row for row in whole)
        assert page.index('class="data answers"') < page.index('class="outcome"')


def test_a_model_that_only_rounds_is_answered_on_its_page_and_not_above_the_matrix(report):
    row = next(row for row in report.rows if row.model == "llama")
    rounding = [
        cell.model_copy(
            update={
                "verdict": Verdict.ROUNDING,
                "judged": Verdict.ROUNDING,
                "figure": "logits 1e-06",
            }
        )
        if cell.reference and cell.reference != cell.cell
        else cell
        for cell in row.cells
    ]
    other = renamed(row, model="another")
    made = report.model_copy(update={"rows": (with_cells(row, *rounding), other)})
    files = site.folder(made, ())
    assert answers_of(files[HOME]) == []
    assert re.search(r"Only rounding, no action needed: <a [^>]*>llama</a>\.", files[HOME])
    (told,) = answers_of(files["html/models/llama.html"])
    assert told[1:] == [
        "rounding only (logits 1e-06)",
        told[2],
        "both: the difference goes away in float64",
        "Nothing",
    ]


def test_names_of_code_are_set_as_code_and_no_text_has_backticks(report):
    rule = NEVER_WRITTEN.model_copy(update={"name": "`a_name` is wrong", "remedy": "Set `b_name`."})
    changed = wrong_reference_of(report).model_copy(update={"rules": (rule,)})
    files = {**site.folder(changed, ()), **document.render(changed)}
    for path in (HOME, "html/models/gemma2.html", upgrade_page(STACKS[0], STACKS[-1])):
        text = re.sub(r"<(script|pre)\b.*?</\1>", "", files[path], flags=re.DOTALL)
        assert "`" not in text, path
        assert path.startswith("html/upgrade") or "<code>b_name</code>" in text, path
    assert r"\`" not in files["report.md"]


def test_changes_that_need_no_action_are_folded_on_the_upgrade_page(report):
    shown = upgrade.upgrade(report, STACKS[0], STACKS[-1])
    page = site.folder(report, ())[upgrade_page(STACKS[0], STACKS[-1])]
    assert shown.quiet & {kind for kind, _ in shown.groups}
    for kind, _ in shown.groups:
        meaning = upgrade.KINDS[kind][2]
        assert (f"<details><summary>{meaning}</summary>" in page) == (kind in shown.quiet)


def test_what_explains_comes_first_and_other_findings_are_folded(report):
    row = next(row for row in report.rows if row.model == "gemma2")
    other = Finding(code="SB203", where="config", evidence=("x",), saver="5.0")
    explaining = Finding(code="SB301", where="head.bias", evidence=("x",))
    text = Explanation(code="SB301", where="head.bias", stack=STACKS[-1])
    cells = [
        cell.model_copy(update={"findings": (other, explaining), "explained_by": (text,)})
        for cell in row.cells
    ]
    known = Answers(report.model_copy(update={"rows": (with_cells(row, *cells),)}))
    found = known.known(cells[1:2], row)
    assert [(each.finding.code, each.explains) for each in found] == [
        ("SB301", True),
        ("SB203", False),
    ]


def test_a_finding_that_explains_no_verdict_is_no_known_cause(report):
    row = next(row for row in report.rows if row.model == "gemma2")
    found = [Finding(code=code, where="x", evidence=("x",)) for code in ("SB203", "SB301")]
    text = Explanation(code="SB301", where="x", stack=STACKS[-1])
    cells = [
        cell.model_copy(update={"findings": (*found,), "explained_by": (text,)})
        for cell in row.cells
    ]
    rows = (with_cells(row, *cells), *(r for r in report.rows if r.model != "gemma2"))
    page = site.folder(report.model_copy(update={"rows": rows}), ())[HOME]
    line = next(line for line in page.split("<tr ") if ">gemma2<" in line)
    assert re.findall(r"SB\d+", line.partition('class="causes"')[2]) == ["SB301"]
    assert "SB203" in line  # the list of findings above the table still finds the row


def test_columns_that_say_nothing_are_left_out(report):
    one = report.model_copy(
        update={"rows": tuple(r for r in report.rows if str(r.variant) == "float32-sdpa")}
    )
    plain = one.model_copy(
        update={"rows": tuple(r.model_copy(update={"group": None}) for r in one.rows)}
    )
    table = site.folder(plain, ())[HOME].partition("data-matrix")[2].partition("</thead>")[0]
    heads = re.findall(r'data-field="(\w+)"', table)
    assert heads == ["model", "findings"]
    assert ", float32-sdpa," in site.folder(plain, ())[HOME]


@pytest.mark.parametrize("is_single", [False, True])
def test_the_first_page_of_one_model_is_its_page(report, is_single):
    rows = tuple(row for row in report.rows if row.model == "gemma2")
    one = report.model_copy(update={"rows": rows})
    made = (site.single if is_single else site.folder)(one, ())
    assert "html/models/gemma2.html" not in made
    page = made[HOME]
    assert "<h1><bdi>gemma2</bdi></h1>" in page
    assert '<table class="matrix" data-matrix' not in page
    assert "Command: <code>" in page
    read = {path: Reader(text) for path, text in made.items() if path.endswith(".html")}
    for path, reader in read.items():
        for link in reader.links:
            target, _, place = link.partition("#")
            if place and not target:
                assert unquote(place) in reader.ids, (path, link)


def test_the_first_page_of_one_identical_model_says_so_and_what_to_do_beside_it(report):
    row = next(row for row in report.rows if row.model == "gemma2")
    silent = Finding(code=NEVER_WRITTEN.code, where="cache", evidence=("x",))
    first, *others = [
        cell if cell.verdict is Verdict.REFERENCE else same_bits(cell) for cell in row.cells
    ]
    others[-1] = others[-1].model_copy(update={"findings": (silent,)})
    rows = (with_cells(row, first, *others),)
    update = {"rows": rows, "exit_code": 0, "rules": (NEVER_WRITTEN,)}
    page = site.folder(report.model_copy(update=update), ())[HOME]
    assert '<p class="lead">Same bits in every release that has it.</p>' in page
    codes = f"beside it: {NEVER_WRITTEN.code}"
    assert f"<b>What to do.</b> Nothing for what was compared; {codes}." in page
    assert f"silent findings beside the verdict ({NEVER_WRITTEN.code})" in page


def same_bits(cell):
    verdict = Verdict.IDENTICAL
    return cell.model_copy(
        update={
            "verdict": verdict,
            "judged": verdict,
            "signals": (),
            "failure": None,
            "ladder": None,
        }
    )


def test_findings_of_releases_come_after_those_of_the_models(report):
    of_release = NEVER_WRITTEN.model_copy(update={"code": "SB101", "scope": "release"})
    rules = (of_release, NEVER_WRITTEN)
    home = site.folder(report.model_copy(update={"rules": rules}), ())[HOME]
    assert home.index("<summary>SB301") < home.index("<summary>SB101")
    rows = tuple(row for row in report.rows if row.model == "gemma2")
    one = site.folder(report.model_copy(update={"rules": rules, "rows": rows}), ())[HOME]
    assert "<summary>SB101" in one
    assert "<summary>SB301" not in one  # gemma2 does not have it


def test_code_in_a_remedy_is_code(report):
    rule = NEVER_WRITTEN.model_copy(
        update={"remedy": "Set `attn_implementation='eager'` <b>now</b>"}
    )
    changed = wrong_reference_of(report).model_copy(update={"rules": (rule,)})
    made = site.folder(changed, ())
    for path in (HOME, "html/models/gemma2.html"):
        assert "<code>attn_implementation=&#39;eager&#39;</code>" in made[path]
        assert "&lt;b&gt;now&lt;/b&gt;" in made[path]
        assert "`attn" not in made[path]


def test_the_first_difference_is_marked_in_its_layer_if_it_has_no_box(report):
    cell = next(c for c in cells_with(report, "first") if c.cell.model == "gemma2")
    first = cell.first.model_copy(
        update={"signal": "attention.kernel", "item": "short · model.layers.0.self_attn"}
    )
    stages = flow.flow(cell.model_copy(update={"first": first}))
    (marked,) = [stage for stage in stages if stage.is_first]
    assert marked.start == "attention.kernel: short · model.layers.0.self_attn"
    differing = [s for s in stages if s.outcome not in ("identical", "not compared")]
    assert marked is differing[0]


def test_a_defect_of_the_reference_that_both_ends_repaired_is_none_of_the_upgrade(report):
    made = row_of(report, R, D, D, letters="ABC")
    reference, *others = made.cells
    first = reference.cell.stack
    both = [Explanation(code=code, where="x", stack=first) for code in ("SB704", "SB605")]
    shown = [
        cell.model_copy(update={"explained_by": tuple(both[:n]), "reference": reference.cell})
        for cell, n in zip(others, (1, 2), strict=False)
    ]
    row = with_cells(made, reference, *shown)
    changed = report.model_copy(update={"rows": (row,)})
    middle, last = (cell.cell.stack for cell in shown)
    assert [*upgrade.upgrade(changed, middle, last).codes] == ["SB605"]
    assert [*upgrade.upgrade(changed, first, last).codes] == ["SB704", "SB605"]


def test_what_to_do_is_sorted_by_the_worst_change_and_rounding_is_folded(report):
    def change(code, *verdicts):
        row = row_of(report, *verdicts, letters="AB")
        cells = [
            cell.model_copy(
                update={"explained_by": (Explanation(code=code, where="x", stack="4.57"),)}
            )
            for cell in row.cells
        ]
        return with_cells(row, *cells).model_copy(update={"model": f"model-{code}"})

    rows = (change("SB309", R, O), change("SB601", R, O), change("SB605", R, D))
    changed = report.model_copy(update={"rows": rows})
    shown = upgrade.upgrade(changed, *(cell.cell.stack for cell in rows[0].cells))
    assert next(iter(shown.codes)) == "SB605"
    assert shown.harmless == {"SB309", "SB601"}


def test_strips_are_those_of_rows_that_move_and_equal_ones_share_one(report):
    def banded(name, *letters):
        row = report.rows[0]
        stacks = [cell.cell.stack for cell in row.cells]
        bands = tuple(
            Band(stacks=(stack,), does=letter)
            for stack, letter in zip(stacks, letters, strict=False)
        )
        return row.model_copy(update={"model": name, "bands": bands})

    rows = (
        banded("still", "A", "A"),
        banded("late", "absent", "A"),
        banded("one", "A", "B"),
        banded("two", "A", "B"),
    )
    (strip,) = bands.strips(report.model_copy(update={"rows": rows}))
    assert [row.model for row in strip.rows] == ["one", "two"]


def test_the_source_of_what_made_the_input_stands_first(report):
    side = Side(stack="5.0", op="aten.mul.Tensor", function="apply_rope")
    diffs = tuple(
        SourceDiff(
            function=name, reference="a.py:1", candidate="b.py:1", diff="@@ -1 +1 @@\n-a\n+b"
        )
        for name in ("apply_rope", "Rotary.forward")
    )
    cause = cause_in(
        side,
        kind="wiring",
        headline="mul.Tensor in apply_rope",
        reference=side,
        evidence=("here it is from mul.Tensor in Rotary.forward (b.py:3)",),
        diffs=diffs,
    )
    text = page_with(report, cause=cause)
    assert text.index("Source of <code>Rotary.forward") < text.index("Source of <code>apply_rope")
    assert "<details open><summary>Source of <code>Rotary.forward" in text
    other = page_with(report, cause=cause.model_copy(update={"diffs": diffs[:1]}))
    assert "<details open><summary>Source of" not in other


def test_every_verdict_has_a_shape_a_colour_and_a_meaning():
    style = (site._ASSETS / "samebits.css").read_text()
    for verdict in Verdict:
        name = states.class_of(verdict)
        assert f".{name}" in style, name
        assert states.MEANINGS[verdict]
    shaped = [v for v in Verdict if v is not Verdict.EXPECTED]
    assert all(re.search(rf"\.{states.class_of(v)}(?:, [^{{]*)?::before", style) for v in shaped)


# the upgrade view


def row_of(report, *verdicts, letters=None, rest=None):
    """Return a row of the report whose cells have these verdicts, and bands with these letters."""
    source = next(row for row in report.rows if len(row.cells) >= len(verdicts))
    plain = {"rest": None, "failure": None, "expected": (), "findings": ()}
    cells = [
        cell.model_copy(update=plain | {"verdict": verdict, "judged": verdict})
        for cell, verdict in zip(source.cells, verdicts, strict=False)
    ]
    bands = [
        Band(stacks=(cell.cell.stack,), does=letter)
        for cell, letter in zip(cells, letters or [v.value for v in verdicts], strict=True)
    ]
    return with_cells(source, *cells, bands=tuple(bands))


R, I, O, D, U, F, N, A = (
    Verdict.REFERENCE,
    Verdict.IDENTICAL,
    Verdict.ROUNDING,
    Verdict.DIVERGED,
    Verdict.UNDECIDED,
    Verdict.FAILED,
    Verdict.UNSTABLE,
    Verdict.ABSENT,
)


@pytest.mark.parametrize(
    ("verdicts", "letters", "kind"),
    [
        ((R, I), "AA", None),
        ((R, O), "AB", "rounding"),
        ((R, D), "AB", "diverged"),
        ((R, U), "AB", "undecided"),
        ((R, F), "Af", "fails"),
        ((R, N), "Au", "unstable"),
        ((R, A), "Aa", "gone"),
        ((A, R), "aA", "new"),
        ((A, A), "aa", None),
        ((F, I), "fA", "works"),
        ((N, D), "uB", "works"),
        ((N, N), "uu", None),
    ],
)
def test_what_changes_between_two_stacks(report, verdicts, letters, kind):
    row = row_of(report, *verdicts, letters=letters)
    changed = report.model_copy(update={"rows": (row,)})
    shown = upgrade.upgrade(changed, *(cell.cell.stack for cell in row.cells))
    assert [change.kind for change in shown.changes] == ([kind] if kind else [])
    assert shown.n_rows == 1


@pytest.mark.parametrize(
    ("verdicts", "letters", "kind", "has_caveat"),
    [
        ((R, D, D), "ABB", None, False),  # the same other bits: the upgrade changes nothing
        ((R, D, I), "ABA", "diverged", True),  # back to the reference's bits
        ((R, O, O), "ABC", "rounding", True),
        ((R, O, D), "ABC", "diverged", True),
        ((R, D, O), "ABC", "diverged", True),
        ((R, D, D), "ABC", "undecided", True),  # nobody compared the two
    ],
)
def test_what_changes_between_two_candidates(report, verdicts, letters, kind, has_caveat):
    row = row_of(report, *verdicts, letters=letters)
    changed = report.model_copy(update={"rows": (row,)})
    first, last = (cell.cell.stack for cell in row.cells[1:])
    shown = upgrade.upgrade(changed, first, last)
    assert [change.kind for change in shown.changes] == ([kind] if kind else [])
    assert [bool(change.caveat) for change in shown.changes] == ([has_caveat] if kind else [])
    assert shown.n_same == (kind is None)


def test_the_worst_changes_stand_first_and_in_the_ticket(report):
    shown = upgrade.upgrade(report, STACKS[0], STACKS[-1])
    ranks = [upgrade.ORDER.index(change.kind) for change in shown.changes]
    assert ranks == sorted(ranks)
    assert len(ranks) > 1
    text = upgrade.ticket(report, shown, {rule.code: rule for rule in report.rules})
    assert all(change.name in text for change in shown.changes if change.kind != "new")
    assert "To reproduce: `" in text
    advised = [change for change in shown.changes if upgrade.advice(change, report)[1]]
    assert advised
    assert all(f"to do: {upgrade.advice(change, report)[1]}" in text for change in advised)
    assert not {change.kind for change in advised} & {"rounding", "works", "new"}


def test_what_to_do_is_not_taken_from_a_comparison_with_another_release(report):
    shown = upgrade.upgrade(report, *STACKS[1:3])
    assert shown.changes
    assert {upgrade.advice(change, report) for change in shown.changes} == {("", "")}


def test_many_stacks_have_pages_for_neighbours_and_to_the_newest(report):
    stacks = tuple(report.stacks[0].model_copy(update={"id": f"5.{n}"}) for n in range(40))
    pairs = upgrade.pairs(report.model_copy(update={"stacks": stacks}))
    assert ("5.0", "5.1") in pairs
    assert ("5.0", "5.39") in pairs
    assert len(pairs) == len(set(pairs)) == 77


# charts, flow, diff


def cells_with(report, field):
    return [cell for cell in report.cells if getattr(cell, field)]


def test_charts_hold_the_numbers_of_their_tables_and_no_zero_on_a_logarithm(report):
    drawn = [chart for cell in cells_with(report, "first") for chart in charts.charts_of(cell)]
    assert drawn
    for chart in drawn:
        assert all(len(row) == len(chart.headers) for row in chart.rows)
        for layer in chart.specification["layer"]:
            assert all(point["value"] > 0 for point in layer["data"]["values"])


def test_marks_of_equal_distances_are_both_seen_and_each_prompt_has_its_dashes():
    points = [{"place": "x", "prompt": "p", "computed": "float32", "value": 1.0}]
    marks = points_layer(points, {}, ["float32", "float64"])["encoding"]
    assert marks["size"]["scale"]["range"] == [120, 30]
    assert "size" not in points_layer(points, {}, ["float32"])["encoding"]  # nothing to tell apart
    assert chart_lines(points, {})["encoding"]["strokeDash"]["field"] == "prompt"


def test_the_roundoff_of_a_dtype_is_half_of_its_spacing_at_one():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for name, roundoff in charts.ROUNDOFF.items():
        assert float(ml_dtypes.finfo(name).eps) / 2 == roundoff


def test_a_specification_cannot_end_its_tag():
    text = safe_json({"a": "</script><!--&\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!--&\u2028"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1.0], (1.0, 1.0, 1.0, 1.0)),
        ([float(n) for n in range(1, 101)], (50.0, 90.0, 99.0, 100.0)),
        ([3.0, 1.0, 2.0], (2.0, 3.0, 3.0, 3.0)),
    ],
)
def test_quantiles_are_of_the_nearest_rank(values, expected):
    assert quantiles(values) == expected


def test_the_flow_marks_the_first_difference_once(report):
    for cell in cells_with(report, "first"):
        stages = flow.flow(cell)
        marked = [stage for stage in stages if stage.is_first]
        assert len(marked) <= 1
        for stage in marked:
            before = stages[: stages.index(stage)]
            assert cell.first.signal == stage.name or stage.name in cell.first.item
            assert all(s.outcome in ("identical", "not compared") for s in before), cell.cell


def test_a_long_run_of_equal_layers_is_one_box():
    stages = [flow.Stage(f"layer {n} (l.{n})", "differs", "") for n in range(80)]
    joined = list(flow._joined([flow.Stage("layer e", "identical", ""), *stages]))
    assert [stage.name for stage in joined] == [
        "layer e",
        "layer 0 (l.0)",
        "78 more layers",
        "layer 79 (l.79)",
    ]


def test_a_diff_keeps_every_line_and_escapes_it():
    text = "@@ -1,2 +1,2 @@\n def f(a):\n-    return '<b>'\n+    return '</span><script>'\n"
    shown = str(source_diff(text))
    assert shown.count('class="line') == 4
    assert "<script" not in shown
    assert "<b>" not in shown
    assert 'class="line added"' in shown
    plain = re.sub(r"<[^>]*>", "", shown).replace("&lt;", "<").replace("&gt;", ">")
    assert "return" in plain
    assert "'</span><script>'" in plain.replace("&#39;", "'")


def test_anchors_are_fragments_as_they_are_and_do_not_collide():
    names = ["a b", "a_b", "a/b", "a<b", "ä", "a"]
    made = [anchor(name) for name in names]
    assert len(set(made)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9.@_-]+", text) for text in made)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        (
            "huggingface/transformers#45945",
            "https://github.com/huggingface/transformers/issues/45945",
        ),
        ("https://a.org/x", "https://a.org/x"),
        ("javascript:alert(1)", ""),
        ("http://a.org", ""),
        ("see a/b#1", ""),
    ],
)
def test_only_web_addresses_become_links(text, address):
    assert web_address(text) == address


def test_an_upgrade_goes_to_the_last_stack_that_was_built():
    report = sample_report()
    assert report.stacks[-1].failure
    first, last = upgrade.default_pair(report)
    assert (first, last) == (report.reference, report.stacks[-2].id)
    only = report.model_copy(update={"stacks": (report.stacks[0], report.stacks[-1])})
    assert upgrade.default_pair(only) is None


def test_bits_that_differ_in_padding_alone_are_no_change():
    report = sample_report()
    row = row_of(report, Verdict.REFERENCE, Verdict.IDENTICAL, letters="AB")
    ids = [cell.cell.stack for cell in row.cells]
    shown = upgrade.upgrade(report.model_copy(update={"rows": (row,)}), *ids[:2])
    assert shown.changes == ()


def test_scripts_of_a_single_file_are_not_changed_but_for_what_would_end_them():
    text = site._inline("vendor/vega.min.js")
    assert "</script" not in text.casefold()
    assert "<!--" not in text
    source = (site._ASSETS / "vendor/vega.min.js").read_text("utf-8")
    assert text.replace("<\\/script", "</script").replace("<\\!--", "<!--") == source


def test_layers_and_positions_are_a_picture_and_a_table(report):
    (cell,) = (c for c in report.cells if (c.cell.model, c.cell.stack) == ("gemma2", "5.0"))
    chart = next(c for c in charts.charts_of(cell) if c.name.startswith("layers and positions"))
    assert chart.headers == ("layer", "0", "1", "2")
    places = [row[0] for row in chart.rows]
    assert places[-1] == "logits"
    assert places[:-1] == sorted(places[:-1])
    zeros = sum(float(value) == 0 for row in chart.rows for value in row[1:])
    (layer,) = chart.specification["layer"]
    assert len(layer["data"]["values"]) == len(chart.rows) * 3 - zeros
    assert zeros > 0


def test_the_most_likely_tokens_stand_with_their_margins(report):
    made = site.folder(report, ())["html/models/gemma2.html"]
    assert "The most likely tokens, where the logits decide most differently" in made
    assert made.count("short, logits, position [0, 8]") >= 1
    assert "<code>6927 &#39;oles&#39;</code>" in made


def test_both_traces_stand_side_by_side(report):
    line = TraceLine(op="aten.mm.default", arguments="%, %", module="lm_head", shared=True)
    pairs = (
        TracePair(reference=line, candidate=None),
        TracePair(reference=line, candidate=line.model_copy(update={"shared": False}), starts=True),
    )
    side = Side(stack="5.0", op="aten.mm.default")
    cause = cause_in(side, reference=side, around=pairs)
    made = page_with(report, cause=cause)
    assert "Both traces around it: 2 lines of operations" in made
    assert made.count("<small>begins here</small>") == made.count("<small>only here</small>") >= 1


def test_what_explains_a_cell_is_the_text_of_report_md(report):
    reference = Side(stack="4.48", op="aten.mm.default", module="lm_head")
    candidate = reference.model_copy(update={"stack": "5.0", "op": "aten.bmm.default"})
    split = TokenSplit(prompt="short", step=4, reference=((7, 2.0), (9, 1.0)), candidate=None)
    made = page_with(
        report,
        cause=cause_in(candidate, reference=reference),
        steps=(Step(suspect="masks", status="ruled in", what="<mask>"),),
        splits=(split,),
        notes=("<read>",),
    )
    assert "<td>operation (differs)</td>" in made
    assert "<td>module</td>" in made
    assert "<strong>masks</strong>" in made
    assert "<td>7 (2), then 9 (1)</td>" in made
    assert "<li>&lt;read&gt;</li>" in made


def test_every_set_of_pieces_that_was_tried_has_its_result(report):
    made = page_with(
        report,
        graft=Graft(
            prompt="short",
            what="forward",
            headline="swapping only `inv_freq` restores bit equality",
            proof="alone",
            smallest=("inv_freq",),
            suspects=(GraftSuspect(kind="buffer", name="inv_freq", what="float32[8]"),),
            tried=(
                Try(suspects=(), same=2, of=4, first="model.layers.0", max_abs=2.0),
                Try(suspects=("inv_freq",), same=4, of=4),
            ),
            untried=(Untried(what="cache contents", reason="<layout>"),),
        ),
    )
    assert "Swap test, forward of prompt short: combinations tried: 1" in made
    assert "<td>restores the bits</td><td>4 of 4</td>" in made
    assert "<td>2 of 4</td><td>model.layers.0, logits 2.0e+00 apart</td>" in made
    assert "cache contents: &lt;layout&gt;" in made


def page_with(report, **fields):
    """Return gemma2's page where each cell has these fields."""
    rows = tuple(each_cell(row, **fields) for row in report.rows if row.model == "gemma2")
    return site.folder(report.model_copy(update={"rows": rows}), ())[HOME]
