"""The size of a difference, in words and as the one number of the summary table."""

from __future__ import annotations

from collections.abc import Iterable

from samebits.compare.outcome import differs
from samebits.records.comparison import ItemComparison, Metrics, SignalComparison, TokenSplit


def amount(item: ItemComparison) -> str:
    """Return in words how far apart the two sides of an item are."""
    if item.metrics is None:
        return item.note or "the bytes differ"
    return "; ".join(filter(None, [amount_of(item.metrics), item.note]))


def figure(signals: Iterable[SignalComparison], splits: tuple[TokenSplit, ...]) -> str:
    """Return the one number of the summary table, '' if nothing differs.

    The logits come first, because they are what a user gets; then the tokens; then the first signal
    that differs.
    """
    differing = {signal.signal: signal for signal in signals if signal.outcome == "differs"}
    if "logits" in differing:
        return _largest_distance(differing["logits"])
    if "outputs" in differing and any(item.metrics for item in differing["outputs"].items):
        return _largest_distance(differing["outputs"])
    if splits:
        return f"tokens step {min(split.step for split in splits)}"
    if "decode" in differing:
        return _largest_distance(differing["decode"])
    if "hidden_states" in differing:
        return _largest_distance(differing["hidden_states"])
    first = next(iter(differing.values()), None)
    return f"{first.signal} {first.n_differ:,} of {first.n_items:,}" if first else ""


def short(number: float) -> str:
    """Return two significant digits, such as ``7.9e-07``; 0 only if the number is exactly 0."""
    return f"{number:.2g}"


def some(names: Iterable[str], most: int = 5) -> str:
    """Return the first few names, and how many more there are."""
    names = list(names)
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest:,} more" if rest > 0 else "")


def amount_of(metrics: Metrics) -> str:
    """Return a distance in words."""
    if not metrics.n_differ:
        return "all values are equal"
    phrases = [f"{metrics.n_differ:,} of {metrics.n:,} elements", *_non_finite_counts(metrics)]
    if metrics.max_abs:
        ulp = "" if metrics.max_ulp is None else f" ({metrics.max_ulp:,} ULP)"
        phrases.append(f"max abs {short(metrics.max_abs)}{ulp}")
    elif len(phrases) == 1:
        phrases.append("only in signs of zero or in bits of NaN")
    return ", ".join(phrases)


def _non_finite_counts(metrics: Metrics) -> list[str]:
    kinds = (("NaN", metrics.n_nan), ("infinite", metrics.n_inf))
    return [f"{kind}: {a:,} → {b:,}" for kind, (a, b) in kinds if a != b]


def _largest_distance(signal: SignalComparison) -> str:
    """Return the largest distance of a signal; NaN, inf or a count where these say more."""
    items = [item for item in signal.items if differs(item)]
    measured = [item.metrics for item in items if item.metrics is not None]
    if any(m.n_nan[0] != m.n_nan[1] for m in measured):
        return f"{signal.signal} NaN"
    if any(m.n_inf[0] != m.n_inf[1] for m in measured):
        return f"{signal.signal} inf"
    max_abs = max((m.max_abs for m in measured), default=0.0)
    if max_abs:
        return f"{signal.signal} {short(max_abs)}"
    return f"{signal.signal} {signal.n_differ:,} of {signal.n_items:,}"
