"""The first difference between two cells, in the order of data flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.describe import amount
from samebits.compare.facts import material_changes, paired_calls
from samebits.compare.forwards import split_step
from samebits.compare.outcome import differs
from samebits.records.comparison import FirstDifference, TokenSplit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.records.capture import AttentionCall, Capture, GreedyFacts
    from samebits.records.comparison import FactChange, ItemComparison, SignalComparison

MAX_CHANGES = 3


def first_difference(
    reference: Capture, candidate: Capture, signals: Iterable[SignalComparison]
) -> FirstDifference | None:
    """Return the first difference; ``signals`` are in the order of data flow."""
    signal = next((signal for signal in signals if signal.outcome == "differs"), None)
    if signal is None:
        return None
    items = [item for item in signal.items if differs(item)]
    if signal.signal != "hidden_states":
        what = (
            f"{signal.signal}: {_item_text(signal, items[0])}: "
            f"{amount(items[0])}{_more_text(items)}"
        )
        return FirstDifference(signal=signal.signal, item=items[0].name, what=what)
    item = min(items, key=_layer_index)
    return _kernel_difference(reference, candidate, item) or FirstDifference(
        signal="hidden_states",
        item=item.name,
        what=f"hidden_states: {_layer_text(item)} is the first that differs: {amount(item)}",
    )


def token_splits(reference: Capture, candidate: Capture) -> tuple[TokenSplit, ...]:
    """Return, for every prompt with different tokens, the step where they begin to differ.

    The caller leaves out prompts with different inputs by its choice of signals.
    """
    reference_greedy, candidate_greedy = (
        reference.signals.greedy or {},
        candidate.signals.greedy or {},
    )
    steps = (
        (p, split_step(reference_greedy[p], candidate_greedy[p]))
        for p in reference_greedy
        if p in candidate_greedy
    )
    return tuple(
        TokenSplit(
            prompt=prompt,
            step=step,
            reference=_top2(reference_greedy[prompt], step),
            candidate=_top2(candidate_greedy[prompt], step),
        )
        for prompt, step in steps
        if step is not None
    )


def _top2(facts: GreedyFacts, step: int) -> tuple[tuple[int, float], tuple[int, float]] | None:
    return facts.top2[step] if step < len(facts.top2) else None


def _item_text(signal: SignalComparison, item: ItemComparison) -> str:
    if signal.signal in ("logits", "decode", "greedy", "state"):
        return f"prompt {item.name}"
    if signal.signal == "inputs":
        return f"{item.subject.tensor} of prompt {item.subject.prompt}"
    return item.name


def _more_text(items: list[ItemComparison]) -> str:
    return f" (and {len(items) - 1:,} more)" if len(items) > 1 else ""


def _layer_index(item: ItemComparison) -> int:
    assert item.subject.layer is not None
    return item.subject.layer


def _layer_text(item: ItemComparison) -> str:
    return f"{item.subject.place} of prompt {item.subject.prompt}"


def _kernel_difference(
    reference: Capture, candidate: Capture, item: ItemComparison
) -> FirstDifference | None:
    """Return the changed attention call of the first layer that differs, if it changed.

    A layer holds more than its attention, so this is a place to look at, not yet a cause.
    """
    prompt = item.subject.prompt
    for call, changes in _changed_calls(reference, candidate, prompt):
        if changes and call.module.startswith(f"{item.subject.tensor}."):
            changes_text = "; ".join(map(_change_text, changes[:MAX_CHANGES]))
            what = (
                f"attention.kernel: {call.module} of prompt {prompt} is called in another "
                f"way ({changes_text}), and its layer is the first that differs: {amount(item)}"
            )
            return FirstDifference(
                signal="attention.kernel", item=f"{prompt} · {call.module}", what=what
            )
    return None


def _changed_calls(
    reference: Capture, candidate: Capture, prompt: str
) -> list[tuple[AttentionCall, list[FactChange]]]:
    sides = reference.signals.attention, candidate.signals.attention
    reference_calls, candidate_calls = (
        side.calls.get(prompt, ()) if side is not None else () for side in sides
    )
    return [(a, material_changes(a, b)) for a, b in paired_calls(reference_calls, candidate_calls)]


def _change_text(change: FactChange) -> str:
    return f"{change.what} {value_text(change.reference)} → {value_text(change.candidate)}"


def value_text(value: object) -> str:
    """Return a config value as the report shows it; a list without its brackets."""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
