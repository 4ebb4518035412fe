"""The first difference between two cells, in the order of data flow."""

from __future__ import annotations

from collections.abc import Iterable

from samebits.compare.describe import amount
from samebits.compare.facts import material_changes, paired_calls
from samebits.compare.forwards import split_step
from samebits.compare.outcome import differs
from samebits.records.capture import AttentionCall, Capture, GreedyFacts
from samebits.records.comparison import (
    Difference,
    FactChange,
    ItemComparison,
    SignalComparison,
    TokenSplit,
)

MAX_CHANGES = 3


def first_difference(
    reference: Capture, candidate: Capture, signals: Iterable[SignalComparison]
) -> Difference | None:
    """Return the first difference; ``signals`` are in the order of data flow."""
    signal = next((signal for signal in signals if signal.outcome == "differs"), None)
    if signal is None:
        return None
    item = first_item(signal)
    if signal.signal != "hidden_states":
        return statement(signal, item)
    return _kernel_difference(reference, candidate, item) or Difference(
        signal="hidden_states",
        item=item.name,
        what=f"hidden_states: {_layer_text(item)} is the first that differs: {amount(item)}",
    )


def first_item(signal: SignalComparison) -> ItemComparison:
    """Return the first item of a signal that differs; of layers the first in order of execution."""
    items = [item for item in signal.items if differs(item)]
    return min(items, key=lambda item: item.subject.layer or 0)


def statement(signal: SignalComparison, item: ItemComparison, more: str = "") -> Difference:
    """Return one item of a signal that differs, with ``more`` behind its amount."""
    place = _layer_text(item) if signal.signal == "hidden_states" else _item_text(signal, item)
    parts = [f"{signal.signal}: {place}: {amount(item)}", more]
    n_more = 0 if signal.signal == "hidden_states" else sum(map(differs, signal.items)) - 1
    what = ", ".join(filter(None, parts)) + (f" (and {n_more:,} more)" if n_more > 0 else "")
    return Difference(signal=signal.signal, item=item.name, what=what)


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


def _layer_text(item: ItemComparison) -> str:
    return f"{item.subject.place} of prompt {item.subject.prompt}"


def _kernel_difference(
    reference: Capture, candidate: Capture, item: ItemComparison
) -> Difference | None:
    """Return the changed attention call of the first layer that differs, if it changed.

    A layer holds more than its attention, so this is a place to look at, not yet a cause.
    """
    prompt = item.subject.prompt
    for call, changes in _changed_calls(reference, candidate, prompt):
        if changes and call.module.startswith(f"{item.subject.tensor}."):
            what = (
                f"attention.kernel: {call.module} of prompt {prompt} is computed by "
                f"{_changed_call(changes)}, and its layer is the first that differs: {amount(item)}"
            )
            return Difference(
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


def _changed_call(changes: list[FactChange]) -> str:
    """Return how a call changed; what another implementation is given follows from it."""
    computed = next((change for change in changes if change.what == "computed"), None)
    if computed is not None:
        return f"{computed.reference} → {computed.candidate}"
    return f"another call ({'; '.join(map(_change_text, changes[:MAX_CHANGES]))})"


def _change_text(change: FactChange) -> str:
    return f"{change.what} {value_text(change.reference)} → {value_text(change.candidate)}"


def value_text(value: object) -> str:
    """Return a config value as the report shows it; a list without its brackets."""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
