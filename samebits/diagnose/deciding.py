"""The difference that decides the verdict on a cell.

It is a fact of the record. The first difference in the order of data flow is another one: it may be
rounding, while an output that is gone, or a decode that another function computes, decides.
"""

from __future__ import annotations

from samebits.compare.describe import figure, short
from samebits.compare.outcome import differs
from samebits.diagnose.failing import beyond_rounding, decides
from samebits.diagnose.first import first_item, statement
from samebits.records.comparison import (
    CellResult,
    Difference,
    ItemComparison,
    SignalComparison,
)
from samebits.records.ladder import Decider, Ladder
from samebits.records.trace import Cause


def with_deciding(result: CellResult) -> CellResult:
    """Return a judged cell with the figure of what decides, and with that if it is not the first one."""
    if result.ladder is None or result.first is None or result.ladder.kind == "rounding":
        return result
    update: dict[str, object] = {"figure": _figure(result) or result.figure}
    deciding = _deciding(result, result.ladder)
    if deciding is not None:
        is_headline = result.headline == result.first.what
        headline = deciding.what if is_headline else result.headline
        update |= {"deciding": deciding, "headline": headline}
    return result.model_copy(update=update)


def _figure(result: CellResult) -> str:
    """Return the figure of what fails; tokens that only rounding chose are none of it."""
    failing = beyond_rounding(result)
    if result.ladder is not None and result.ladder.rule == "inputs":
        # other prompts may round beside it, which was not asked
        failing = tuple(signal for signal in failing if signal.signal == "inputs") or failing
    chosen = any(signal.signal in ("decode", "greedy") for signal in failing)
    return figure(failing, result.splits if chosen else ())


def with_place(result: CellResult, cause: Cause) -> Cause:
    """Return a cause that says whether it is one of what decides."""
    beyond = cause.beyond and with_place(result, cause.beyond)
    update = {"decides": decides(result, cause.prompt, cause.what), "beyond": beyond}
    return cause.model_copy(update=update)


def _deciding(result: CellResult, ladder: Ladder) -> Difference | None:
    """Return what the ladder's rule rests on, the first in the order of data flow; None if `first`."""
    differing = [signal for signal in result.signals if signal.outcome == "differs"]
    items = {
        signal.signal: item
        for signal in differing
        for decider in ladder.rests_on
        if decider.signal == signal.signal and (item := _item(signal, decider)) is not None
    }
    for signal in differing:
        item = items.get(signal.signal)
        if item is not None:
            is_first = signal is differing[0] and item is first_item(signal)
            return None if is_first else statement(signal, item, _in_float64(ladder, signal, item))
    return None


def _item(signal: SignalComparison, decider: Decider) -> ItemComparison | None:
    """Return the item that a rule rests on; a step of the ladder names the prompt of its row."""
    items = [item for item in signal.items if differs(item)]
    exact = next((item for item in items if item.subject == decider.subject), None)
    row = decider.subject.prompt_row
    return exact or next((item for item in items if row and item.subject.prompt_row == row), None)


def _in_float64(ladder: Ladder, signal: SignalComparison, item: ItemComparison) -> str:
    """Return how large the difference is in float64; '' where it was not measured or decides not."""
    if ladder.rule != "slope":
        return ""
    sizes = [
        step.float64
        for step in ladder.steps
        if step.signal == signal.signal and step.subject == item.subject and step.float64
    ]
    return f"in float64 {short(sizes[0])}" if sizes else ""
