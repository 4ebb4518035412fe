"""The flow of data through a model, with what differs and where that begins."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from samebits.records.comparison import CellResult, ItemComparison, SignalComparison
from samebits.records.ids import EXPLANATORY
from samebits.text.numbers import number

MAX_EQUAL = 3
"""Neighbouring layers with the same outcome up to which each has a box of its own."""

WORDS = {
    "identical": "same bits",
    "differs": "differs",
    "only here": "only in the candidate",
    "only in reference": "only in the reference",
    "not compared": "not compared",
}


class Stage(NamedTuple):
    """One box: a signal, or the outputs of one layer over all prompts."""

    name: str
    outcome: str
    """``identical``, ``differs`` …"""
    detail: str
    is_first: bool = False
    """True for the first difference."""
    start: str = ""
    """Where in it the difference begins, if that has no box of its own."""

    @property
    def word(self) -> str:
        """The outcome in words."""
        return WORDS.get(self.outcome, self.outcome)


def flow(cell: CellResult) -> list[Stage]:
    """Return the stages of a cell in the order of data flow; none if nothing was compared."""
    stages = [stage for signal in cell.signals for stage in _stages(signal)]
    return list(_joined(_marked(stages, cell)))


def _stages(signal: SignalComparison) -> Iterator[Stage]:
    layers = [item for item in signal.items if item.subject.layer is not None]
    if signal.signal != "hidden_states" or not layers:
        yield Stage(signal.signal, signal.outcome, _detail(signal))
        return
    numbers = sorted({item.subject.layer for item in layers if item.subject.layer is not None})
    for layer in numbers:
        yield _layer([item for item in layers if item.subject.layer == layer])


def _layer(items: list[ItemComparison]) -> Stage:
    outcomes = [item.outcome for item in items]
    outcome = next((o for o in outcomes if o != "identical"), "identical")
    distances = [item.metrics.max_abs for item in items if item.metrics]
    detail = f"max abs {number(max(distances))}" if distances else ""
    return Stage(items[0].subject.place, outcome, detail)


def _joined(stages: list[Stage]) -> Iterator[Stage]:
    """Yield stages; a long run of layers with one outcome becomes its first, one box, and its last."""
    for key, neighbours in groupby(stages, key=_run):
        run = list(neighbours)
        if key[0] and len(run) > MAX_EQUAL:
            run[1:-1] = [Stage(f"{len(run) - 2} more layers", run[0].outcome, "")]
        yield from run


def _run(stage: Stage) -> tuple[bool, str, bool]:
    return stage.name.startswith("layer "), stage.outcome, stage.is_first


def _marked(stages: list[Stage], cell: CellResult) -> list[Stage]:
    """Return the stages with the first difference marked.

    What explains a difference, such as a call of attention, has no box: its layer is marked.
    """
    first = cell.first
    if first is None:
        return stages
    start = f"{first.signal}: {first.item}" if first.signal in EXPLANATORY else ""
    for place, stage in enumerate(stages):
        is_first = stage.name == first.signal or first.item.endswith(f"· {stage.name}")
        if start:
            is_first = stage.outcome not in ("identical", "not compared")
        if is_first:
            stages[place] = stage._replace(is_first=True, start=start)
            break
    return stages


def _detail(signal: SignalComparison) -> str:
    if signal.outcome == "identical":
        return f"{signal.n_items:,} compared" if signal.n_items else ""
    distances = [item.metrics.max_abs for item in signal.items if item.metrics]
    if distances:
        return f"max abs {number(max(distances))}"
    if signal.n_items:
        return f"{signal.n_differ:,} of {signal.n_items:,}"
    return signal.note
