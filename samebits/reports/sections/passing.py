"""Differences that do not fail the run: the worst kind first, each reason once for all cells."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import ExpectedReport, Row
from samebits.reports.cell.capsule import capsules_of
from samebits.reports.cell.cause import cause_in_short
from samebits.reports.cell.graft import graft_in_short
from samebits.reports.cell.tensors import growth_line
from samebits.reports.sections.at_a_glance import COLUMNS
from samebits.reports.stories import QUIET, Story, cell_in_short, failure_key, group_cells
from samebits.text.blocks import heading, link, linked, page
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, clip, fill, join, prose
from samebits.text.names import page_path

TITLE = "Differences that do not fail the run"

KINDS = (
    Verdict.FAILED,
    Verdict.UNSTABLE,
    Verdict.DIVERGED,
    Verdict.UNDECIDED,
    Verdict.NOT_OBSERVED,
    Verdict.ROUNDING,
    Verdict.IDENTICAL,
)
"""Verdicts as judged, the worst first; the last is of an entry that covers cells without a
difference."""

MAX_DIFFERENCE = 300
"""Limit in characters for what differs first; the page of the model has all of it."""

MAX_REPEATED_REASON = 90
"""Limit in characters for a reason that the same list has already given in full."""

MAX_REASON = 4000
"""Limit in characters for a reason in full."""


class Difference(NamedTuple):
    """One row on the stacks where it differs from its reference in the same way."""

    story: Story
    row: Row
    cells: tuple[CellResult, ...]

    @property
    def stacks(self) -> str:
        """The stacks where it differs."""
        return ", ".join(cell.cell.stack for cell in self.cells)

    @property
    def starts(self) -> str:
        """Where the difference starts and what restores the bits; '' if neither is known."""
        first = self.cells[0]
        return "; ".join(filter(None, [cause_in_short(first), graft_in_short(first)]))


def passing(stories: Iterable[Story], expected: tuple[ExpectedReport, ...]) -> Markdown:
    """Return a part for each kind of difference, and in it each reason with where it holds."""
    kinds = grouped(_differences(stories), lambda difference: difference.cells[0].judged)
    if not kinds:
        return EMPTY
    parts = (_kind(kind, kinds[kind], expected) for kind in KINDS if kind in kinds)
    return page([heading(2, TITLE), Markdown(_LEGEND), *parts])


_LEGEND = (
    "Expected differences, with the reason that matrix.yaml gives, and rounding, which needs no "
    "reason. Each name links to all details."
)


def _differences(stories: Iterable[Story]) -> Iterator[Difference]:
    for story in stories:
        for row in story.rows:
            cells = [cell for cell in row.cells if cell.verdict not in QUIET]
            yield from (
                Difference(story, row, shared.cells)
                for shared in group_cells(cells, _difference_key)
            )


def _difference_key(cell: CellResult) -> tuple[object, ...]:
    difference = cell.decisive
    place = (difference.signal, difference.item) if difference else cell.headline
    return (
        cell.judged,
        cell.rest,
        cell.expected,
        failure_key(cell),
        place,
        cause_in_short(cell),
        graft_in_short(cell),
    )


def _kind(
    kind: Verdict, differences: list[Difference], expected: tuple[ExpectedReport, ...]
) -> Markdown:
    by_reasons = grouped(differences, lambda difference: difference.cells[0].expected)
    seen_reasons: set[str] = set()
    lists = [
        _list_item(_reason_text(reasons, seen_reasons, group, expected), group)
        for reasons, group in _neighbours(by_reasons)
    ]
    title = heading(3, COLUMNS[kind].capitalize())
    capsules = capsules_of(cell for difference in differences for cell in difference.cells)
    return page([title, Markdown("\n".join(lists)), capsules])


def _neighbours(
    by_reasons: Mapping[tuple[str, ...], list[Difference]],
) -> list[tuple[tuple[str, ...], list[Difference]]]:
    """Return the items; those with the same first reason are next to each other."""
    order: dict[tuple[str, ...], int] = {}
    for reasons in by_reasons:
        order.setdefault(reasons[:1], len(order))
    return sorted(by_reasons.items(), key=lambda item: order[item[0][:1]])


def _reason_text(
    reasons: tuple[str, ...],
    seen_reasons: set[str],
    differences: list[Difference],
    expected: tuple[ExpectedReport, ...],
) -> Markdown:
    """Return the reasons; a reason that was already given in full is cut."""
    names = {str(cell.cell) for difference in differences for cell in difference.cells}
    texts = [
        fill(
            "{}{}",
            clip(reason, MAX_REPEATED_REASON)
            if reason in seen_reasons
            else prose(reason, MAX_REASON),
            _entry_link(reason, names, expected),
        )
        for reason in reasons
    ]
    seen_reasons.update(reasons)
    return join(texts, " And: ") if texts else Markdown("Rounding, which needs no entry.")


def _entry_link(reason: str, names: set[str], expected: tuple[ExpectedReport, ...]) -> Markdown:
    for entry in expected:
        if entry.reason == reason and names & {*entry.cells, *entry.fixed}:
            line = fill("line {}", str(entry.line))
            return fill(" ({})", join(filter(None, [linked(entry.reference), line])))
    return EMPTY


def _list_item(reason: Markdown, differences: list[Difference]) -> Markdown:
    """Return one item of the list: the reason, and below it where it holds."""
    groups = grouped(differences, lambda difference: (difference.stacks, difference.starts))
    return Markdown(
        "\n".join([f"- {reason}", *(f"  - {_difference_line(group)}" for group in groups.values())])
    )


def _difference_line(differences: list[Difference]) -> Markdown:
    """Return the rows that differ on the same stacks in the same way.

    What differs is added if it is the same for all of them.
    """
    first = differences[0]
    line = fill("**{}**: {}", first.stacks, join(map(_name, differences)))
    short_forms = dict.fromkeys(cell_in_short(difference.cells[0]) for difference in differences)
    if len(short_forms) == 1:
        line = fill("{}: {}", line, clip(next(iter(short_forms)), MAX_DIFFERENCE))
    if first.starts:
        line = fill("{}; {}", line, first.starts)
    growth = growth_line(first.cells[0]) if len(differences) == 1 else EMPTY
    return fill("{}; {}", line, growth) if growth else line


def _name(difference: Difference) -> Markdown:
    figures = join(dict.fromkeys(cell.figure for cell in difference.cells if cell.figure))
    label = fill("{} · {}", difference.row.model, difference.row.variant)
    name = link(label, f"{page_path(difference.row.model)}{difference.story.anchor}")
    return fill("{} ({})", name, figures) if figures else name
