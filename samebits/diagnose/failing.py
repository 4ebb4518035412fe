"""Which signals of a cell make it fail, and which of them differ by rounding alone?

What rounds follows from the CPU, so nothing that decides whether a run fails may follow from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.outcome import differs
from samebits.records.ids import EXPLANATORY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samebits.records.comparison import CellResult, SignalComparison
    from samebits.records.ids import Signal
    from samebits.records.ladder import Ladder, LadderStep

STEPS: Mapping[Signal, str] = {"hidden_states": "layer", "logits": "logits", "decode": "decode"}
"""The first word of the ladder's steps on a signal."""


def differing_signals(result: CellResult) -> tuple[SignalComparison, ...]:
    """Return the signals that differ and can make a verdict."""
    return tuple(
        signal
        for signal in result.signals
        if signal.outcome == "differs" and signal.signal not in EXPLANATORY
    )


def failing_signals(result: CellResult) -> tuple[SignalComparison, ...]:
    """Return those of the differing signals that the ladder does not show to be rounding.

    Tokens follow from the decoded logits: where these fail, rounding can tip whether tokens part.
    """
    ladder = result.ladder
    failing = tuple(
        signal
        for signal in differing_signals(result)
        if ladder is None or not _is_rounding(signal, ladder)
    )
    if any(signal.signal == "decode" for signal in failing):
        return tuple(signal for signal in failing if signal.signal != "greedy")
    return failing


def _is_rounding(signal: SignalComparison, ladder: Ladder) -> bool:
    """Return True if the ladder saw every item of a signal that differs, and each is rounding."""
    seen = _seen(signal.signal, ladder)
    items = [item.name.partition(" · ")[0] for item in signal.items if differs(item)]
    return bool(items) and set(items) <= seen.keys() and all(seen.values())


def _seen(signal: Signal, ladder: Ladder) -> dict[str, bool]:
    """Return what the ladder saw of a signal, by prompt or tensor, and whether it is rounding."""
    if signal == "greedy":
        return {split.prompt: split.near_tie is True for split in ladder.splits}
    if signal not in STEPS:
        constants = [constant for constant in ladder.constants if constant.signal == signal]
        return {
            constant.name.partition(" · ")[0]: constant.kind == "cast" for constant in constants
        }
    steps = [step for step in ladder.steps if step.what.partition(" ")[0] == STEPS[signal]]
    failing = {step.prompt for step in steps if _fails(step)}
    return {step.prompt: step.prompt not in failing for step in steps}


def _fails(step: LadderStep) -> bool:
    """Return True unless a step is rounding, or its difference shows in float64 alone."""
    hidden = step.own == 0 and bool(step.float64)
    return step.kind in ("diverged", "undecided") and not hidden
