"""All HTML pages of a report: a folder of files, or one file that holds everything."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import (
    Environment,
    FileSystemBytecodeCache,
    FileSystemLoader,
    StrictUndefined,
    Undefined,
)
from markupsafe import Markup

from samebits.base.finding_pages import KINDS as RULE_KINDS
from samebits.records.finding import RuleText
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports import upgrade
from samebits.reports.answer import (
    answers,
    is_quiet,
    nothing,
    only_rounding,
    passing,
    result,
)
from samebits.reports.commands import compare_two
from samebits.reports.head import of_another_reference, reasons
from samebits.reports.html import bands, matrix, model
from samebits.reports.html.addresses import (
    FOLDER,
    HOME,
    RELEASES,
    Addresses,
    anchor,
    model_page,
    upgrade_page,
    web_address,
)
from samebits.reports.html.answers import Answers, summaries
from samebits.reports.html.prose import rendered, with_code
from samebits.reports.html.states import MEANINGS, class_of, details_anchor
from samebits.reports.sections.in_brief import beside_the_verdict
from samebits.reports.sections.the_worst import MAX_NAMES
from samebits.reports.stories import row_name
from samebits.text.lists import grouped
from samebits.text.markdown import visible
from samebits.text.moments import moment
from samebits.text.names import page_path, spanned
from samebits.text.numbers import duration, number

_HERE = Path(__file__).parent
_ASSETS = _HERE / "assets"
ASSETS = f"{FOLDER}/assets"

STYLES = ("vendor/tabulator.min.css", "samebits.css")
TABLE_SCRIPTS = ("vendor/tabulator.min.js",)
CHART_SCRIPTS = ("vendor/vega.min.js", "vendor/vega-lite.min.js", "vendor/vega-embed.min.js")
SCRIPTS = ("samebits.js",)
LICENCES = (
    "vendor/tabulator.LICENSE",
    "vendor/vega.LICENSE",
    "vendor/vega-lite.LICENSE",
    "vendor/vega-embed.LICENSE",
)


MAX_SUMMARIES = 6
"""Limit for answers that all stand above the matrix, and else for the models that each have one there."""
SOME_SUMMARIES = 3
"""Number of answers above the matrix where more models differ: the matrix is to be on the first screen."""


class Page(NamedTuple):
    """One page without what surrounds every page."""

    path: str
    title: str
    body: Markup
    scripts: tuple[str, ...] = ()
    """The libraries that it needs."""


def folder(report: Report, documents: Collection[str]) -> dict[str, str | bytes]:
    """Return the files of report.html by their paths; ``documents`` are the other pages' paths."""
    files: dict[str, str | bytes] = {
        f"{ASSETS}/{name}": (_ASSETS / name).read_bytes()
        for name in (*STYLES, *TABLE_SCRIPTS, *CHART_SCRIPTS, *SCRIPTS, *LICENCES)
    }
    addresses, mark = Addresses(is_single=False, only_model=only_model(report)), nonce(report)
    for page in pages(report, addresses, documents):
        files[page.path] = in_folder(page, mark, addresses)
    return files


def single(report: Report, documents: Collection[str]) -> dict[str, str | bytes]:
    """Return report.html as one file that holds all pages and all that they load."""
    addresses = Addresses(is_single=True, only_model=only_model(report))
    parts = list(pages(report, addresses, documents))
    text = _filled(
        "single.html.jinja",
        pages=parts,
        part=addresses.part,
        title=_title(report),
        nonce=nonce(report),
        styles=[_inline(name) for name in STYLES],
        scripts=[_inline(name) for name in (*TABLE_SCRIPTS, *CHART_SCRIPTS, *SCRIPTS)],
        licences=[(_ASSETS / name).read_text("utf-8") for name in LICENCES],
    )
    return {HOME: _writable(text)}


def in_folder(page: Page, mark: str, addresses: Addresses) -> str:
    """Return the text of a page as a file of its own; ``mark`` is the report's nonce."""

    def asset(name: str) -> str:
        return addresses.file(page.path, f"{ASSETS}/{name}")

    text = _filled(
        "page.html.jinja",
        page=page,
        title=page.title,
        nonce=mark,
        styles=[asset(name) for name in STYLES],
        scripts=[asset(name) for name in (*page.scripts, *SCRIPTS)],
    )
    return _writable(text)


def pages(report: Report, addresses: Addresses, documents: Collection[str]) -> Iterator[Page]:
    """Yield every page, report.html first; each is made when it is asked for.

    The first page of one model is that of the model.
    """
    models = grouped(report.rows, lambda row: row.model)
    is_one = bool(only_model(report))
    if is_one:
        yield from (
            _model(name, rows, report, addresses, documents) for name, rows in models.items()
        )
    else:
        yield _home(report, addresses)
    if any(row.bands for row in report.rows):
        yield _releases(report, addresses)
    for first, last in upgrade.pairs(report):
        yield _upgrade(report, first, last, addresses)
    if not is_one:
        yield from (
            _model(name, rows, report, addresses, documents) for name, rows in models.items()
        )


def only_model(report: Report) -> str:
    """Return the model of a report of one model; '' for a report of several."""
    models = report.models
    return next(iter(models)) if len(models) == 1 else ""


def _home(report: Report, addresses: Addresses) -> Page:
    lines = matrix.lines(report, HOME, addresses, Answers(report))
    all_answers = answers(report)
    worst = [answer for answer in all_answers if not is_quiet(answer)]
    n_models = len({answer.model for answer in worst})
    n_shown = next(n for n in (len(worst), n_models, SOME_SUMMARIES) if n <= MAX_SUMMARIES)
    body = _body(
        "matrix.html.jinja",
        report,
        HOME,
        addresses,
        lines=lines,
        chips=matrix.chips(lines),
        filters=matrix.filters(lines),
        ranks=matrix.ranks(),
        headline=f"{report.matrix}: {result(report, with_limits=False)}",
        limits=[*filter(None, (of_another_reference(report), *passing(report)))],
        beside=_beside(report, HOME, addresses),
        summaries=summaries(report, HOME, addresses)[:n_shown],
        n_more=len(worst) - n_shown,
        rounding=[
            (name, addresses.page(HOME, model_page(name))) for name in only_rounding(all_answers)
        ],
        most=MAX_NAMES,
        pair=upgrade.default_pair(report),
        legend=legend(report),
        rules=rules_of(report, "model", "release"),
        rule_names={rule.code: rule.name for rule in report.rules},
        variants=sorted({row.variant for row in lines}),
        has_expected=any(cell.verdict is Verdict.EXPECTED for cell in report.cells),
        has_groups=any(row.group for row in lines),
    )
    return Page(HOME, _title(report), body, TABLE_SCRIPTS)


def _beside(report: Report, path: str, addresses: Addresses) -> Markup:
    return rendered(beside_the_verdict(report), addresses.in_html(path, report.models))


def legend(report: Report) -> list[tuple[str, str, str]]:
    """Return class, word and meaning of the verdicts in a report."""
    words = {verdict for cell in report.cells for verdict in (cell.verdict, cell.judged)}
    return [
        (
            "legend-expected expected" if verdict is Verdict.EXPECTED else class_of(verdict),
            verdict,
            meaning,
        )
        for verdict, meaning in MEANINGS.items()
        if verdict in words
    ]


_SCOPES = {
    "model": "Findings in these models",
    "release": "Findings in a release with any model",
}


def rules_of(report: Report, *scopes: str) -> list[tuple[str, list[RuleText]]]:
    """Return the rules of some scopes under their titles, the worst kind first."""
    kinds = list(RULE_KINDS)
    rules = sorted(report.rules, key=lambda rule: kinds.index(rule.kind))
    return [
        (_SCOPES[scope], of_scope)
        for scope in scopes
        if (of_scope := [rule for rule in rules if rule.scope == scope])
    ]


def _releases(report: Report, addresses: Addresses) -> Page:
    body = _body(
        "releases.html.jinja",
        report,
        RELEASES,
        addresses,
        strips=bands.strips(report),
        n_still=sum(bool(row.bands) and not bands.moves(row) for row in report.rows),
    )
    return Page(RELEASES, f"Releases: {_title(report)}", body)


def _upgrade(report: Report, first: str, last: str, addresses: Addresses) -> Page:
    path = upgrade_page(first, last)
    rules = {rule.code: rule for rule in report.rules}
    shown = upgrade.upgrade(report, first, last)
    body = _body(
        "upgrade.html.jinja",
        report,
        path,
        addresses,
        shown=shown,
        pairs=upgrade.pairs(report),
        rules=rules,
        ticket=upgrade.ticket(report, shown, rules),
        advice=partial(upgrade.advice, report=report),
        command=compare_two(report, first, last),
        ticket_id=anchor("ticket", first, last),
    )
    return Page(path, f"{first} → {last}: {_title(report)}", body)


def _model(
    name: str, rows: list[Row], report: Report, addresses: Addresses, documents: Collection[str]
) -> Page:
    path = addresses.path(model_page(name))
    view = model.view(name, rows, report, addresses)
    markdown = page_path(name)
    body = _body(
        "model.html.jinja",
        report,
        path,
        addresses,
        view=view,
        markdown=addresses.file(path, markdown) if markdown in documents else "",
        is_first=path == HOME,
        **(_of_first_page(report, addresses) if path == HOME else {}),
        rules=rules_of(report, "release"),
        pair=upgrade.default_pair(report),
        legend=legend(report),
    )
    scripts = CHART_SCRIPTS if view.has_charts else ()
    return Page(path, f"{visible(name)}: {_title(report)}", body, scripts)


def _of_first_page(report: Report, addresses: Addresses) -> dict[str, object]:
    """Return what only the first page has: the answer about the one model of the report."""
    return {
        "result": result(report, with_limits=False),
        "limits": passing(report),
        "do": nothing(report),
        "beside": _beside(report, HOME, addresses),
    }


def _body(
    template: str, report: Report, path: str, addresses: Addresses, **values: object
) -> Markup:
    def to(target: str, place: str = "") -> str:
        return addresses.page(path, target, place)

    navigation = _navigation(report, path, addresses)
    text = _filled(
        template,
        report=report,
        reasons=reasons(report),
        to=to,
        navigation=navigation,
        path=path,
        **values,
    )
    return Markup(text)


def _filled(template: str, **values: object) -> str:
    return _environment().get_template(template).render(**values)


def _navigation(report: Report, path: str, addresses: Addresses) -> list[tuple[str, str, bool]]:
    """Return link, label and whether it is this page, for the links at the top."""
    targets = [(HOME, "Model" if only_model(report) else "Matrix")]
    pair = upgrade.default_pair(report)
    if pair:
        targets.append((upgrade_page(*pair), "Upgrade"))
    if any(row.bands for row in report.rows):
        targets.append((RELEASES, "Releases"))
    is_upgrade = path.startswith(f"{FOLDER}/upgrade/")
    return [
        (
            addresses.page(path, target),
            label,
            target == path or (label == "Upgrade" and is_upgrade),
        )
        for target, label in targets
    ]


def _title(report: Report) -> str:
    return f"samebits: {visible(f'{report.matrix}: {result(report)}')}"


def nonce(report: Report) -> str:
    """Return what marks our own scripts and styles for the page's Content-Security-Policy.

    It depends on the whole result, so that a text from a model cannot contain it.
    """
    digest = sha256(f"{report.started} {report.seconds} {report.matrix_digest}".encode())
    for cell in report.cells:
        digest.update(cell.headline.encode("utf-8", "backslashreplace"))
    return digest.hexdigest()[:32]


def _inline(name: str) -> Markup:
    """Return a file of ours as the content of a tag that it cannot end."""
    text = (_ASSETS / name).read_text("utf-8")
    return Markup(_ENDS_SCRIPT.sub(r"<\\", text) if name.endswith(".js") else text)


_ENDS_SCRIPT = re.compile(r"<(?=/script|!--)", re.IGNORECASE)
"""What would end an inline script or hide its end. It stands in texts, where ``\\`` changes nothing;
``</`` alone also begins what a pattern looks for: ``/</g``."""


def _writable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _compiled() -> FileSystemBytecodeCache | None:
    """Return jinja's cache, as to compile the templates takes half a second; None if it finds no safe folder."""
    try:
        return FileSystemBytecodeCache()
    except (OSError, RuntimeError):
        return None


@lru_cache(1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalized,
        bytecode_cache=_compiled(),
    )
    environment.filters |= {
        "number": number,
        "duration": duration,
        "id": anchor,
        "lines": _lines,
        "moment": moment,
        "code": with_code,
        "spanned": spanned,
    }
    environment.globals |= {
        "model_page": model_page,
        "upgrade_page": upgrade_page,
        "details_anchor": details_anchor,
        "row_name": row_name,
        "rule_anchor": matrix.rule_anchor,
        "releases_page": RELEASES,
        "class_of": class_of,
        "verdicts": Verdict,
        "kinds": upgrade.KINDS,
        "in_words": upgrade.in_words,
        "rule_kinds": RULE_KINDS,
        "home": HOME,
        "web": web_address,
    }
    return environment


def _finalized(value: Any) -> Any:  # noqa: ANN401  a template may show anything
    """Return a value for a template: text with its invisible characters as escapes."""
    if isinstance(value, Markup | Undefined):
        return value
    return visible(str(value))


def _lines(text: str) -> Markup:
    """Return text of several lines, each with its invisible characters as escapes."""
    return Markup("\n").join(visible(line.expandtabs(4)) for line in text.splitlines())
