"""Is a dtype what it claims to be: mantissa bits promised and used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.text.blocks import bullets, heading, page, table, titled
from samebits.text.markdown import EMPTY, fill
from samebits.text.numbers import count

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.records.relations import Precision
    from samebits.records.report import Row
    from samebits.text.markdown import Markdown

COARSER = {
    7: "every value fits bfloat16",
    10: "every mantissa fits float16",
    23: "every mantissa fits float32",
}
"""Explicit mantissa bits of a dtype -> what is said of values that need no more."""

MOST_COARSE = 12
"""Lines of report.md about a dtype that is not what it claims to be."""


def coarse(precision: Precision) -> str:
    """Return which coarser dtype would hold all values; '' if none would."""
    fits = (bits for bits in COARSER if precision.used_bits <= bits < precision.mantissa_bits)
    bits = next(fits, None)
    return "" if bits is None else f"{precision.dtype}, but {COARSER[bits]}"


def is_suspicious(precision: Precision) -> bool:
    """Return True if all values of something would fit a coarser dtype, as if computed in it.

    Parameters are as coarse as the checkpoint that they come from, which is no fault.
    """
    return precision.what != "parameters" and bool(coarse(precision))


def has_suspicious(row: Row) -> bool:
    """Return True if what a stack computed of a row would all fit a coarser dtype."""
    return any(is_suspicious(p) for signal in row.invariants.values() for p in signal.precision)


def is_unknown(row: Row) -> bool:
    """Return True if a stack's precision of activations and logits is not known."""
    return any(signal.no_precision for signal in row.invariants.values())


def too_coarse(rows: Iterable[Row]) -> Markdown:
    """Return the rows whose values would fit a coarser dtype, for report.md: rounding on purpose does it, too."""
    found = [
        fill("{}/{} on {}: {} are {}", row.model, row.variant, ", ".join(stacks), p.what, coarse(p))
        for row in rows
        for stacks, p in _precisions(row)
        if is_suspicious(p)
    ]
    if not found:
        return EMPTY
    rest = len(found) - MOST_COARSE
    more = [fill("… and {} more", count(rest))] if rest > 0 else []
    title = titled("Values that a coarser dtype would hold as well")
    return page([title, bullets([*found[:MOST_COARSE], *more])])


def precision_table(rows: Iterable[Row]) -> Markdown:
    """Return what every dtype promises and what its values use, for the page of a model."""
    rows = list(rows)
    found = [
        [
            row.variant,
            ", ".join(stacks),
            p.what,
            p.dtype,
            str(p.mantissa_bits),
            str(p.used_bits),
            fill("**{}**", coarse(p)) if is_suspicious(p) else coarse(p),
        ]
        for row in rows
        for stacks, p in _precisions(row)
    ]
    unknown = _unknown(rows)
    if not found and not unknown:
        return EMPTY
    headers = ["variant", "stacks", "what", "dtype", "mantissa bits", "used", "note"]
    title = heading(3, "Is the dtype what it claims to be")
    drawn = table(headers, found, right=headers[4:6]) if found else EMPTY
    return page([title, drawn, bullets(unknown)])


def _unknown(rows: Iterable[Row]) -> list[Markdown]:
    """Return where no forward could be looked at, and why."""
    return [
        fill("{} on {}: not known of activations and logits: {}", row.variant, stack, why)
        for row in rows
        for stack, signal in row.invariants.items()
        if (why := signal.no_precision)
    ]


def _precisions(row: Row) -> list[tuple[list[str], Precision]]:
    """Return every precision of a row with the stacks where it is just so."""
    groups: dict[Precision, list[str]] = {}
    for stack, signal in row.invariants.items():
        for precision in signal.precision:
            groups.setdefault(precision, []).append(stack)
    return [(stacks, precision) for precision, stacks in groups.items()]
