"""Differences that do not fail the run: the worst kind first, and each reason once for all cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.records.ids import Verdict
from samebits.reports.cell.capsule import capsules_of
from samebits.reports.cell.cause import cause_in_short
from samebits.reports.cell.graft import graft_in_short
from samebits.reports.cell.tensors import growth_line
from samebits.reports.sections.at_a_glance import COLUMNS
from samebits.reports.stories import QUIET, cell_in_short, group_cells
from samebits.text.blocks import heading, link, linked, page
from samebits.text.markdown import EMPTY, Markdown, clip, fill, join, prose
from samebits.text.names import page_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from samebits.records.comparison import CellResult
    from samebits.records.report import ExpectedReport, Row
    from samebits.reports.stories import Story

TITLE = "Differences that do not fail the run"

KINDS = (
    Verdict.FAILED,
    Verdict.UNSTABLE,
    Verdict.DIVERGED,
    Verdict.DIFFERS,
    Verdict.NOT_OBSERVED,
    Verdict.ROUNDING,
    Verdict.IDENTICAL,
)
"""As judged, the worst first; the last is of an entry that covers what no longer differs."""

WIDEST = 300
"""Characters of what differs first; the page of the model has all of it."""

WIDEST_AGAIN = 90
"""Characters of a reason that the same list has given in full."""

LONGEST = 4000
"""Characters of a reason in full."""


class Place(NamedTuple):
    """One row on the stacks where it parts from its reference in the same way."""

    story: Story
    row: Row
    cells: tuple[CellResult, ...]

    @property
    def stacks(self) -> str:
        """Where it does."""
        return ", ".join(cell.cell.stack for cell in self.cells)

    @property
    def starts(self) -> str:
        """Where the difference starts and what restores the bits; '' if neither is known."""
        first = self.cells[0]
        start = cause_in_short(first)
        said = [f"starts with {start}" if start else "", graft_in_short(first)]
        return "; ".join(filter(None, said))


def passing(stories: Iterable[Story], expected: tuple[ExpectedReport, ...]) -> Markdown:
    """Return a part for each kind of difference, and in it each reason with where it holds."""
    kinds: dict[Verdict, list[Place]] = {}
    for place in _places(stories):
        kinds.setdefault(place.cells[0].judged, []).append(place)
    if not kinds:
        return EMPTY
    parts = (_kind(kind, kinds[kind], expected) for kind in KINDS if kind in kinds)
    return page([heading(2, TITLE), Markdown(_LEGEND), *parts])


_LEGEND = (
    "What is expected, with the reason that matrix.yaml gives, and rounding, which needs none. "
    "Each name leads to all details."
)


def _places(stories: Iterable[Story]) -> Iterator[Place]:
    for story in stories:
        for row in story.rows:
            cells = [cell for cell in row.cells if cell.verdict not in QUIET]
            yield from (Place(story, row, shared.cells) for shared in group_cells(cells, _key))


def _key(cell: CellResult) -> tuple[object, ...]:
    failure = cell.failure and (cell.failure.phase, cell.failure.type, cell.failure.message)
    first = (cell.first.signal, cell.first.item) if cell.first else cell.headline
    return (
        cell.judged,
        cell.rest,
        cell.expected,
        failure,
        first,
        cause_in_short(cell),
        graft_in_short(cell),
    )


def _kind(kind: Verdict, places: list[Place], expected: tuple[ExpectedReport, ...]) -> Markdown:
    reasons: dict[tuple[str, ...], list[Place]] = {}
    for place in places:
        reasons.setdefault(place.cells[0].expected, []).append(place)
    given: set[str] = set()
    lists = [
        _reason(_why(several, given, found, expected), found)
        for several, found in _neighbours(reasons)
    ]
    title = heading(3, COLUMNS[kind].capitalize())
    asked = capsules_of(cell for place in places for cell in place.cells)
    return page([title, Markdown("\n".join(lists)), asked])


def _neighbours(
    reasons: Mapping[tuple[str, ...], list[Place]],
) -> list[tuple[tuple[str, ...], list[Place]]]:
    """Return the items with those of one first reason side by side."""
    first: dict[tuple[str, ...], int] = {}
    for several in reasons:
        first.setdefault(several[:1], len(first))
    return sorted(reasons.items(), key=lambda item: first[item[0][:1]])


def _why(
    reasons: tuple[str, ...],
    given: set[str],
    places: list[Place],
    expected: tuple[ExpectedReport, ...],
) -> Markdown:
    """Return the reasons; one that was given in full before is cut."""
    names = {str(cell.cell) for place in places for cell in place.cells}
    said = [
        fill(
            "{}{}",
            clip(reason, WIDEST_AGAIN) if reason in given else prose(reason, LONGEST),
            _source(reason, names, expected),
        )
        for reason in reasons
    ]
    given.update(reasons)
    return join(said, " And: ") if said else Markdown("Rounding, which needs no entry.")


def _source(reason: str, names: set[str], expected: tuple[ExpectedReport, ...]) -> Markdown:
    for entry in expected:
        if entry.reason == reason and names & {*entry.cells, *entry.fixed}:
            where = fill("line {}", str(entry.line))
            return fill(" ({})", join(filter(None, [linked(entry.reference), where])))
    return EMPTY


def _reason(why: Markdown, places: list[Place]) -> Markdown:
    """Return one item of the list: why, and below it where."""
    ways: dict[tuple[str, str], list[Place]] = {}
    for place in places:
        ways.setdefault((place.stacks, place.starts), []).append(place)
    return Markdown("\n".join([f"- {why}", *(f"  - {_way(alike)}" for alike in ways.values())]))


def _way(places: list[Place]) -> Markdown:
    """Return the rows that part on the same stacks in the same way; what differs if it is one thing."""
    first = places[0]
    said = fill("**{}**: {}", first.stacks, join(map(_name, places)))
    seen = dict.fromkeys(cell_in_short(place.cells[0]) for place in places)
    if len(seen) == 1:
        said = fill("{}: {}", said, clip(next(iter(seen)), WIDEST))
    if first.starts:
        said = fill("{}; {}", said, first.starts)
    growth = growth_line(first.cells[0]) if len(places) == 1 else EMPTY
    return fill("{}; {}", said, growth) if growth else said


def _name(place: Place) -> Markdown:
    figures = join(dict.fromkeys(cell.figure for cell in place.cells if cell.figure))
    label = fill("{} · {}", place.row.model, place.row.variant)
    name = link(label, f"{page_path(place.row.model)}{place.story.anchor}")
    return fill("{} ({})", name, figures) if figures else name
