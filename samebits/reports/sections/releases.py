"""Release by release: the releases in which a model computes the same bits, and the changes."""

from __future__ import annotations

from itertools import pairwise

from samebits.records.band import Band
from samebits.records.report import Report, Row
from samebits.reports.commands import compare_two
from samebits.reports.stories import row_name
from samebits.text.blocks import codes, heading, page, table, titled
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, code, fill, join
from samebits.text.numbers import plural

_COMPARE = "https://github.com/huggingface/transformers/compare"
_RANGE = "\N{EN DASH}"


def releases(report: Report) -> Markdown:
    """Return the bands of every row, and the steps between them; empty without ``--releases``."""
    releases_between = [stack for stack in report.stacks if stack.between]
    if not releases_between:
        return EMPTY
    rows_by_bands = grouped(report.rows, lambda row: row.bands)
    lines = [
        [codes(map(row_name, rows)), join(map(_band, bands), " · ")]
        for bands, rows in rows_by_bands.items()
    ]
    intro = fill(
        "{} between those of {}: the newest patch of every minor one. {}",
        plural(len(releases_between), "release"),
        report.matrix,
        _LETTERS,
    )
    band_table = table(["rows", "bits"], lines)
    return page(
        [heading(2, "Release by release"), intro, _unbuilt(report), band_table, _moves(report)]
    )


_LETTERS = Markdown(
    "Releases with the same letter give identical results; **A** is the reference's."
)


def _unbuilt(report: Report) -> Markdown:
    broken = [stack.id for stack in report.stacks if stack.failure]
    if not broken:
        return EMPTY
    return fill("Could not be built, so they are not covered: {}.", codes(broken))


def _band(band: Band) -> Markdown:
    first, last = band.stacks[0], band.stacks[-1]
    span = first if len(band.stacks) == 1 else f"{first}{_RANGE}{last}"
    return fill("**{}** {}", band.does, span)


def _moves(report: Report) -> Markdown:
    """Return every step at which the bits of a row change, the oldest first."""
    rows_by_step: dict[tuple[str, str, str, tuple[str, ...]], list[Row]] = {}
    for row in report.rows:
        for before, band in pairwise(row.bands):
            letters = f"{before.does} → {band.does}"
            step = before.stacks[-1], band.stacks[0], letters, band.moved
            rows_by_step.setdefault(step, []).append(row)
    if not rows_by_step:
        return EMPTY
    order = {stack.id: place for place, stack in enumerate(report.stacks)}
    steps = sorted(rows_by_step, key=lambda step: order[step[1]])
    lines = [
        [
            _step(report, earlier, later),
            letters,
            codes(map(row_name, rows_by_step[step])),
            ", ".join(moved),
        ]
        for step in steps
        for earlier, later, letters, moved in [step]
    ]
    step_table = table(["step", "bits", "rows", "signals that change"], lines)
    hint = EMPTY
    if len(report.stacks) > 2:
        hint = _next_command(report, rows_by_step[steps[0]][0], steps[0])
    return page([titled("Where the bits change"), step_table, hint])


def _step(report: Report, earlier: str, later: str) -> Markdown:
    """Return the two stacks, with a link to what changed in transformers between them."""
    step = fill("{}\u00a0→\u00a0{}", earlier, later)
    address = upstream(report, earlier, later)
    return Markdown(f"[{step}]({address})") if address else step


def upstream(report: Report, earlier: str, later: str) -> str:
    """Return the address of what changed in transformers between two stacks; '' if a release is not known."""
    versions = {stack.id: stack.transformers or "" for stack in report.stacks}
    ends = [_upstream_name(versions.get(stack, "")) for stack in (earlier, later)]
    return f"{_COMPARE}/{ends[0]}...{ends[1]}" if all(ends) else ""


def _upstream_name(version: str) -> str:
    """Return the tag or the commit of a version; '' for files that upstream does not have."""
    release, _, origin = version.partition("+")
    if not origin:
        return f"v{release}" if release else ""
    kind, _, commit = origin.partition(".")
    return commit if kind == "git" and "." not in commit else ""


def _next_command(
    report: Report, row: Row, step: tuple[str, str, str, tuple[str, ...]]
) -> Markdown:
    options = "--releases --causes"
    command = compare_two(report, step[0], step[1], model=row.model, more=options)
    return fill(
        "{} compares the two releases of a step directly. It shows whether the change is rounding, "
        "the first operation that differs, and both source lines.",
        code(command),
    )
