"""What a model's page shows: its rows, and each outcome of its cells in full."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from markupsafe import Markup

from samebits.questions import questions
from samebits.records.comparison import CellResult, Choices, LikelyToken
from samebits.records.finding import Finding, RuleText
from samebits.records.graft import Graft
from samebits.records.ids import Verdict
from samebits.records.report import CheckpointReport, ExpectedReport, Report, Row
from samebits.records.trace import GIVEN, Cause
from samebits.reports.cell.cause import causes_of, shown_cause
from samebits.reports.cell.in_full import explained
from samebits.reports.html import charts
from samebits.reports.html.addresses import Addresses, anchor, cell_anchor, model_page
from samebits.reports.html.answers import Answers, Known, Summary, summaries
from samebits.reports.html.bands import Piece, strip
from samebits.reports.html.diff import python, source_diff
from samebits.reports.html.flow import Stage, flow
from samebits.reports.html.matrix import Line, line, severity
from samebits.reports.html.prose import rendered
from samebits.reports.html.states import State, has_details, rank_of, state
from samebits.reports.sections.unrun import in_words, media_of
from samebits.reports.stories import (
    QUIET,
    Shared,
    Story,
    group_cells,
    is_reference,
    outcome_key,
    rest_in_words,
    row_name,
)
from samebits.text.chart import Chart
from samebits.text.lists import group_equal
from samebits.text.markdown import visible
from samebits.text.names import spanned
from samebits.text.numbers import number


class Remedy(NamedTuple):
    """A known defect with the text of its rule."""

    known: Known
    rule: RuleText | None
    id: str
    example: Markup | None
    is_repeated: bool
    """True if the page shows the text of its rule further up."""

    @property
    def finding(self) -> Finding:
        """The finding."""
        return self.known.finding


class Diff(NamedTuple):
    """One function with other source, with colours."""

    function: str
    reference: str
    candidate: str
    text: Markup
    cut: int


class CauseView(NamedTuple):
    """The cause of a difference, with the source that changed."""

    cause: Cause
    diffs: tuple[Diff, ...]
    """Those of functions that the evidence names first."""
    source: Diff | None
    """The first of them, if it may be what makes the difference."""


class Likely(NamedTuple):
    """The most likely tokens of both sides at one position of the logits."""

    what: str
    """The prompt, and whether it is a forward or a greedy step."""
    place: str
    """Index of the position."""
    rows: tuple[tuple[str, str, str, str], ...]
    """Token and logit of the reference, token and logit of the candidate; the most likely first."""
    margins: tuple[str, str]


class Outcome(NamedTuple):
    """Cells of one row that have the same outcome; ``cell`` is the first of them."""

    cell: CellResult
    stacks: tuple[str, ...]
    anchors: tuple[str, ...]
    state: State
    sentences: tuple[tuple[str, str], ...]
    """What to read first: sentences, each with a title or ''."""
    rest: str
    expected: tuple[tuple[str, str], ...]
    """Reasons of the matrix file, with their references."""
    stages: tuple[Stage, ...]
    charts: tuple[Chart, ...]
    cause: Cause | None
    """The one to name."""
    causes: tuple[CauseView, ...]
    explained: Markup
    """What report.md has about it, too."""
    likely: tuple[Likely, ...]
    grafts: tuple[Graft, ...]
    """What restores the bits of each prompt, with all that was tried."""
    remedies: tuple[Remedy, ...]
    """Those that explain the verdict first."""
    commands: tuple[tuple[str, str, str], ...]
    """Id, title and command."""
    capsule: str
    """Link to the folder of the capsule; '' if there is none."""

    @property
    def is_rounding(self) -> bool:
        """True if the cells compute the same function."""
        return self.cell.judged is Verdict.ROUNDING

    @property
    def is_compared(self) -> bool:
        """True if the cells differ from a reference."""
        return self.cell.judged not in QUIET

    @property
    def source(self) -> Diff | None:
        """The change of source to show at once: of the cause to name."""
        named = next((each for each in self.causes if each.cause is self.cause), None)
        return named.source if named else None


class NamedChart(NamedTuple):
    """A chart of a question, under the name of what it shows."""

    name: str
    id: str
    chart: Chart


class Aside(NamedTuple):
    """A section of a question on the model, as report.md has it, with the charts that only HTML has."""

    title: str
    id: str
    text: Markup
    charts: tuple[NamedChart, ...]


class Section(NamedTuple):
    """One row of the model."""

    name: str
    id: str
    line: Line
    pieces: tuple[Piece, ...]
    outcomes: tuple[Outcome, ...]
    unrun: tuple[tuple[str, str], ...]
    """Stacks, and the modules that no prompt ran there."""
    media: str
    """Which observations had no image, sound or video; '' for a model that takes text alone."""


class ModelView(NamedTuple):
    """The whole page of a model."""

    model: str
    checkpoint: CheckpointReport | None
    sections: tuple[Section, ...]
    asides: tuple[Aside, ...]
    summaries: tuple[Summary, ...]
    """What changed in the model, the worst first."""

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Id and name of each part of the page."""
        rows = [(section.id, section.line.variant) for section in self.sections]
        return [*rows, *((aside.id, aside.title) for aside in self.asides)]

    @property
    def has_charts(self) -> bool:
        """True if the page needs the library of charts."""
        outcomes = (outcome for section in self.sections for outcome in section.outcomes)
        return any(aside.charts for aside in self.asides) or any(o.charts for o in outcomes)


def view(model: str, rows: list[Row], report: Report, addresses: Addresses) -> ModelView:
    """Return what the page of a model shows."""
    checkpoint = next((entry for entry in report.checkpoints if entry.model == model), None)
    page = Page(report, addresses, Answers(report), set())
    sections = tuple(_section(row, page) for row in sorted(rows, key=severity))
    asides = tuple(_asides(rows, report, addresses))
    of_model = report.model_copy(update={"rows": tuple(rows)})
    answered = tuple(summaries(of_model, model_page(model), addresses))
    return ModelView(model, checkpoint, sections, asides, answered)


class Page(NamedTuple):
    """What all parts of a page share."""

    report: Report
    addresses: Addresses
    answers: Answers
    shown: set[str]
    """Codes of the rules whose text the page already has."""


def _section(row: Row, page: Page) -> Section:
    stacks = [stack.id for stack in page.report.stacks]
    wrong = page.answers.wrong(row)
    cells = [cell for cell in row.cells if has_details(cell) or cell.cell.stack in wrong]
    groups = group_cells(cells, outcome_key)
    groups.sort(key=lambda group: (rank_of(group.first), -stacks.index(group.cells[-1].cell.stack)))
    outcomes = (_outcome(group, row, page) for group in groups)
    return Section(
        name=row_name(row),
        id=anchor(row.model, row.variant),
        line=line(row, stacks, model_page(row.model), page.addresses, page.answers),
        pieces=tuple(strip(row, page.report)),
        outcomes=tuple(outcomes),
        unrun=tuple(
            (spanned(stacks), in_words(modules, len(modules)))
            for stacks, modules in group_equal(row.unrun)
        ),
        media=media_of([row], page.report.level),
    )


def _outcome(shared: Shared, row: Row, page: Page) -> Outcome:
    cells, cell = shared.cells, _richest(shared.cells)
    path, addresses = model_page(cell.cell.model), page.addresses
    text = explained(shared, Story((row,)), partial(causes_of, diffs=False))
    has_capsule = cell.capsule is not None and cell.capsule.path
    return Outcome(
        cell=cell,
        stacks=tuple(each.cell.stack for each in cells),
        anchors=tuple(cell_anchor(each.cell) for each in cells),
        state=state(cell, path, addresses),
        sentences=tuple(page.answers.sentences(cell)),
        rest=rest_in_words(cell),
        expected=_reasons(cell, page.report.expected),
        stages=tuple(flow(cell)) if not is_reference(cell) else (),
        charts=tuple(charts.charts_of(cell)),
        cause=shown_cause(cell),
        causes=_causes(cell),
        explained=rendered(text, addresses.in_html(path, page.report.models)),
        likely=tuple(_likely(cell)),
        grafts=(cell.graft, *cell.graft.more) if cell.graft else (),
        remedies=_remedies(cells, row, page),
        commands=_commands(cell),
        capsule=addresses.file(path, cell.capsule.path) if has_capsule and cell.capsule else "",
    )


def _richest(cells: tuple[CellResult, ...]) -> CellResult:
    """Return the first cell with a cause, else the first one."""
    return next((cell for cell in cells if cell.cause), cells[0])


def _reasons(cell: CellResult, expected: tuple[ExpectedReport, ...]) -> tuple[tuple[str, str], ...]:
    references = {entry.reason: entry.reference for entry in expected if entry.reference}
    return tuple((reason, references.get(reason, "")) for reason in cell.expected)


def _causes(cell: CellResult) -> tuple[CauseView, ...]:
    causes = [cell.cause, cell.cause.beyond] if cell.cause else []
    return tuple(_cause_view(cause) for cause in causes if cause is not None)


def _cause_view(cause: Cause) -> CauseView:
    named = " ".join(cause.evidence)
    ordered = sorted(cause.diffs, key=lambda diff: diff.function not in named)
    diffs = tuple(
        Diff(diff.function, diff.reference, diff.candidate, source_diff(diff.diff), diff.cut)
        for diff in ordered
    )
    # of an operation that is given something else, its own source says nothing
    tells = cause.kind not in GIVEN or (ordered and ordered[0].function in named)
    return CauseView(cause, diffs, diffs[0] if diffs and tells else None)


def _likely(cell: CellResult) -> list[Likely]:
    return [
        _likely_at(f"{item.subject.prompt_row}, {signal.signal}", item.metrics.choices)
        for signal in cell.signals
        if signal.signal in ("logits", "decode")
        for item in signal.items
        if item.metrics and item.metrics.choices
    ]


def _likely_at(what: str, choices: Choices) -> Likely:
    sides = choices.reference, choices.candidate
    rows = zip(*(map(_token, side) for side in sides), strict=True)
    margins = [number(side[0].logit - side[1].logit) if len(side) > 1 else "" for side in sides]
    place = ", ".join(map(str, choices.index))
    return Likely(what, place, tuple((*a, *b) for a, b in rows), (margins[0], margins[1]))


def _token(token: LikelyToken) -> tuple[str, str]:
    text = "" if token.text is None else f" {token.text!r}"
    return visible(f"{token.id}{text}"), f"{token.logit:.6g}"


def _remedies(cells: tuple[CellResult, ...], row: Row, page: Page) -> tuple[Remedy, ...]:
    """Return the known defects of cells: those that explain the verdict, then others, then of saving."""
    remedies = []
    for place, known in enumerate(page.answers.known(cells, row)):
        code = known.finding.code
        rule = page.answers.rules.get(code)
        remedies.append(
            Remedy(
                known,
                rule,
                anchor(cell_anchor(cells[0].cell), f"finding-{place}"),
                python(rule.example) if rule and rule.example else None,
                is_repeated=code in page.shown,
            )
        )
        page.shown.add(code)
    return tuple(remedies)


def _commands(cell: CellResult) -> tuple[tuple[str, str, str], ...]:
    commands = [("reproduce", "Runs only this cell and its reference", cell.reproduce)]
    if cell.capsule and cell.capsule.command:
        title = f"Shows the difference without samebits, inside {cell.capsule.path}"
        commands.append(("capsule", title, cell.capsule.command))
    return tuple(
        (anchor(cell_anchor(cell.cell), name), title, command)
        for name, title, command in commands
        if command
    )


def _asides(rows: list[Row], report: Report, addresses: Addresses) -> Iterator[Aside]:
    """Yield the sections of questions on a model, in the order of report.md's pages.

    The charts of a question stand below its first section.
    """
    address = addresses.in_html(model_page(rows[0].model), report.models)
    sections = [(section, question) for question in questions() for section in question.of_model]
    undrawn = {
        question.name: question.charts for question in questions() if question.charts is not None
    }
    for section, question in sorted(sections, key=lambda entry: entry[0].order):
        text = section.of_rows(rows, report)
        charts_of = undrawn.pop(question.name, None)
        plots = tuple(_named_charts(charts_of, rows)) if charts_of is not None else ()
        if text or plots:
            shown = rendered(text, address)
            title = _HEADING.search(shown)
            name = Markup(title[1]).striptags() if title else question.name.capitalize()
            yield Aside(name, anchor(rows[0].model, "aside", name), shown, plots)


_HEADING = re.compile(r"<h\d>(.*?)</h\d>")


def _named_charts(
    charts_of: Callable[[Row], Sequence[tuple[str, Chart]]], rows: list[Row]
) -> Iterator[NamedChart]:
    for row in rows:
        for name, chart in charts_of(row):
            yield NamedChart(name, anchor(row.model, row.variant, name, chart.name), chart)
