"""Release by release: in which releases a model computes the same bits, and where they move."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.reports.stories import row_name
from samebits.text.blocks import codes, heading, page, table, titled
from samebits.text.markdown import EMPTY, Markdown, code, fill, join
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.records.band import Band
    from samebits.records.report import Report, Row

_COMPARE = "https://github.com/huggingface/transformers/compare"
_RANGE = "\N{EN DASH}"


def releases(report: Report) -> Markdown:
    """Return the bands of every row, and the steps between them; nothing without ``--releases``."""
    added = [stack for stack in report.stacks if stack.between]
    if not added:
        return EMPTY
    alike: dict[tuple[Band, ...], list[Row]] = {}
    for row in report.rows:
        alike.setdefault(row.bands, []).append(row)
    lines = [[codes(map(row_name, rows)), _bands(bands)] for bands, rows in alike.items()]
    about = fill(
        "{} between those of {}: the newest patch of every minor one. {}",
        plural(len(added), "release"),
        report.matrix,
        _LETTERS,
    )
    shown = table(["rows", "bits"], lines)
    return page([heading(2, "Release by release"), about, _unbuilt(report), shown, _moves(report)])


_LETTERS = Markdown(
    "A letter is one set of bits, **A** the reference's; the same letter again is the same bits again."
)


def _unbuilt(report: Report) -> Markdown:
    broken = [stack.id for stack in report.stacks if stack.failure]
    if not broken:
        return EMPTY
    return fill("Not built, so that nothing is known of them: {}.", codes(broken))


def _bands(bands: Iterable[Band]) -> Markdown:
    return join((_band(band) for band in bands), " · ")


def _band(band: Band) -> Markdown:
    first, last = band.stacks[0], band.stacks[-1]
    where = first if len(band.stacks) == 1 else f"{first}{_RANGE}{last}"
    return fill("**{}** {}", band.does, where)


def _moves(report: Report) -> Markdown:
    """Return every step at which a row begins to be another, oldest first."""
    found: dict[tuple[str, str, str, tuple[str, ...]], list[Row]] = {}
    for row in report.rows:
        for before, band in _steps(row):
            does = f"{before.does} → {band.does}"
            step = before.stacks[-1], band.stacks[0], does, band.moved
            found.setdefault(step, []).append(row)
    if not found:
        return EMPTY
    order = {stack.id: place for place, stack in enumerate(report.stacks)}
    steps = sorted(found, key=lambda step: order[step[1]])
    lines = [
        [_step(report, one, other), does, codes(map(row_name, found[step])), ", ".join(moved)]
        for step in steps
        for one, other, does, moved in [step]
    ]
    shown = table(["step", "bits", "rows", "what moves"], lines)
    ask = _ask(found[steps[0]][0], steps[0]) if len(report.stacks) > 2 else EMPTY
    return page([titled("Where they move"), shown, ask])


def _steps(row: Row) -> Iterator[tuple[Band, Band]]:
    yield from zip(row.bands, row.bands[1:], strict=False)


def _step(report: Report, one: str, other: str) -> Markdown:
    """Return the two stacks, with a link to what changed in transformers between them."""
    versions = {stack.id: stack.transformers for stack in report.stacks}
    step = fill("{}\u00a0→\u00a0{}", one, other)
    if not versions.get(one) or not versions.get(other):
        return step
    return Markdown(f"[{step}]({_COMPARE}/v{versions[one]}...v{versions[other]})")


def _ask(row: Row, step: tuple[str, str, str, tuple[str, ...]]) -> Markdown:
    command = (
        f"nox -s matrix -- --releases --models {row.model} --stacks {step[0]},{step[1]} --causes"
    )
    return fill(
        "{} compares the two releases of a step with each other: whether it is rounding, the first "
        "operation that parts, and both source lines.",
        code(command),
    )
