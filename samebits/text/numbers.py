"""Formatting of numbers in the report; rounding never makes a claim, such as 0 or 100 %."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence

_LONG_ULP = re.compile(r"\b(\d{1,3}(?:,\d{3}){2,}) ULP")


def number(value: float, digits: int = 2) -> str:
    """Return a distance with that many digits, such as ``7.9e-07``; ``0`` means exactly zero."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}".replace("-0", "0")
    return f"{value:.{digits - 1}e}"


def exact(value: float) -> str:
    """Return a distance with seven digits, such as ``1.953125e-03``, which shows powers of two."""
    return number(value, digits=7)


def pair(left: float, right: float) -> tuple[str, str]:
    """Return two values with enough digits to tell them apart."""
    short = f"{left:.9g}", f"{right:.9g}"
    return short if short[0] != short[1] else (repr(left), repr(right))


def count(n: int) -> str:
    """Return ``1,234``."""
    return f"{n:,}"


def ulp(n: int) -> str:
    """Return a distance in ULP; from a million on only its magnitude.

    The distance of two values of different sign is the count of numbers between them.
    """
    return count(n) if n < 1_000_000 else f"{n:.1e}"


def rounded_ulp(text: str) -> str:
    """Return a sentence with the distances in it written as :func:`ulp` writes them."""
    return _LONG_ULP.sub(lambda match: f"{ulp(int(match[1].replace(',', '')))} ULP", text)


def share(n: int, total: int) -> str:
    """Return a percentage that is 0 % or 100 % only for exactly none or all."""
    if total == 0:
        return "none compared"
    if n in (0, total):
        return "100 %" if n else "0 %"
    percent = 100 * n / total
    if percent < 0.1:
        return "<0.1 %"
    return ">99.9 %" if percent > 99.9 else f"{percent:.1f} %"


def part(n: int, total: int) -> str:
    """Return ``12 of 4,096 (0.3 %)``."""
    return f"{count(n)} of {count(total)} ({share(n, total)})"


def plural(n: int, noun: str, nouns: str = "") -> str:
    """Return ``1 cell`` or ``2 cells``."""
    return f"{count(n)} {noun if n == 1 else nouns or noun + 's'}"


def first_of(lines: Sequence[str], most: int, noun: str) -> tuple[str, ...]:
    """Return the first lines, and one that says how many more there are, such as ``and 3 more keys``."""
    more = len(lines) - most
    return (*lines[:most], *([f"and {plural(more, f'more {noun}')}"] if more > 0 else ()))


def duration(seconds: float) -> str:
    """Return ``0.4 s``, ``12 s``, ``3 min 5 s`` or ``2 h 10 min``."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def size(value: float, digits: int = 2) -> str:
    """Return a distance in words; the probes write the largest number if it is not finite."""
    return "not finite" if value >= sys.float_info.max else number(value, digits)
