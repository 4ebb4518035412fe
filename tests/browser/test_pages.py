"""report.html in a real browser: nox -s browser."""

import re
import time
from pathlib import Path

import pytest

from samebits.records.ids import Verdict
from samebits.reports.html import site
from samebits.reports.html.addresses import HOME, Addresses, model_page, upgrade_page
from tests.browser.conftest import api, put
from tests.support.sample_report import STACKS, renamed, sample_report, with_cells

pytestmark = [pytest.mark.processes, pytest.mark.browser]

CUT = "(all) => all.filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)"
"""Returns the texts of the elements that are wider than their place."""
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
PAGES = [
    HOME,
    "html/releases.html",
    upgrade_page(STACKS[0], STACKS[-1]),
    model_page("opensci-ref"),
    model_page("gemma2"),
]
CHARTED = model_page("gemma2")
ROWS = ".tabulator-row"


def ready(page):
    page.wait_for_selector("[data-ready]")
    return page


def first_stacks(report, n):
    """Return a report of its first stacks only."""
    stacks = report.stacks[:n]
    kept = {stack.id for stack in stacks}
    rows = tuple(
        with_cells(row, *(cell for cell in row.cells if cell.cell.stack in kept))
        for row in report.rows
    )
    return report.model_copy(update={"rows": rows, "stacks": stacks})


def settle(page):
    """Draw every chart and open every part, as a reader would."""
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    for place in page.query_selector_all("[data-chart]"):
        place.scroll_into_view_if_needed()
        place.wait_for_selector("svg")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_asks_for_nothing_complains_of_nothing_and_is_accessible(
    watched, folder, path, theme, shot
):
    view = watched(color_scheme=theme)
    page = view.open(folder / path)
    if path == HOME:
        ready(page)
    settle(page)
    for drawn in page.query_selector_all("[data-chart] svg"):
        assert drawn.get_attribute("aria-label")
    assert page.get_attribute("html", "data-theme") == theme
    view.check(folder)
    # evaluate runs outside of the page's policy, which forbids other scripts
    page.evaluate(AXE.read_text("utf-8"))
    violations = page.evaluate("axe.run({ preload: false }).then((result) => result.violations)")
    found = [(v["id"], [n["html"][:160] for n in v["nodes"][:3]]) for v in violations]
    assert found == []
    shot(page, f"{re.sub('[^a-z0-9]+', '-', path)}-{theme}")


def test_filters_and_search_show_the_rows_that_fit(watched, folder):
    view = watched()
    page = ready(view.open(folder / HOME))
    page.click("text=identical row")  # those are folded
    total = page.locator("table[data-matrix] tbody tr").count()
    api.expect(page.locator(ROWS)).to_have_count(total)
    page.select_option("[name=verdicts]", "diverged")
    fitting = page.locator("table[data-matrix] tr[data-verdicts*=diverged]").count()
    api.expect(page.locator(ROWS)).to_have_count(fitting)
    assert 0 < fitting < total
    assert page.text_content("[data-count]").startswith(f"{fitting} of ")
    page.click("text=Reset filters")
    api.expect(page.locator(ROWS)).to_have_count(total)
    page.fill("[name=q]", "llama bfloat16")
    api.expect(page.locator(ROWS)).to_have_count(1)
    page.fill("[name=q]", "no such model")
    page.wait_for_selector("text=No row fits these filters.")
    view.check(folder)


@pytest.mark.parametrize(
    ("words", "model"),
    [
        ("failed", "falcon"),  # a verdict
        ("never written", "opensci-ref"),  # the title of a finding
        ("gemma2 5.0", "gemma2"),  # a model and a release in which it differs
    ],
)
def test_search_finds_verdicts_titles_and_releases(watched, named, words, model):
    page = ready(watched().open(named / HOME))
    page.fill("[name=q]", words)
    api.expect(page.locator(ROWS).filter(has_text=model)).to_have_count(1)
    assert page.locator(ROWS).count() < 6
    page.fill("[name=q]", "llama 4.57")  # llama holds its bits there
    page.wait_for_selector("text=No row fits these filters.")


def test_identical_rows_are_folded_until_they_are_asked_for(watched, folder):
    view = watched()
    page = ready(view.open(folder / HOME))
    total = page.locator("table[data-matrix] tbody tr").count()
    same = page.locator("table[data-matrix] tr[data-verdicts*='all identical']").count()
    assert 0 < same < total
    api.expect(page.locator(ROWS)).to_have_count(total - same)
    page.click("text=identical row")
    api.expect(page.locator(ROWS)).to_have_count(total)
    api.expect(page).to_have_url(re.compile("#.*all=1"))
    view.check(folder)


def test_a_count_at_the_top_filters(watched, folder):
    view = watched()
    page = ready(view.open(folder / HOME))
    for chip in page.locator(".chip").all():
        n = int(chip.locator("b").inner_text())
        chip.click()
        api.expect(page.locator("[data-count]")).to_have_text(re.compile(f"^{n} of "))
        api.expect(chip).to_have_attribute("aria-current", "true")
    view.check(folder)


def test_a_column_is_sorted_by_keyboard(watched, folder):
    view = watched()
    page = ready(view.open(folder / HOME))
    head = page.locator(".tabulator-col[tabulator-field=model]")
    head.focus()
    assert page.evaluate("document.activeElement.getAttribute('tabulator-field')") == "model"
    page.keyboard.press("Enter")
    api.expect(head).to_have_attribute("aria-sort", "ascending")
    page.keyboard.press(" ")
    api.expect(head).to_have_attribute("aria-sort", "descending")
    view.check(folder)


@pytest.mark.parametrize("path", PAGES)
def test_the_first_stop_of_the_keyboard_skips_to_the_content(watched, folder, path):
    page = watched().open(folder / path)
    page.wait_for_load_state()
    page.keyboard.press("Tab")
    assert page.inner_text(":focus") == "Skip to the content"
    page.keyboard.press("Enter")
    place = "document.activeElement.closest('main') || document.activeElement.matches('main')"
    assert page.evaluate(f"Boolean({place})")
    assert "Skip" not in page.inner_text(":focus")


@pytest.mark.parametrize("path", PAGES)
def test_a_phone_scrolls_no_page_sideways(watched, folder, path, shot):
    page = watched().open(folder / path)
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    if path == HOME:
        ready(page)
        verdict = page.locator(f"{ROWS} >> nth=0 >> [tabulator-field=stack0]")
        assert verdict.bounding_box()["x"] < 200
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    shot(page, f"{re.sub('[^a-z0-9]+', '-', path)}-phone")


def test_a_phone_shows_all_releases_of_a_small_matrix_with_whole_words(watched, tmp_path):
    """The newest release is the one that decides: it must not lie beyond the right edge, nor its name be cut."""
    report = first_stacks(sample_report(), 4)
    page = watched().open(put(site.folder(report, ()), tmp_path) / HOME)
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    ready(page)
    heads = page.locator(".tabulator-col[tabulator-field^=stack]")
    assert heads.count() == 4
    newest = heads.last.bounding_box()
    assert newest["x"] + newest["width"] <= 390
    titles = ".tabulator-col[tabulator-field^=stack] .tabulator-col-title"
    cells = f"{ROWS} [tabulator-field^=stack]"
    for place in (titles, cells):
        assert page.eval_on_selector_all(place, CUT) == []


def test_the_results_leave_room_for_the_known_cause_and_show_whole_exceptions(watched, tmp_path):
    """A table with a column of groups and long exceptions is wider than the screen."""
    report = first_stacks(sample_report(), 4)
    (failed,) = [cell for row in report.rows if row.model == "falcon" for cell in row.cells][-1:]
    assert failed.failure is not None
    long = failed.failure.model_copy(update={"type": "ModuleNotFoundError"})
    fails = {"verdict": failed.verdict, "judged": failed.judged, "failure": long}
    rows = tuple(
        renamed(
            with_cells(row, *(cell.model_copy(update=fails) for cell in row.cells)),
            model=f"custom-create-a-causal-mask-{row.model}",
        )
        for row in report.rows
    )
    report = report.model_copy(update={"rows": rows})
    page = watched().open(put(site.folder(report, ()), tmp_path) / HOME)
    page.set_viewport_size({"width": 1440, "height": 900})
    page.reload()
    ready(page)
    cause = page.locator(".tabulator-col[tabulator-field=findings]").bounding_box()
    assert cause["x"] + 200 <= 1440
    page.set_viewport_size({"width": 1280, "height": 900})
    page.reload()
    ready(page)
    assert page.locator(f"{ROWS} .what").count()
    assert page.eval_on_selector_all(f"{ROWS} .tabulator-cell:has(.what)", CUT) == []


def test_charts_take_their_place_before_they_are_drawn(watched, folder):
    page = watched().open(folder / CHARTED)
    heights = "[...document.querySelectorAll('[data-chart]')].map((place) => place.offsetHeight)"
    page.wait_for_function("document.querySelector('[data-chart]').style.minHeight")
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    before = page.evaluate(heights)
    settle(page)
    after = page.evaluate(heights)
    assert len(before) > 1
    assert all(abs(a - b) < 60 for a, b in zip(before, after, strict=True)), (before, after)


def test_charts_are_on_paper_though_nobody_scrolled(watched, folder):
    page = watched().open(folder / CHARTED)
    page.set_viewport_size({"width": 1280, "height": 200})
    page.reload()
    undrawn = "[...document.querySelectorAll('[data-chart]')].filter((p) => p.offsetParent && !p.querySelector('svg')).length"
    assert page.evaluate(undrawn) > 0
    page.pdf(prefer_css_page_size=True)
    assert page.evaluate(undrawn) == 0


def test_the_link_of_a_view_shows_the_same_view_again(watched, folder):
    page = ready(watched().open(folder / HOME))
    page.fill("[name=q]", "llama")
    page.click(".tabulator-col[tabulator-field=variant]")
    api.expect(page).to_have_url(re.compile("#.*sort=variant"))
    names = page.locator(ROWS).all_inner_texts()
    again = ready(watched().open(folder / HOME, page.evaluate("location.hash")))
    assert again.input_value("[name=q]") == "llama"
    assert again.locator(ROWS).all_inner_texts() == names


def test_a_column_is_sorted_by_severity(watched, folder):
    page = ready(watched().open(folder / HOME))
    head = page.locator(".tabulator-col[tabulator-field=stack4]")
    head.click()
    states = page.locator(f"{ROWS} [tabulator-field=stack4]")
    ranks = page.get_attribute("[data-matrix]", "data-ranks").split()

    def order():
        classes = [state.get_attribute("class").split() for state in states.all()]
        return [next(ranks.index(n) for n in names if n in ranks) for names in classes]

    assert order() == sorted(order())
    head.click()
    assert order() == sorted(order(), reverse=True)


def test_a_cell_leads_to_what_its_page_says_of_it(watched, folder):
    view = watched()
    page = ready(view.open(folder / HOME))
    link = page.locator(f"{ROWS} .s-undecided a").first  # of a cell with a first difference
    target = link.get_attribute("href").partition("#")[2]
    link.click()
    page.wait_for_url(f"**#{target}")
    assert page.evaluate("document.querySelector(':target') !== null")
    assert page.is_visible("text=Differs first")
    view.check(folder)


def test_another_pair_of_releases_is_chosen(watched, folder):
    view = watched()
    page = view.open(folder / upgrade_page(STACKS[0], STACKS[-1]))
    page.select_option("[data-go]", label=f"{STACKS[1]} → {STACKS[-1]}")
    page.wait_for_url(f"**/{STACKS[1]}..{STACKS[-1]}.html")
    assert page.inner_text("h1") == f"Upgrade {STACKS[1]} → {STACKS[-1]}"
    view.check(folder)


def test_the_summary_is_copied(watched, folder):
    page = watched(permissions=["clipboard-read", "clipboard-write"]).open(
        folder / upgrade_page(STACKS[0], STACKS[-1])
    )
    page.click("text=Copy the summary")
    page.wait_for_selector("text=Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("transformers ")
    assert "To reproduce" in copied


def test_the_theme_is_switched_and_remembered(watched, folder):
    view = watched(color_scheme="light")
    page = view.open(folder / HOME)
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.click("[data-theme-switch]")
    assert page.get_attribute("html", "data-theme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != ground
    page.reload()
    assert page.get_attribute("html", "data-theme") == "dark"
    view.check(folder)


def test_hostile_names_and_texts_are_inert(watched, hostile):
    view = watched()
    view.page.on("dialog", lambda dialog: view.complaints.append(dialog.message))
    for path in sorted(hostile.rglob("*.html")):
        page = view.open(path)
        if path.name == HOME:
            ready(page)
        assert page.evaluate("document.querySelectorAll('img, iframe, object').length") == 0
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    view.check(hostile)


def test_the_policy_stops_a_script_that_is_not_ours(watched, folder, tmp_path):
    """The planted defect of the test above: a name that was not escaped."""
    text = (folder / HOME).read_text("utf-8").replace("</h1>", "<script>alert(1)</script></h1>", 1)
    for source in folder.rglob("assets/**/*"):
        if source.is_file():
            put({str(source.relative_to(folder)): source.read_bytes()}, tmp_path)
    (tmp_path / HOME).write_text(text, "utf-8")
    view = watched()
    alerts = []
    view.page.on("dialog", lambda dialog: alerts.append(dialog.message))
    ready(view.open(tmp_path / HOME))
    assert alerts == []
    assert any("Content Security Policy" in complaint for complaint in view.complaints)


def test_everything_is_readable_without_scripts(watched, folder, shot):
    view = watched(java_script_enabled=False)
    page = view.open(folder / HOME)
    report = sample_report()
    assert page.locator("table.matrix tbody tr").count() == len(report.rows)
    assert page.is_visible("table.matrix >> text=diverged >> nth=0")
    assert not page.is_visible("[data-filters]")
    page.click("table.matrix .s-undecided a >> nth=0")  # of a cell with a first difference
    assert page.is_visible("text=Differs first")
    page.click("summary:has-text('The same as a table') >> nth=0")
    assert page.locator("figure table").first.is_visible()
    shot(page, "without-scripts")
    view.check(folder)


@pytest.mark.parametrize("with_scripts", [True, False])
def test_a_single_file_shows_one_page_at_a_time(watched, single, with_scripts):
    view = watched(java_script_enabled=with_scripts)
    page = view.open(single / HOME)
    if with_scripts:
        ready(page)
    shown = page.locator(".page:visible")
    assert shown.count() == 1
    assert shown.get_attribute("id") == Addresses.part(HOME)
    page.locator("a:visible:has-text('Upgrade')").first.click()
    assert shown.count() == 1
    assert "upgrade" in shown.get_attribute("id")
    page.locator("main:visible details:not([open]):has(a[href*='models']) > summary").first.click()
    page.locator("main a[href*='models']:visible").first.click()
    assert shown.count() == 1
    assert "models" in shown.get_attribute("id")
    view.check(single)


def test_the_print_view_holds_the_whole_matrix(watched, folder, tmp_path):
    view = watched()
    page = ready(view.open(folder / HOME))
    page.emulate_media(media="print")
    assert page.is_visible("table.matrix")
    assert not page.is_visible(".tabulator")
    assert not page.is_visible("[data-filters]")
    assert page.locator("table.matrix tbody tr:visible").count() == len(sample_report().rows)
    page.pdf(path=tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").stat().st_size > 10_000


def test_paper_has_every_column_and_whole_names(watched, folder):
    page = ready(watched().open(folder / HOME))
    page.set_viewport_size({"width": 1030, "height": 700})  # A4 landscape within its margins
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1030
    table = page.locator("table.matrix")
    assert table.bounding_box()["x"] + table.bounding_box()["width"] <= 1030
    lines = page.evaluate(
        "[...document.querySelectorAll('table.matrix tbody th bdi')].map((n) => n.getClientRects().length)"
    )
    assert max(lines) <= 2  # a name may part at a hyphen
    css = (site._ASSETS / "samebits.css").read_text()
    assert "size: A4 landscape" in css


def test_paper_has_the_remedies_of_findings_that_are_closed_on_the_screen(watched, named):
    page = ready(watched().open(named / HOME))
    seen = "document.querySelector('[aria-labelledby=rules-1] details p').checkVisibility()"
    assert not page.evaluate(seen)
    page.emulate_media(media="print")
    assert page.evaluate(seen)


def test_the_changes_of_an_upgrade_are_lines_on_a_phone_and_no_table_to_scroll(watched, folder):
    page = watched().open(folder / upgrade_page(STACKS[0], STACKS[-1]))
    wider = "[...document.querySelectorAll('.scroll')].filter((s) => s.scrollWidth > s.clientWidth).length"
    page.set_viewport_size({"width": 390, "height": 844})
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    assert page.locator(".changes").count() > 0
    assert page.evaluate(wider) == 0


def test_names_of_an_upgrade_are_not_cut_beside_free_room(watched, folder):
    page = watched().open(folder / upgrade_page(STACKS[0], STACKS[-1]))
    lines = page.evaluate(
        "[...document.querySelectorAll('.changes th bdi')].map((n) => n.getClientRects().length)"
    )
    assert set(lines) == {1}


def large(n_models, stack_ids):
    """Return a report of many models: each cell differs in one of ten models."""
    report = sample_report()
    source = next(row for row in report.rows if row.model == "llama")
    plain = source.cells[1].model_copy(
        update={"verdict": Verdict.IDENTICAL, "judged": Verdict.IDENTICAL}
    )
    rows = []
    for n in range(n_models):
        verdict = Verdict.DIVERGED if n % 10 == 3 else Verdict.IDENTICAL
        cells = tuple(
            plain.model_copy(
                update={
                    "cell": plain.cell.model_copy(
                        update={"model": f"model-{n:04}", "stack": stack}
                    ),
                    "verdict": verdict if i else Verdict.REFERENCE,
                    "judged": verdict if i else Verdict.REFERENCE,
                    "figure": "logits 7.9e-07" if i and n % 10 == 3 else "",
                }
            )
            for i, stack in enumerate(stack_ids)
        )
        rows.append(
            source.model_copy(update={"model": f"model-{n:04}", "cells": cells, "bands": ()})
        )
    stacks = tuple(report.stacks[0].model_copy(update={"id": stack}) for stack in stack_ids)
    return report.model_copy(
        update={"rows": tuple(rows), "stacks": stacks, "reference": stack_ids[0]}
    )


def home_of(report, folder):
    """Write report.html and what it loads, without the pages of the models."""
    addresses = Addresses(is_single=False)
    first = next(site.pages(report, addresses, ()))
    assets = {
        f"{site.ASSETS}/{name}": (site._ASSETS / name).read_bytes()
        for name in (*site.STYLES, *site.TABLE_SCRIPTS, *site.SCRIPTS)
    }
    return put({first.path: site.in_folder(first, site.nonce(report), addresses), **assets}, folder)


def test_a_report_of_157_models_opens_within_a_second(watched, tmp_path):
    folder = home_of(large(157, ["4.48", "4.57", "5.2", "5.23"]), tmp_path)
    view = watched()
    ready(view.open(folder / HOME))
    times = []
    for _ in range(5):
        view.page.reload()
        ready(view.page)
        times.append(
            view.page.evaluate("performance.getEntriesByName('samebits-ready')[0].startTime")
        )
    assert min(times) < 1000, times
    view.check(folder)


def test_a_report_of_1000_models_and_40_releases_stays_usable(watched, tmp_path):
    folder = home_of(large(1000, [f"5.{n}" for n in range(40)]), tmp_path)
    view = watched()
    page = ready(view.open(folder / HOME))
    assert page.evaluate("performance.getEntriesByName('samebits-ready')[0].startTime") < 15_000
    start = time.perf_counter()
    page.fill("[name=q]", "model-0123")
    api.expect(page.locator(ROWS)).to_have_count(1)
    assert time.perf_counter() - start < 3
    page.click("text=Reset filters")
    api.expect(page.locator(ROWS).nth(10)).to_be_attached()
    drawn = page.evaluate("document.querySelectorAll('.tabulator-cell').length")
    assert drawn < 5000  # only what is in sight is drawn
    view.check(folder)
