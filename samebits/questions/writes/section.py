"""Files that each release writes: what differs, once for all models that share it."""

from __future__ import annotations

from collections.abc import Collection

from samebits.compare.facts import ABSENT
from samebits.questions.writes.records import WRITES, Difference, WritesOfRow
from samebits.records.report import Report, Row
from samebits.text.blocks import codes, folded, heading, page, table
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, clip, code, fill, join, prose
from samebits.text.numbers import plural

TITLE = "Files that each release writes"

_MAX_MODELS, _MAX_LINES, _MAX_VALUE = 6, 60, 60

Place = tuple[str, str]
"""File and key."""
Line = tuple[Place, tuple[str, ...]]
"""A place, and what happens to it in each stack."""


def of_run(report: Report) -> Markdown:
    """Return what differs, one line for all models in which the same happens; may be empty."""
    models = WRITES.by_model(report.rows)
    if not models:
        return EMPTY
    with_tokenizer = {row.model for row in report.rows if row.tokenizers} & models.keys()
    stacks = [s.id for s in report.stacks if any(s.id in row.stacks for row in models.values())]
    lines = grouped(
        ((model, line) for model, row in models.items() for line in _lines(row, stacks)),
        lambda pair: pair[1],
    )
    shared = [
        [*_place(place), *map(prose, kinds), _names([m for m, _ in group], models, with_tokenizer)]
        for (place, kinds), group in sorted(lines.items(), key=lambda line: -len(line[1]))
    ]
    intro = fill(
        "{} saved by each environment: names, shapes and dtypes of the tensors, and the files beside them, by "
        "bytes and by keys; the release that they name is left out. Compared with {}. What all models "
        "share is how the release writes. It does not affect the verdict.",
        plural(len(models), "model"),
        join(codes(dict.fromkeys(_references(row))) for row in [*models.values()][:1]),
    )
    if not shared:
        return page([heading(2, TITLE), intro, prose("All releases write the same.")])
    title = f"Differences ({plural(len(shared), 'line')})"
    headers = ["file", "key", *stacks, "models"]
    return page([heading(2, TITLE), intro, folded(title, table(headers, shared), _MAX_LINES)])


def of_model(rows: list[Row], _report: Report) -> Markdown:
    """Return what differs for one model, with values."""
    row = next(iter(WRITES.by_model(rows).values()), None)
    lines = [
        [*_place((each.file, each.key)), *map(_value, (each.reference, each.candidate)), stack]
        for stack, writes in (row.stacks.items() if row else ())
        for each in writes.differences
    ]
    if row is None or not lines:
        return EMPTY
    headers = [
        "file",
        "key",
        join(dict.fromkeys(_references(row))),
        "this environment",
        "environment",
    ]
    title = f"Differences ({plural(len(lines), 'line')})"
    return page([heading(2, TITLE), folded(title, table(headers, lines), _MAX_LINES)])


def _references(row: WritesOfRow) -> list[str]:
    return [writes.reference for writes in row.stacks.values()]


def _lines(row: WritesOfRow, stacks: list[str]) -> list[Line]:
    kinds: dict[Place, dict[str, str]] = {}
    for stack, writes in row.stacks.items():
        for each in writes.differences:
            kinds.setdefault((each.file, each.key), {})[stack] = _kind(each)
    return [(place, tuple(by.get(stack, "") for stack in stacks)) for place, by in kinds.items()]


def _kind(difference: Difference) -> str:
    if difference.reference == ABSENT:
        return "appears"
    if difference.candidate == ABSENT:
        return "disappears"
    return "another value" if difference.key else "other bytes"


def _place(place: Place) -> list[Markdown]:
    return [code(text) if text else EMPTY for text in place]


def _value(text: str) -> Markdown:
    return prose(text) if text == ABSENT else code(clip(text, _MAX_VALUE))


def _names(names: list[str], models: Collection[str], with_tokenizer: set[str]) -> Markdown:
    if len(names) == len(models) > 1:
        return prose(f"all {len(models)}")
    if len(names) > 1 and {*names} == with_tokenizer:
        return prose(f"all {len(names)} with a tokenizer")
    return codes(names, _MAX_MODELS)
