"""Check of dtypes: the mantissa bits that a dtype promises, and those its values use."""

from __future__ import annotations

from collections.abc import Iterable

from samebits.questions.relations.records import Precision, signals_of
from samebits.records.report import Row
from samebits.text.blocks import below, bullets, heading, table, titled
from samebits.text.lists import grouped
from samebits.text.markdown import Markdown, fill
from samebits.text.numbers import count

COARSE_NOTES = {
    7: "every value fits bfloat16",
    10: "every mantissa fits float16",
    23: "every mantissa fits float32",
}
"""Explicit mantissa bits of a dtype -> note on values that need no more bits."""

MAX_COARSE = 12
"""Limit for the lines of report.md about values that would fit a coarser dtype."""


def coarse_note(precision: Precision) -> str:
    """Return which coarser dtype would hold all values; '' if there is none."""
    fits = (bits for bits in COARSE_NOTES if precision.used_bits <= bits < precision.mantissa_bits)
    bits = next(fits, None)
    return "" if bits is None else f"{precision.dtype}, but {COARSE_NOTES[bits]}"


def is_suspicious(precision: Precision) -> bool:
    """Return True if all values of a tensor kind would fit a coarser dtype, as if computed in it.

    Parameters are as coarse as the checkpoint that they come from, which is no defect.
    """
    return precision.what != "parameters" and bool(coarse_note(precision))


def has_suspicious(row: Row) -> bool:
    """Return True if values that a stack computed for a row would all fit a coarser dtype."""
    return any(is_suspicious(p) for signal in signals_of(row).values() for p in signal.precision)


def has_unknown_precision(row: Row) -> bool:
    """Return True if the precision of activations and logits is unknown on a stack."""
    return any(signal.no_precision for signal in signals_of(row).values())


def too_coarse(rows: Iterable[Row]) -> Markdown:
    """Return the rows whose values would fit a coarser dtype, for report.md.

    Deliberate rounding has the same effect.
    """
    coarse_lines = [
        fill(
            "{}/{} on {}: {} are {}",
            row.model,
            row.variant,
            ", ".join(stacks),
            p.what,
            coarse_note(p),
        )
        for row in rows
        for stacks, p in _precisions(row)
        if is_suspicious(p)
    ]
    rest = len(coarse_lines) - MAX_COARSE
    more = [fill("… and {} more", count(rest))] if rest > 0 else []
    title = titled("Values that would fit a coarser dtype without loss")
    return below(title, bullets([*coarse_lines[:MAX_COARSE], *more]))


def precision_table(rows: Iterable[Row]) -> Markdown:
    """Return what every dtype promises and what its values use, for the page of a model."""
    rows = list(rows)
    table_rows = [
        [
            row.variant,
            ", ".join(stacks),
            p.what,
            p.dtype,
            str(p.mantissa_bits),
            str(p.used_bits),
            fill("**{}**", coarse_note(p)) if is_suspicious(p) else coarse_note(p),
        ]
        for row in rows
        for stacks, p in _precisions(row)
    ]
    unknown_lines = _unknown(rows)
    headers = ["variant", "environments", "what", "dtype", "mantissa bits", "used", "note"]
    title = heading(3, "Is the dtype what it claims to be")
    precision_rows = table(headers, table_rows, right=headers[4:6])
    return below(title, precision_rows, bullets(unknown_lines))


def _unknown(rows: Iterable[Row]) -> list[Markdown]:
    """Return where no forward could be observed, and why."""
    return [
        fill("{} on {}: not known for activations and logits: {}", row.variant, stack, reason)
        for row in rows
        for stack, signal in signals_of(row).items()
        if (reason := signal.no_precision)
    ]


def _precisions(row: Row) -> list[tuple[list[str], Precision]]:
    """Return every precision of a row with the stacks where it is exactly this."""
    pairs = ((stack, p) for stack, signal in signals_of(row).items() for p in signal.precision)
    groups = grouped(pairs, lambda pair: pair[1])
    return [([stack for stack, _ in of], precision) for precision, of in groups.items()]
