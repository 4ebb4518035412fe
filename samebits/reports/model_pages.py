"""Pages of the models: one for each model, with all details of its rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from samebits.questions import questions
from samebits.records.report import Report, Row
from samebits.reports.cell.capsule import capsules_of
from samebits.reports.cell.in_full import in_full, timeline
from samebits.reports.sections import attention, environment, expected, overview
from samebits.reports.sections.findings import findings_of
from samebits.reports.sections.loading import loading_of
from samebits.reports.sections.paged import has_page
from samebits.reports.sections.probes import probes_of
from samebits.reports.sections.state import state_of
from samebits.reports.sections.the_worst import of_model
from samebits.reports.sections.unrun import unrun_of
from samebits.reports.stories import QUIET, Story, stories
from samebits.text.blocks import cut, details, heading, link, page
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, fill
from samebits.text.moments import moment
from samebits.text.names import page_path

MAX_SECTION = 5_000
"""Limit in characters for a section of a page; report.json has all of it."""
MAX_FINDINGS = 18_000
"""Limit for the findings of a model, whose evidence the first screen refers to."""
MAX_STORIES = 18_000
"""Limit for the sections about differences together."""
MIN_STORY = 1_000
"""Characters that each of these sections has in any case."""

LONG = 14
"""Lines of a section beside the verdict from which on it is folded."""

_MORE = Markdown("*Cut here: report.json has all of it.*")


def pages(report: Report) -> dict[str, Markdown]:
    """Return the pages by their paths relative to report.md, for models with details."""
    return {
        page_path(model): _page(model, rows, report)
        for model, rows in grouped(report.rows, lambda row: row.model).items()
        if has_page(rows, report)
    }


def _page(model: str, rows: list[Row], report: Report) -> Markdown:
    return page(
        [
            heading(1, model),
            _origin(report),
            _threads(rows),
            of_model(rows, report),
            environment.checkpoints_of(model, report),
            overview.model_summary(rows, report),
            _within(unrun_of(rows, report.level)),
            _within(findings_of(rows, report), MAX_FINDINGS),
            *_stories(rows, report),
            _within(probes_of(rows)),
            *_aside(rows, report),
            _within(expected.remarks_of(rows)),
        ]
    )


def _aside(rows: list[Row], report: Report) -> Iterator[Markdown]:
    """Yield what is beside the verdict: sections of the core, and those of questions between them.

    Those at one place are cut as one.
    """
    placed = [
        (30, loading_of(rows)),
        (70, state_of(rows)),
        (110, attention.kernels_of(rows)),
    ]
    placed += [
        (section.order, section.of_rows(rows, report))
        for question in questions()
        for section in question.of_model
    ]
    by_place = groupby(sorted(placed, key=_place), key=_place)
    for _, together in by_place:
        yield _folded(_within(page(section for _, section in together)))


def _folded(together: Markdown) -> Markdown:
    """Return sections with what stands below their headings folded, where it is long."""
    parts = []
    for section in re.split(r"\n+(?=## )", together):
        title, _, body = section.partition("\n\n")
        is_long = title.startswith("## ") and body.count("\n") >= LONG
        parts.append(
            page([Markdown(title), details("Show", Markdown(body))])
            if is_long
            else Markdown(section)
        )
    return page(parts)


def _place(section: tuple[int, Markdown]) -> int:
    return section[0]


def _within(section: Markdown, limit: int | None = None) -> Markdown:
    """Return a section, cut to a size that a reader takes in."""
    return cut(section, limit or MAX_SECTION, _MORE)


def _stories(rows: list[Row], report: Report) -> Iterator[Markdown]:
    """Yield the sections about differences; the first ones may use what the others leave."""
    model_stories = stories(rows)
    room = MAX_STORIES
    for number, story in enumerate(model_stories):
        n_left = len(model_stories) - number
        section = _within(_section(story, report), max(room // n_left, MIN_STORY))
        room -= len(section)
        yield section


def _origin(report: Report) -> Markdown:
    report_link = link("report", "../report.md")
    return fill("Part of the {} on {} of {}.", report_link, report.matrix, moment(report.started))


def _threads(rows: list[Row]) -> Markdown:
    """Return how many threads the cells of a model have; '' if it is one."""
    number = max(row.threads for row in rows)
    if number == 1:
        return EMPTY
    text = "Its cells run with {} threads in every environment: their number decides the order of sums."
    return fill(text, number)


def _section(story: Story, report: Report) -> Markdown:
    cells = [cell for row in story.rows for cell in row.cells if cell.verdict not in QUIET]
    blocks = [heading(2, story.name), timeline(story.rows[0])]
    details = in_full(cells, story, report.expected, level=3)
    return page([*blocks, details, capsules_of(cells, above="../")])
