"""Removal of detail that a report does not need.

All removed facts remain in the captures. They are the same on both sides, or what they should be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from samebits.questions import questions
from samebits.records.band import Band
from samebits.records.capture import AttentionCall, AttentionSignal, Capture, Signals
from samebits.records.comparison import CellResult, ItemComparison, Metrics
from samebits.records.provenance import IntegritySignal
from samebits.records.report import AttentionReport, LoadReport, RowFacts
from samebits.records.state import StateSignal

S = TypeVar("S")
T = TypeVar("T")


def facts(captures: Mapping[str, Capture], bands: Sequence[Band], reference: str) -> RowFacts:
    """Return what the captures of a row say, by stack."""
    signals = {stack: capture.signals for stack, capture in captures.items()}

    def each(of: Callable[[Signals], T | None]) -> dict[str, T]:
        """Return what some stacks have, by stack."""
        values = ((stack, of(of_stack)) for stack, of_stack in signals.items())
        return {stack: value for stack, value in values if value}

    def trimmed(of: Callable[[Signals], S | None], trim: Callable[[S], T]) -> dict[str, T]:
        return {stack: trim(signal) for stack, signal in each(of).items()}

    reports, calls = attention(each(lambda s: s.attention))
    return RowFacts(
        bands=tuple(bands),
        attention=reports,
        calls=calls,
        state=trimmed(lambda s: s.state if s.state and s.state.is_left else None, state),
        integrity=trimmed(lambda s: s.integrity, load),
        tokenizers=trimmed(lambda s: s.tokenizer, lambda t: t.model_copy(update={"written": None})),
        unrun=each(lambda s: s.unrun),
        settings=each(lambda s: s.settings.changes if s.settings else None),
        device=each(lambda s: s.device),
        answers={
            question.name: answer
            for question in questions()
            if question.of_captures is not None
            and (answer := question.of_captures(captures, reference)) is not None
        },
    )


def result(untrimmed: CellResult) -> CellResult:
    """Return a result without top differences of layers and padding, and hashes of equal layers."""
    signals = tuple(
        signal.model_copy(
            update={
                "items": tuple(_item(i, signal.signal == "hidden_states") for i in signal.items)
            }
        )
        for signal in untrimmed.signals
    )
    return untrimmed.model_copy(update={"signals": signals})


def _item(item: ItemComparison, is_layer: bool) -> ItemComparison:
    changed: dict[str, object] = {}
    if item.pad_metrics is not None:
        changed["pad_metrics"] = _without_top(item.pad_metrics)
    if is_layer and item.metrics is not None:
        changed["metrics"] = _without_top(item.metrics)
    if is_layer and item.outcome == "identical":
        changed |= {"reference": None, "candidate": None}
    return item.model_copy(update=changed) if changed else item


def _without_top(metrics: Metrics) -> Metrics:
    return metrics.model_copy(update={"top": (), "choices": None})


def state(signal: StateSignal) -> StateSignal:
    """Return what a cell left behind, without hashes."""
    return signal.model_copy(update={"hashes": {}})


def load(signal: IntegritySignal) -> LoadReport:
    """Return the facts of a load with counts of all tensors and names of the unusual ones."""
    sources = [facts.source for facts in signal.tensors.values()]
    unusual = {name: facts for name, facts in signal.tensors.items() if not facts.is_plain}
    fields = {name: getattr(signal, name) for name in type(signal).model_fields}
    counted = {source: sources.count(source) for source in dict.fromkeys(sources)}
    return LoadReport(**fields | {"tensors": unusual, "counts": counted, "written": None})


def attention(
    signals: Mapping[str, AttentionSignal],
) -> tuple[dict[str, AttentionReport], tuple[AttentionCall, ...]]:
    """Return every stack's attention, and the distinct calls that it refers to by index."""
    numbers: dict[AttentionCall, int] = {}

    def number(call: AttentionCall) -> tuple[str, int]:
        without_module = call.model_copy(update={"module": ""})
        return call.module, numbers.setdefault(without_module, len(numbers))

    reports = {
        stack: AttentionReport(
            requested=signal.requested,
            resolved=signal.resolved,
            calls={prompt: tuple(map(number, calls)) for prompt, calls in signal.calls.items()},
        )
        for stack, signal in signals.items()
    }
    return reports, tuple(numbers)
