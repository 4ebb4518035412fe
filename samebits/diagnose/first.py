"""Where, in the order of data flow, do two cells first part?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.compare.amounts import amount
from samebits.compare.facts import material_changes, paired_calls
from samebits.compare.forwards import split_step
from samebits.compare.outcome import differs
from samebits.records.comparison import FirstDifference, TokenSplit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.records.capture import AttentionCall, Capture, GreedyFacts
    from samebits.records.comparison import FactChange, ItemComparison, SignalComparison

_LAYER = re.compile(r"^(?P<prompt>.*) · layer (?P<index>\d+) \((?P<names>.*)\)$", re.DOTALL)
MOST_CHANGES = 3


def first_difference(
    reference: Capture, candidate: Capture, signals: Iterable[SignalComparison]
) -> FirstDifference | None:
    """Return the first difference; ``signals`` come in the order of data flow."""
    signal = next((signal for signal in signals if signal.outcome == "differs"), None)
    if signal is None:
        return None
    items = [item for item in signal.items if differs(item)]
    if signal.signal != "hidden_states":
        what = f"{signal.signal}: {_named(signal, items[0])}: {amount(items[0])}{_more(items)}"
        return FirstDifference(signal=signal.signal, item=items[0].name, what=what)
    item = min(items, key=_depth)
    return _kernel(reference, candidate, item) or FirstDifference(
        signal="hidden_states",
        item=item.name,
        what=f"hidden_states: {_layer(item)} is the first that differs: {amount(item)}",
    )


def token_splits(reference: Capture, candidate: Capture) -> tuple[TokenSplit, ...]:
    """Return, for every prompt that goes on with other tokens, the step where it begins to.

    Prompts that were fed other inputs are to be left out by the caller's choice of signals.
    """
    mine, theirs = reference.signals.greedy or {}, candidate.signals.greedy or {}
    found = ((p, split_step(mine[p], theirs[p])) for p in mine if p in theirs)
    return tuple(
        TokenSplit(
            prompt=prompt,
            step=step,
            reference=_top2(mine[prompt], step),
            candidate=_top2(theirs[prompt], step),
        )
        for prompt, step in found
        if step is not None
    )


def _top2(facts: GreedyFacts, step: int) -> tuple[tuple[int, float], tuple[int, float]] | None:
    return facts.top2[step] if step < len(facts.top2) else None


def _named(signal: SignalComparison, item: ItemComparison) -> str:
    if signal.signal in ("logits", "decode", "greedy"):
        return f"prompt {item.name}"
    if signal.signal == "inputs":
        prompt, _, key = item.name.rpartition(" · ")
        return f"{key} of prompt {prompt}"
    return item.name


def _more(items: list[ItemComparison]) -> str:
    return f" (and {len(items) - 1:,} more)" if len(items) > 1 else ""


def _depth(item: ItemComparison) -> int:
    return int(_parsed(item)["index"])


def _parsed(item: ItemComparison) -> re.Match[str]:
    """Return the parts of the name of a layer's item, as comparing/forwards.py makes it."""
    found = _LAYER.match(item.name)
    assert found is not None
    return found


def _layer(item: ItemComparison) -> str:
    found = _parsed(item)
    return f"layer {found['index']} ({found['names']}) of prompt {found['prompt']}"


def _kernel(reference: Capture, candidate: Capture, item: ItemComparison) -> FirstDifference | None:
    """Return the changed attention call of the first layer that differs, if it changed.

    A layer holds more than its attention, so this is where to look and not yet a cause.
    """
    found = _parsed(item)
    layer = found["names"].split(" → ")[0]
    for call, changes in _changed_calls(reference, candidate, found["prompt"]):
        if changes and call.module.startswith(f"{layer}."):
            shown = "; ".join(map(_change, changes[:MOST_CHANGES]))
            what = (
                f"attention.kernel: {call.module} of prompt {found['prompt']} is called in another "
                f"way ({shown}), and its layer is the first that differs: {amount(item)}"
            )
            return FirstDifference(
                signal="attention.kernel", item=f"{found['prompt']} · {call.module}", what=what
            )
    return None


def _changed_calls(
    reference: Capture, candidate: Capture, prompt: str
) -> list[tuple[AttentionCall, list[FactChange]]]:
    sides = reference.signals.attention, candidate.signals.attention
    mine, theirs = (side.calls.get(prompt, ()) if side is not None else () for side in sides)
    return [(one, material_changes(one, other)) for one, other in paired_calls(mine, theirs)]


def _change(change: FactChange) -> str:
    return f"{change.what} {_shown(change.reference)} → {_shown(change.candidate)}"


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
