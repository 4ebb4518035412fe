"""Invariants inside one version: what report.md says of the relations of all models together."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from samebits.compare.standing import Standing
from samebits.reports.sections import untried
from samebits.reports.sections.averages import has_averages
from samebits.reports.sections.precision import too_coarse
from samebits.reports.sections.relations_lines import (
    RELATIONS,
    SEVERITY,
    Line,
    largest,
    lines,
    size,
    word,
)
from samebits.text.blocks import bullets, codes, folded, heading, link, page, slug, table, titled
from samebits.text.markdown import EMPTY, Markdown, fill, join, prose
from samebits.text.names import page_path
from samebits.text.numbers import count, duration, plural

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from samebits.records.relations import Relation
    from samebits.records.report import Report, Row

TITLE = "Invariants inside one version"

TIMES = "\N{MULTIPLICATION SIGN}"

MOST_MODELS = 6
"""Models that a line names."""

MOST_BROKEN = 60
"""Broken relations with a line of their own; the matrix below counts them all."""

LONGEST_MATRIX = 120
"""Lines of a matrix that is not folded."""

SAID = {
    Standing.HOLDS: ("holds", "hold"),
    Standing.SHRINKS: (
        "differs and all but agrees in float64, as rounding does",
        "differ and all but agree in float64, as rounding does",
    ),
    Standing.UNKNOWN: (
        "differs and float64 does not tell why",
        "differ and float64 does not tell why",
    ),
}
"""What is said of one and of several that are not broken."""

BY_DESIGN = " (by design of its rope)"

_NUMBER = re.compile("[0-9]{1,9}")


def invariants(report: Report) -> Markdown:
    """Return the section; nothing if no row has invariants."""
    if not any(row.invariants for row in report.rows):
        return EMPTY
    found = lines(report.rows)
    return page(
        [
            heading(2, TITLE),
            _headline(found),
            _broken(found),
            _matrix([line for line in found if line.cases], _stacks(report)),
            untried.left_out(found),
            untried.not_promoted(report.rows),
            too_coarse(report.rows),
            _pointers(report.rows),
        ]
    )


def broken_line(report: Report) -> str:
    """Return the models with a broken relation, on which stacks; '' if there is none."""
    places = _places(lines(report.rows))
    designed = _designed(lines(report.rows))
    said = [
        f"{model} on {', '.join(stacks)} ({plural(n, 'relation')}"
        f"{', by design of its rope' if model in designed else ''})"
        for model, stacks, n in places
    ]
    return f"Broken inside one version: {_first(said)}" if said else ""


def _headline(found: list[Line]) -> Markdown:
    standings = [
        stands for line in found for stack in line.cases if (stands := line.standing_on(stack))
    ]
    counts = Counter(standings)
    said = [
        f"{count(counts[stands])} {words[counts[stands] != 1]}"
        for stands, words in SAID.items()
        if counts[stands]
    ]
    tried = plural(len(standings), "relation tried", "relations tried")
    said_of_broken = _said_of_broken(counts[Standing.STAYS], found)
    return fill("{}: of {}, {}.", _extent(found), tried, join([*said, said_of_broken], "; "))


def _said_of_broken(n: int, found: list[Line]) -> Markdown:
    if not n:
        return Markdown("none is broken")
    broken = Markdown(f"**{count(n)} {'is' if n == 1 else 'are'} broken**")
    return fill("{}: {}", broken, _where(found))


def _extent(found: list[Line]) -> str:
    tried = [line for line in found if line.cases]
    names = {line.name for line in tried}
    models = {line.row.model for line in tried}
    stacks = {stack for line in tried for stack in line.cases}
    parts = (
        plural(len(names), "relation"),
        plural(len(models), "model"),
        plural(len(stacks), "stack"),
    )
    return f" {TIMES} ".join(parts)


def _where(found: list[Line]) -> str:
    designed = _designed(found)
    return _first(
        f"{model} on {', '.join(stacks)}{BY_DESIGN if model in designed else ''}"
        for model, stacks, _ in _places(found)
    )


def _designed(found: list[Line]) -> set[str]:
    """Return the models of which everything that is broken is meant to be so."""
    broken = [line for line in found if line.stacks_with(Standing.STAYS)]
    models = {line.row.model for line in broken}
    return models - {line.row.model for line in broken if not line.by_design()}


def _first(parts: Iterable[str]) -> str:
    parts = list(parts)
    rest = len(parts) - MOST_MODELS
    more = [f"and {plural(rest, 'more model')}"] if rest > 0 else []
    return "; ".join([*parts[:MOST_MODELS], *more])


def _places(found: list[Line]) -> list[tuple[str, list[str], int]]:
    """Return model, stacks and number of the relations that are broken, most of them first."""
    models: dict[str, list[Line]] = {}
    for line in found:
        if line.stacks_with(Standing.STAYS):
            models.setdefault(line.row.model, []).append(line)
    places = [
        (model, _ordered(broken), len({line.name for line in broken}))
        for model, broken in models.items()
    ]
    return sorted(places, key=lambda place: -place[2])


def _ordered(broken: list[Line]) -> list[str]:
    order = dict.fromkeys(stack for line in broken for stack in line.row.invariants)
    bad = {stack for line in broken for stack in line.stacks_with(Standing.STAYS)}
    return [stack for stack in order if stack in bad]


def _stacks(report: Report) -> list[str]:
    tried = {stack for row in report.rows for stack in row.invariants}
    return [stack.id for stack in report.stacks if stack.id in tried]


def _broken(found: list[Line]) -> Markdown:
    """Return a line for each broken relation of a model; variants with the same stacks share it."""
    groups: dict[Hashable, list[Line]] = {}
    for line in found:
        if line.stacks_with(Standing.STAYS):
            groups.setdefault((line.name, line.row.model, _story(line)), []).append(line)
    if not groups:
        return EMPTY
    headers = ["relation", "model · variant", "stacks", "in the dtype", "in float64", "smallest"]
    rows = [_broken_row(same) for same in groups.values()]
    rest = len(rows) - MOST_BROKEN
    more = fill("… and {} more, which the next table counts.", count(rest)) if rest > 0 else EMPTY
    drawn = table(headers, rows[:MOST_BROKEN], right=headers[3:5])
    title = titled("Broken, with the largest differences")
    return page([title, drawn, more, bullets(_notes(found))])


def _notes(found: list[Line]) -> list[Markdown]:
    """Return what is broken by design: no defect of a cache, whatever the figures look like."""
    notes: dict[str, dict[str, dict[str, None]]] = {}
    for line in found:
        for stack in line.stacks_with(Standing.STAYS):
            worst = line.worst(stack)
            if worst and worst.note:
                relations = notes.setdefault(worst.note, {}).setdefault(line.row.model, {})
                relations[line.name] = None
    return [
        fill("{}, {}: {}.", model, "; ".join(relations), note)
        for note, models in notes.items()
        for model, relations in models.items()
    ]


def _broken_row(same: list[Line]) -> list[str]:
    row = same[0].row
    target = f"{page_path(row.model)}#{slug(TITLE)}"
    variants = ", ".join(line.row.variant for line in same)
    cases = [
        case
        for line in same
        for stack in line.stacks_with(Standing.STAYS)
        for case in _worst(line, stack)
    ]
    return [
        same[0].name,
        link(f"{row.model} · {variants}", target),
        _story(same[0]),
        _per_line(same, promoted=False),
        _per_line(same, promoted=True),
        min((case.case for case in cases), key=_numbers),
    ]


def _worst(line: Line, stack: str) -> list[Relation]:
    worst = line.worst(stack)
    return [worst] if worst else []


def _per_line(same: list[Line], *, promoted: bool) -> str:
    """Return one figure per variant, equal ones once."""
    figures = []
    for line in same:
        cases = [case for stack in line.stacks_with(Standing.STAYS) for case in _worst(line, stack)]
        sides = (case.promoted if promoted else case.distance for case in cases)
        figures.append(size(largest(side.max_abs for side in sides if side)))
    return ", ".join(dict.fromkeys(figures))


def _story(line: Line) -> str:
    """Return where the relation is broken and how it stands elsewhere."""
    broken, *others = [(stands, line.stacks_with(stands)) for stands in reversed(SEVERITY)]
    others.sort(key=lambda other: SEVERITY.index(other[0]))
    parts = [f"{', '.join(stacks)} {stands}" for stands, stacks in (broken, *others) if stacks]
    return "; ".join([*parts, *_meaningless(line)])


def _meaningless(line: Line) -> list[str]:
    stacks = [stack for stack in line.reasons if stack not in line.cases]
    return [f"{', '.join(stacks)} not tried"] if stacks else []


def _numbers(case: str) -> tuple[list[int], str]:
    """Return a key that is smallest for the smallest shape."""
    return [int(digits) for digits in _NUMBER.findall(case)], case


def _matrix(found: list[Line], stacks: list[str]) -> Markdown:
    """Return relations and models by stacks; models of which the same is said share a line."""
    rows = [
        [same[0].name, count(len(same)), _models(same, found), _dtypes(same), *_words(same, stacks)]
        for same in _groups(found, stacks)
    ]
    headers = ["relation", "rows", "models", "dtype", *stacks]
    title = (
        f"Every relation by model and stack ({plural(len(rows), 'line')}; "
        "where rows share a line, each figure is the largest among them)"
    )
    return folded(title, table(headers, rows, right=("rows",)), LONGEST_MATRIX)


def _words(same: list[Line], stacks: list[str]) -> list[Markdown]:
    return [word(same, stack) for stack in stacks]


def _groups(found: list[Line], stacks: list[str]) -> list[list[Line]]:
    """Return the lines of one relation that stand alike on every stack, the worst first.

    Where there are figures, those of different dtypes are kept apart: they are of other sizes.
    """
    groups: dict[Hashable, list[Line]] = {}
    for line in found:
        stands = tuple(line.standing_on(stack) or line.word(stack) for stack in stacks)
        dtype = "" if line.holds else line.dtype
        groups.setdefault((line.name, stands, dtype), []).append(line)
    return sorted(groups.values(), key=_place)


def _place(same: list[Line]) -> tuple[int, int, int]:
    line = same[0]
    gravity = max(
        (SEVERITY.index(stands) for s in line.cases if (stands := line.standing_on(s))), default=-1
    )
    return RELATIONS.index(line.name), -gravity, -len(same)


def _models(same: list[Line], found: list[Line]) -> Markdown:
    names = dict.fromkeys(line.row.model for line in same)
    n = len({line.row.model for line in found})
    if len(names) == n > MOST_MODELS:
        return fill("all {}", count(n))
    return codes(names, MOST_MODELS)


def _dtypes(same: list[Line]) -> str:
    return ", ".join(dict.fromkeys(line.dtype for line in same))


def _pointers(rows: tuple[Row, ...]) -> Markdown:
    """Return where the averages over prompts are, and what all of it took."""
    models = dict.fromkeys(row.model for row in rows if has_averages(row))
    links = join(link(model, f"{page_path(model)}#{slug(TITLE)}") for model in models)
    seconds = [signal.seconds for row in rows for signal in row.invariants.values()]
    return bullets(
        [
            *([fill("Averages over many prompts, layer by layer: {}.", links)] if models else []),
            prose(f"Trying the relations took a cell at most {duration(max(seconds))}."),
        ]
    )
