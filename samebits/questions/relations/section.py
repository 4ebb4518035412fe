"""Relations inside one release: the relations of all models together, for report.md."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable

from samebits.questions.made_models import made_models
from samebits.questions.relations import untried
from samebits.questions.relations.averages import has_averages
from samebits.questions.relations.judge import Standing
from samebits.questions.relations.lines import (
    RELATIONS,
    SEVERITY,
    Line,
    largest,
    lines,
    word,
)
from samebits.questions.relations.precision import too_coarse
from samebits.questions.relations.records import signals_of
from samebits.records.report import Report, Row
from samebits.text.blocks import bullets, codes, folded, heading, link, page, slug, table, titled
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, fill, join, prose
from samebits.text.names import page_path
from samebits.text.numbers import count, duration, plural, size

TITLE = "Relations inside one release"

TIMES = "\N{MULTIPLICATION SIGN}"

MAX_MODELS = 6
"""Limit for the models that a line names."""

MAX_BROKEN = 60
"""Limit for the broken relations with a line of their own; the matrix below counts them all."""

MAX_MATRIX_LINES = 120
"""Limit for the lines of a matrix that is not folded."""

STANDING_WORDS = {
    Standing.HOLDS: ("holds", "hold"),
    Standing.ROUNDING: (
        "differs by rounding, as it almost agrees in float64",
        "differ by rounding, as they almost agree in float64",
    ),
    Standing.UNDECIDED: (
        "differs, and float64 does not show why",
        "differ, and float64 does not show why",
    ),
}
"""Words for relations that are not broken: for one, for several."""

BY_DESIGN = " (by design)"

MADE = " (seen with a tiny model of the same config)"

_NUMBER = re.compile("[0-9]{1,9}")


def relations(report: Report) -> Markdown:
    """Return the section; empty if no row has relations."""
    if not any(signals_of(row) for row in report.rows):
        return EMPTY
    all_lines = lines(report.rows)
    return page(
        [
            heading(2, TITLE),
            _headline(all_lines),
            made_models(report.rows, signals_of),
            _broken_table(all_lines),
            _matrix([line for line in all_lines if line.cases], _stacks(report)),
            untried.left_out(all_lines),
            untried.not_promoted(report.rows),
            too_coarse(report.rows),
            _pointers(report.rows),
        ]
    )


def broken_line(report: Report) -> str:
    """Return the models with a broken relation, and their stacks; '' if there are none."""
    all_lines = lines(report.rows)
    by_design, when_made = _broken_by_design(all_lines), _broken_when_made(all_lines)
    model_texts = [
        f"{model} in {', '.join(stacks)} ({_checks(counts)}"
        f"{', by design' if model in by_design else ''}"
        f"{', seen with a tiny model of the same config' if model in when_made else ''})"
        for model, stacks, counts in _places(all_lines)
    ]
    kinds = "with and without cache, padded, batched"
    start = f"Inconsistent within one release ({kinds}):"
    return f"{start} {_first_models(model_texts)}" if model_texts else ""


def _headline(all_lines: list[Line]) -> Markdown:
    standings = [
        standing
        for line in all_lines
        for stack in line.cases
        if (standing := line.standing_on(stack))
    ]
    counts = Counter(standings)
    parts = [
        f"{count(counts[standing])} {words[counts[standing] != 1]}"
        for standing, words in STANDING_WORDS.items()
        if counts[standing]
    ]
    n_tried = plural(len(standings), "relation tried", "relations tried")
    broken_text = _broken_in_words(counts[Standing.BROKEN], all_lines)
    return fill("{}: of {}, {}.", _extent(all_lines), n_tried, join([*parts, broken_text], "; "))


def _broken_in_words(n: int, all_lines: list[Line]) -> Markdown:
    if not n:
        return Markdown("none is broken")
    broken = Markdown(f"**{count(n)} {'is' if n == 1 else 'are'} broken**")
    return fill("{}: {}", broken, _broken_places(all_lines))


def _extent(all_lines: list[Line]) -> str:
    lines_tried = [line for line in all_lines if line.cases]
    names = {line.name for line in lines_tried}
    models = {line.row.model for line in lines_tried}
    stacks = {stack for line in lines_tried for stack in line.cases}
    parts = (
        plural(len(names), "relation"),
        plural(len(models), "model"),
        plural(len(stacks), "environment"),
    )
    return f" {TIMES} ".join(parts)


def _broken_places(all_lines: list[Line]) -> str:
    by_design, when_made = _broken_by_design(all_lines), _broken_when_made(all_lines)
    return _first_models(
        f"{model} on {', '.join(stacks)}{BY_DESIGN if model in by_design else ''}"
        f"{MADE if model in when_made else ''}"
        for model, stacks, _ in _places(all_lines)
    )


def _broken(all_lines: list[Line]) -> list[Line]:
    return [line for line in all_lines if line.stacks_with(Standing.BROKEN)]


def _broken_by_design(all_lines: list[Line]) -> set[str]:
    """Return the models in which every broken relation is broken by design."""
    broken = _broken(all_lines)
    models = {line.row.model for line in broken}
    return models - {line.row.model for line in broken if not line.by_design()}


def _broken_when_made(all_lines: list[Line]) -> set[str]:
    """Return the models of which a broken relation was seen with a made model only."""
    return {
        line.row.model
        for line in all_lines
        if any(signals_of(line.row)[stack].asked_of for stack in line.stacks_with(Standing.BROKEN))
    }


def _first_models(parts: Iterable[str]) -> str:
    parts = list(parts)
    rest = len(parts) - MAX_MODELS
    more = [f"and {plural(rest, 'more model')}"] if rest > 0 else []
    return "; ".join([*parts[:MAX_MODELS], *more])


def _places(all_lines: list[Line]) -> list[tuple[str, list[str], list[int]]]:
    """Return model, stacks and number of the relations that each breaks, the most first."""
    models = grouped(_broken(all_lines), lambda line: line.row.model)
    places = [
        (model, stacks, [_n_broken(broken, stack) for stack in stacks])
        for model, broken in models.items()
        for stacks in [_broken_stacks(broken)]
    ]
    return sorted(places, key=lambda place: -max(place[2]))


def _n_broken(broken: list[Line], stack: str) -> int:
    return len({line.name for line in broken if stack in line.stacks_with(Standing.BROKEN)})


def _checks(counts: list[int]) -> str:
    """Return ``2 checks``, or ``7 and 5 checks`` of releases that break as many."""
    *others, last = map(count, counts)
    if len(set(counts)) == 1:
        return plural(counts[0], "check")
    return f"{', '.join(others)} and {last} checks"


def _broken_stacks(broken: list[Line]) -> list[str]:
    order = dict.fromkeys(stack for line in broken for stack in signals_of(line.row))
    broken_on = {stack for line in broken for stack in line.stacks_with(Standing.BROKEN)}
    return [stack for stack in order if stack in broken_on]


def _stacks(report: Report) -> list[str]:
    stacks = {stack for row in report.rows for stack in signals_of(row)}
    return [stack.id for stack in report.stacks if stack.id in stacks]


def _broken_table(all_lines: list[Line]) -> Markdown:
    """Return a line for each broken relation of a model; variants with equal stacks share it."""
    groups = grouped(_broken(all_lines), lambda line: (line.name, line.row.model, _standings(line)))
    if not groups:
        return EMPTY
    headers = [
        "relation",
        "model · variant",
        "environments",
        "in the dtype",
        "in float64",
        "smallest",
    ]
    rows = [_broken_row(group) for group in groups.values()]
    rest = len(rows) - MAX_BROKEN
    more = fill("… and {} more, counted in the next table.", count(rest)) if rest > 0 else EMPTY
    broken_rows = table(headers, rows[:MAX_BROKEN], right=headers[3:5])
    title = titled("Broken, with the largest differences")
    return page([title, broken_rows, more, bullets(_notes(all_lines))])


def _notes(all_lines: list[Line]) -> list[Markdown]:
    """Return what is broken by design: it is no defect of a cache, whatever the figures are."""
    notes: dict[str, dict[str, dict[str, None]]] = {}
    for line in all_lines:
        for stack in line.stacks_with(Standing.BROKEN):
            worst = line.worst(stack)
            if worst and worst.note:
                relations = notes.setdefault(worst.note, {}).setdefault(line.row.model, {})
                relations[line.name] = None
    return [
        fill("{}, {}: {}.", model, "; ".join(relations), note)
        for note, models in notes.items()
        for model, relations in models.items()
    ]


def _broken_row(group: list[Line]) -> list[str]:
    row = group[0].row
    target = f"{page_path(row.model)}#{slug(TITLE)}"
    variants = ", ".join(line.row.variant for line in group)
    models = link(f"{row.model} · {variants}", target)
    cases = [
        case
        for line in group
        for stack in line.stacks_with(Standing.BROKEN)
        if (case := line.worst(stack))
    ]
    return [
        group[0].name,
        fill("{} {}", models, MADE.strip()) if _broken_when_made(group) else models,
        _standings(group[0]),
        _largest_figures(group, promoted=False),
        _largest_figures(group, promoted=True),
        min((case.case for case in cases), key=_shape_key),
    ]


def _largest_figures(group: list[Line], *, promoted: bool) -> str:
    """Return one figure per variant; equal figures are given once."""
    figures = []
    for line in group:
        cases = filter(None, map(line.worst, line.stacks_with(Standing.BROKEN)))
        distances = (case.promoted if promoted else case.distance for case in cases)
        figures.append(size(largest(distance.max_abs for distance in distances if distance)))
    return ", ".join(dict.fromkeys(figures))


def _standings(line: Line) -> str:
    """Return where the relation is broken, and its standing on the other stacks."""
    broken, *others = [(standing, line.stacks_with(standing)) for standing in reversed(SEVERITY)]
    others.sort(key=lambda entry: SEVERITY.index(entry[0]))
    parts = [f"{', '.join(stacks)} {standing}" for standing, stacks in (broken, *others) if stacks]
    return "; ".join([*parts, *_untried_stacks(line)])


def _untried_stacks(line: Line) -> list[str]:
    stacks = [stack for stack in line.reasons if stack not in line.cases]
    return [f"{', '.join(stacks)} not tried"] if stacks else []


def _shape_key(case: str) -> tuple[list[int], str]:
    """Return a key that is smallest for the smallest shape."""
    return [int(digits) for digits in _NUMBER.findall(case)], case


def _matrix(all_lines: list[Line], stacks: list[str]) -> Markdown:
    """Return relations and models by stacks; models with equal lines share a line."""
    rows = [
        [
            group[0].name,
            count(len(group)),
            _models(group, all_lines),
            ", ".join(dict.fromkeys(line.dtype for line in group)),
            *(word(group, stack) for stack in stacks),
        ]
        for group in _groups(all_lines, stacks)
    ]
    headers = ["relation", "rows", "models", "dtype", *stacks]
    title = (
        f"Every relation by model and environment ({plural(len(rows), 'line')}; "
        "for several rows in one line, each figure is their largest)"
    )
    return folded(title, table(headers, rows, right=("rows",)), MAX_MATRIX_LINES)


def _groups(all_lines: list[Line], stacks: list[str]) -> list[list[Line]]:
    """Return the lines of one relation with equal standings on all stacks, the worst first.

    Lines with figures are kept apart by dtype, because the dtypes have figures of different sizes.
    """

    def key(line: Line) -> Hashable:
        standings = tuple(line.standing_on(stack) or line.word(stack) for stack in stacks)
        return line.name, standings, "" if line.holds else line.dtype

    return sorted(grouped(all_lines, key).values(), key=_sort_key)


def _sort_key(group: list[Line]) -> tuple[int, int, int]:
    line = group[0]
    severity = max(
        (SEVERITY.index(standing) for stack in line.cases if (standing := line.standing_on(stack))),
        default=-1,
    )
    return RELATIONS.index(line.name), -severity, -len(group)


def _models(group: list[Line], all_lines: list[Line]) -> Markdown:
    names = dict.fromkeys(line.row.model for line in group)
    n = len({line.row.model for line in all_lines})
    if len(names) == n > MAX_MODELS:
        return fill("all {}", count(n))
    return codes(names, MAX_MODELS)


def _pointers(rows: tuple[Row, ...]) -> Markdown:
    """Return where the averages over prompts are, and how long the relations took."""
    models = dict.fromkeys(row.model for row in rows if has_averages(row))
    links = join(link(model, f"{page_path(model)}#{slug(TITLE)}") for model in models)
    seconds = [signal.seconds for row in rows for signal in signals_of(row).values()]
    return bullets(
        [
            *([fill("Averages over many prompts, layer by layer: {}.", links)] if models else []),
            prose(f"The relations of a cell took at most {duration(max(seconds))}."),
        ]
    )
