"""What report.md has of the models and their defects: the worst, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from samebits.diagnose.exit_code import fails
from samebits.findings.rulebook import plain_title, text_with_code, title
from samebits.records.finding import RuleText
from samebits.records.report import Report
from samebits.reports.answer import WORST_FIRST, first_sentences, in_one_release
from samebits.reports.beside import Defect as Beside
from samebits.reports.beside import alone, defects, of_releases
from samebits.reports.plain import KINDS, mended, remedy_as_seen
from samebits.reports.sections.at_a_glance import COLUMNS
from samebits.reports.sections.overview import identical_models, legend, summary_lines
from samebits.reports.stories import is_reference
from samebits.text.blocks import bullets, details, first_of, heading, link, page, table
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.names import page_path, spanned
from samebits.text.numbers import count, plural

FINDINGS = "findings.md"
VERDICTS = "verdicts.md"

_BESIDE = (
    "Known defects in other uses, such as training, saving, tokenizers and arguments. None explains "
    "the verdict, and none fails the run but with `--strict-findings`."
)
MAX_DEFECTS = 8
MAX_REMEDY = 300
MAX_MODELS = 4
MAX_WHERE = 120
MAX_NAMES = 12
MAX_LINES = 40
"""Limit for the lines of the models' table; more models are counted by group."""


class Defect(NamedTuple):
    """A known defect and the models in which it explains a verdict."""

    text: RuleText
    models: tuple[str, ...]
    severity: int
    """Place of the worst verdict that it explains; that of a failing cell comes first."""
    also: tuple[str, ...]
    """Other defects that go with it."""
    where: str = ""
    """The place that has it, where one model is shown, and the releases that do."""


def to_do(report: Report) -> Markdown:
    """Return the remedies of the defects that explain a verdict, the worst first; may be empty."""
    defects = _defects(report)
    if not defects:
        return EMPTY
    needed = [defect for defect in defects if not needs_nothing(defect.text)]
    idle = [text_with_code(plain_title(d.text)) for d in defects if needs_nothing(d.text)]
    return page(
        [
            heading(2, "What to do"),
            *_remedies(needed, report),
            fill("No action needed: {}.", join(idle, "; ")) if idle else EMPTY,
        ]
    )


def beside_the_verdict(report: Report) -> Markdown:
    """Return the defects that explain no verdict, with their remedies; may be empty."""
    shown = [defect for defect in defects(report) if not needs_nothing(defect.text)]
    repaired = [defect for defect in shown if defect.since == "repaired"]
    needed = [defect for defect in shown if defect.since != "repaired"]
    released = of_releases(report)
    if not shown and not released:
        return EMPTY
    titles = join((text_with_code(plain_title(defect.text)) for defect in repaired), "; ")
    return page(
        [
            heading(2, "Beside the verdict"),
            text_with_code(_BESIDE),
            *_remedies([_shown_defect(defect) for defect in needed], report),
            fill(f"In the reference{alone(report, repaired)}: {{}}.", titles)
            if repaired
            else EMPTY,
            _of_releases(report, released) if released else EMPTY,
        ]
    )


def _of_releases(report: Report, shown: Iterable[tuple[RuleText, Iterable[str]]]) -> Markdown:
    with_models = "this model" if len(report.models) == 1 else "models of this run"
    titles = (
        fill("{} ({})", text_with_code(plain_title(text)), spanned(stacks))
        for text, stacks in shown
    )
    return fill(
        f"Of the release, and so of any model that is used in this way; shown with {with_models}: {{}}. Remedies: {{}}.",
        join(titles, "; "),
        link("findings", FINDINGS),
    )


def _remedies(defects: Sequence[Defect], report: Report) -> Iterator[Markdown]:
    """Yield the remedies of the first defects with their models, and how many more there are."""
    yield bullets(_bullet(report, defect) for defect in defects[:MAX_DEFECTS])
    if (n_more := len(defects) - MAX_DEFECTS) > 0:
        yield fill("{} in the {}.", plural(n_more, "more defect"), link("findings", FINDINGS))


def needs_nothing(text: RuleText) -> bool:
    """Return True if the remedy of a rule is that none is needed."""
    return text.kind == "rounding"


def _defects(report: Report) -> list[Defect]:
    texts = {text.code: text for text in report.rules}
    models: dict[str, list[str]] = {}
    also: dict[str, dict[str, None]] = {}
    of_models = grouped(report.cells, lambda cell: cell.cell.model)
    for model, cells in of_models.items():
        for of_code, others in mended(cells, report).items():
            models.setdefault(of_code, []).append(model)
            also.setdefault(of_code, {}).update(dict.fromkeys(others))
    ranks = _ranks(report)
    defects = [
        Defect(
            texts[of_code],
            tuple(names),
            min(ranks[each] for each in (of_code, *also[of_code]) if each in ranks),
            tuple(also[of_code]),
        )
        for of_code, names in models.items()
    ]
    return sorted(
        defects,
        key=lambda d: (d.severity, KINDS.index(d.text.kind), -len(d.models), d.text.code),
    )


def _ranks(report: Report) -> dict[str, int]:
    """Return defect -> the place of the worst verdict that it explains; that of a failing cell comes first."""
    ranks: dict[str, int] = {}
    for cell in report.cells:
        rank = WORST_FIRST.index(cell.judged) + (0 if fails(cell) else len(WORST_FIRST))
        for explanation in cell.explained_by:
            ranks[explanation.code] = min(rank, ranks.get(explanation.code, rank))
    return ranks


def _shown_defect(beside: Beside) -> Defect:
    """Return a defect beside the verdict with what it is about, such as one argument, and its releases."""
    releases = "every release" if beside.since == "alike" else spanned(beside.stacks)
    where = f"{beside.where}; in {releases}" if beside.where else f"in {releases}"
    return Defect(beside.text, beside.models, 0, (), where)


def _bullet(report: Report, defect: Defect) -> Markdown:
    cells = [cell for cell in report.cells if cell.cell.model in defect.models]
    remedy = first_sentences(remedy_as_seen(defect.text, cells), MAX_REMEDY)
    others = f", and {', '.join(defect.also)}" if defect.also else ""
    shown = first_of([link(model, page_path(model)) for model in defect.models], MAX_MODELS)
    # where there is one model, each line is about it
    of_one = prose(defect.where, MAX_WHERE) if defect.where else EMPTY
    of = shown if len(report.models) > 1 else of_one
    in_brackets = fill(" ({})", of) if of else EMPTY
    return fill("**{}{}**{}: {}", title(defect.text), others, in_brackets, text_with_code(remedy))


def models(report: Report, pages: Collection[str]) -> Markdown:
    """Return the verdicts of all models, or of many models how many cells of a group have each.

    ``pages`` are the paths of the models' pages.
    """
    if not report.rows:
        return EMPTY
    lines = summary_lines(report)
    same = _identical(report, pages)
    if len(lines.rows) <= MAX_LINES:
        shown = [legend(report.rows), table(lines.headers, lines.rows)]
        return page([heading(2, "Models"), *shown, same])
    return page([heading(2, "Models"), _groups(report), same])


def _identical(report: Report, pages: Collection[str]) -> Markdown:
    """Return the models that are identical in every release, folded where they are many."""
    names = identical_models(report)
    if not names:
        return EMPTY
    n_alone = len(in_one_release(report).intersection(names))
    n_same = len(names) - n_alone
    same = f"{plural(n_same, 'model')} identical in every release that has {'it' if n_same == 1 else 'them'}"
    alone = f"{count(n_alone) if n_same else plural(n_alone, 'model')} in one release only"
    title = ", ".join([same] * bool(n_same) + [alone] * bool(n_alone))
    links = join(link(n, page_path(n)) if page_path(n) in pages else prose(n) for n in names)
    return details(title, links) if len(names) > MAX_NAMES else fill("{}: {}.", title, links)


def _groups(report: Report) -> Markdown:
    """Return a line for each group of models, with its compared cells by verdict."""
    verdicts: dict[str, Counter[str]] = {}
    names: dict[str, set[str]] = {}
    for row in report.rows:
        group = row.group or "other models"
        names.setdefault(group, set()).add(row.model)
        counts = verdicts.setdefault(group, Counter())
        counts.update(cell.judged for cell in row.cells if not is_reference(cell))
    headers = ["group", "models", *COLUMNS.values()]
    rows = [
        [group, count(len(names[group])), *(_count(counts[verdict]) for verdict in COLUMNS)]
        for group, counts in verdicts.items()
    ]
    more = fill("… and {}.", plural(len(rows) - MAX_LINES, "more group"))
    return page(
        [
            table(headers, rows[:MAX_LINES], right=headers[1:]),
            more if len(rows) > MAX_LINES else EMPTY,
            fill("Cells by verdict, beside the reference. {} has every row.", code(VERDICTS)),
        ]
    )


def _count(n: int) -> str:
    return count(n) if n else ""
