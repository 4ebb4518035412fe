"""The signals and items that make a cell fail, and those that differ only by rounding.

Rounding depends on the CPU, so the decision whether a run fails must not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from samebits.compare.outcome import differs
from samebits.compare.phases import STORED
from samebits.records.comparison import CellResult, ItemComparison, SignalComparison
from samebits.records.ids import Signal
from samebits.records.ladder import ON_LADDER, Ladder, LadderStep
from samebits.records.subject import Subject


def differing_signals(result: CellResult) -> tuple[SignalComparison, ...]:
    """Return the signals that differ."""
    return tuple(signal for signal in result.signals if signal.outcome == "differs")


def failing_signals(result: CellResult) -> tuple[SignalComparison, ...]:
    """Return the differing signals that the ladder does not show to be rounding.

    Tokens follow from the decoded logits: if these fail, rounding can decide whether the tokens
    differ.
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


def what_fails(result: CellResult) -> tuple[SignalComparison, ...]:
    """Return the failing signals, each with only those of its items that do not just round."""
    return tuple(_without_rounding(signal, result.ladder) for signal in failing_signals(result))


def beyond_rounding(result: CellResult) -> tuple[SignalComparison, ...]:
    """Return what fails, without what may be rounding beside a signal that certainly is not."""
    failing, ladder = what_fails(result), result.ladder
    steps = ladder.steps if ladder is not None else ()
    certain = {step.signal for step in steps if step.kind == "diverged" and _fails(step)}
    if not certain & {signal.signal for signal in failing}:
        return failing
    open_ones = {step.signal for step in steps if step.kind == "undecided"} - certain
    return tuple(signal for signal in failing if signal.signal not in open_ones)


def decides(result: CellResult, prompt: str, what: Literal["forward", "decode", "load"]) -> bool:
    """Return True if a forward or decode of a prompt, or a load, computes what fails.

    If it does not, what is found in it explains another difference, which only rounds. Without a
    ladder nothing is known to round.
    """
    failing = what_fails(result) if result.ladder is not None else ()
    if not failing:
        return True
    items = ((signal.signal, item) for signal in failing for item in filter(differs, signal.items))
    return any(_is_computed(signal, item, prompt, what) for signal, item in items)


def _is_computed(
    signal: Signal, item: ItemComparison, prompt: str, what: Literal["forward", "decode", "load"]
) -> bool:
    """Return True if an item is computed in a forward or decode, or before it.

    Traces and grafts end at layers and logits, so they say nothing of an output beside these. A
    stored tensor does not explain that an output is gone.
    """
    if signal in STORED:
        return True
    if what == "load":
        return bool(item.reference and item.candidate) or signal not in ON_LADDER
    if signal not in _TRACED or item.subject.prompt != prompt:
        return False
    return what == "decode" or signal not in _DECODED


_DECODED: frozenset[Signal] = frozenset({"decode", "greedy"})
_TRACED: frozenset[Signal] = frozenset({"inputs", "hidden_states", "logits", *_DECODED})


def _without_rounding(signal: SignalComparison, ladder: Ladder | None) -> SignalComparison:
    rounding = _rounding_by_item(signal.signal, ladder) if ladder is not None else {}
    named = _naming(signal.signal)
    items = tuple(
        item
        for item in signal.items
        if differs(item) and not rounding.get(named(item.subject), False)
    )
    return signal.model_copy(update={"items": items, "n_differ": len(items)}) if items else signal


def _is_rounding(signal: SignalComparison, ladder: Ladder) -> bool:
    """Return True if the ladder covers every differing item of a signal, and each is rounding."""
    is_rounding = _rounding_by_item(signal.signal, ladder)
    named = _naming(signal.signal)
    items = [named(item.subject) for item in signal.items if differs(item)]
    return bool(items) and set(items) <= is_rounding.keys() and all(is_rounding.values())


def _rounding_by_item(signal: Signal, ladder: Ladder) -> dict[str, bool]:
    """Return for each prompt or tensor on the ladder whether its difference is rounding."""
    if signal == "greedy":
        return {split.prompt: split.near_tie is True for split in ladder.splits}
    steps = [step for step in ladder.steps if step.signal == signal]
    if signal not in ON_LADDER and not steps:
        constants = [constant for constant in ladder.constants if constant.signal == signal]
        return {_prompt_or_tensor(c.subject): c.kind == "cast" for c in constants}
    named = _naming(signal)
    failing = {named(step.subject) for step in steps if _fails(step)}
    return {place: place not in failing for place in (named(step.subject) for step in steps)}


def _naming(signal: Signal) -> Callable[[Subject], str]:
    """Return what names a step and an item of a signal: each output is judged by itself."""
    return str if signal == "outputs" else _prompt_or_tensor


def _prompt_or_tensor(subject: Subject) -> str:
    """Return the prompt with its row, or the name of a stored tensor, as the ladder has them."""
    return subject.prompt_row or str(subject)


def _fails(step: LadderStep) -> bool:
    """Return True unless a step is rounding, or its difference shows only in float64."""
    hidden = step.own == 0 and bool(step.float64)
    return step.kind in ("diverged", "undecided") and not hidden
