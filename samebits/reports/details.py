"""Pages beside report.md for readers who want all of one subject, such as every verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

from samebits.questions import questions
from samebits.questions.question import Page
from samebits.records.report import Report
from samebits.reports.sections import attention, environment, expected, how_to_read, overview
from samebits.reports.sections.at_a_glance import every_step, explanations
from samebits.reports.sections.devices import only_on_a_gpu, settings_changed
from samebits.reports.sections.findings import findings
from samebits.reports.sections.in_brief import FINDINGS, VERDICTS
from samebits.reports.sections.loading import loading
from samebits.reports.sections.passing import passing
from samebits.reports.sections.probes import probes
from samebits.reports.sections.releases import releases
from samebits.reports.sections.state import state_left
from samebits.reports.stories import stories
from samebits.text.blocks import bullets, heading, link, page
from samebits.text.markdown import Markdown, fill
from samebits.text.moments import moment
from samebits.text.numbers import plural

Sections = tuple[tuple[int, "Callable[[Report, Collection[str]], Iterable[Markdown]]"], ...]
"""Places on a page, and what stands there; a function gets the report and the paths of the models' pages."""


RELATIONS = "relations.md"


class Detail(NamedTuple):
    """One page."""

    path: str
    title: str
    what: str
    """What it has, for the list in report.md."""
    sections: Sections
    """Those of the core; questions add their own between them."""


def _verdicts(report: Report, _model_pages: Collection[str]) -> Iterator[Markdown]:
    yield overview.reasons(report)
    yield overview.attention_needed(report)
    yield every_step(report)
    yield releases(report)
    yield explanations(report)
    yield probes(report)
    yield overview.summary(report)
    yield passing((story for story in stories(report.rows) if story.passes), report.expected)
    yield expected.expected_differences(report)
    yield expected.absent(report)
    yield expected.remarks(report)


def _environment(report: Report, model_pages: Collection[str]) -> Iterator[Markdown]:
    yield environment.stacks(report)
    yield environment.checkpoints(report, model_pages)
    yield environment.machine(report)
    yield settings_changed(report)
    yield only_on_a_gpu(report)
    yield how_to_read.how_to_read()


DETAILS = (
    Detail(
        VERDICTS,
        "Verdicts",
        "every cell, what is expected, where the bits move",
        ((10, _verdicts),),
    ),
    Detail(
        FINDINGS,
        "Findings",
        "known defects, loading, API checks, tokenizers, processors, attention kernels",
        (
            (10, lambda report, _: [findings(report), loading(report)]),
            (90, lambda report, _: [attention.attention_kernels(report)]),
        ),
    ),
    Detail(
        RELATIONS,
        "Relations",
        "caches, padding and batches inside one release; saved by one release, loaded by another",
        ((30, lambda report, _: [state_left(report)]),),
    ),
    Detail(
        "environment.md",
        "Environment",
        "environments, checkpoints, machine, and how to read this report",
        ((10, _environment),),
    ),
)

PATHS = tuple(detail.path for detail in DETAILS)


def may_have() -> tuple[str, ...]:
    """Return the pages that a report may have beside report.md: these, and those of questions."""
    return (*PATHS, *(page.path for page in _of_questions()))


def _of_questions() -> Iterator[Page]:
    for question in questions():
        yield from question.pages


def pages(report: Report, model_pages: Collection[str]) -> dict[str, Markdown]:
    """Return the pages by their paths: those of questions, and ours with links to their sections.

    ``model_pages`` are the paths of the models' pages.
    """
    made_from, when = link("report", "report.md"), moment(report.started)
    origin = fill("Part of the {} on {} of {}.", made_from, report.matrix, when)
    texts = {own.path: text for own in _of_questions() if (text := own.of_run(report))}
    for detail in DETAILS:
        sections = list(_sections(detail, report, model_pages))
        contents = overview.contents(sections)
        if sections:
            texts[detail.path] = page([heading(1, detail.title), origin, contents, *sections])
    return texts


def _sections(detail: Detail, report: Report, model_pages: Collection[str]) -> Iterator[Markdown]:
    """Yield the sections of a page that say something, in their order."""
    placed = [(order, of(report, model_pages)) for order, of in detail.sections]
    placed += [
        (section.order, [section.of_run(report)])
        for question in questions()
        for section in question.sections
        if section.page == detail.path
    ]
    for _, sections in sorted(placed, key=lambda entry: entry[0]):
        yield from filter(None, sections)


def links(paths: Collection[str], models: int, data: str) -> Markdown:
    """Return where everything else is: the pages that a report has, and ``data`` with all facts."""
    listed: list[Detail | Page] = [*DETAILS, *_of_questions()]
    lines = [
        fill("{}: {}", link(each.title, each.path), each.what)
        for each in listed
        if each.path in paths
    ]
    if models:
        each = fill("{} links each", link("Verdicts", VERDICTS))
        lines.append(
            fill("models/: {}, one for each model with details; {}", plural(models, "page"), each)
        )
    json = link(data, data)
    text = fill("{}: all facts, of which the pages show the most telling ones", json)
    return page([heading(2, "More"), bullets([*lines, text])])
