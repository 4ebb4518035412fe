"""The first operation of a training step that differs, from the traces of both sides.

It is the first one, forward or backward, whose inputs exist on the other side and whose output does
not. Where the candidate computes nothing of its own, because it leaves something out, it is the
first one of the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Literal, NamedTuple

from samebits.questions.training.step_question import StepQuestion
from samebits.questions.training.step_trace import StepOrigin, StepSide, StepTrace
from samebits.records.trace import Trace
from samebits.trace.graph import Graph
from samebits.trace.join import Suspect, View
from samebits.trace.origin import overlap

NOTHING = "the traces of both steps compute the same"
_Only = Literal["candidate", "reference"]


class StepView(View):
    """One side of a training step, which may compute a loss for more rows than the other one.

    One release cuts the last position off the logits, another one gives it a label that no loss
    counts. Rows of the latter are those of the former and a few more, so they are known.
    """

    def _reordered(self, value: int) -> frozenset[str] | None:
        return super()._reordered(value) or self._and_more_rows(value)

    def _and_more_rows(self, value: int) -> frozenset[str] | None:
        rows = {row for row in self.graph.rows(value) or () if row[2]}
        numbers = {n for row in rows if (n := self.other.by_row.get(row)) is not None}
        for number in sorted(numbers):
            fewer = {row for row in self.other.rows(number) or () if row[2]}
            if fewer < rows and 2 * len(fewer) > len(rows):
                return frozenset({self.other.root(number)})
        return None


class _Mark(NamedTuple):
    name: str
    tensor: str
    """The tensor of the checkpoint whose gradient it is; '' for logits and losses."""
    reference: int | None
    candidate: int | None


class _Pair(NamedTuple):
    steps: tuple[StepTrace, StepTrace]
    graphs: tuple[Graph, Graph]
    question: StepQuestion


def origin(reference: StepTrace, candidate: StepTrace, question: StepQuestion) -> StepOrigin | str:
    """Return the first operation that differs, or why no trace shows it."""
    traces = [_usable(step) for step in (reference, candidate)]
    reasons = [trace for trace in traces if isinstance(trace, str)]
    if reasons:
        return reasons[0]
    graphs = tuple(Graph(trace) for trace in traces if not isinstance(trace, str))
    pair = _Pair((reference, candidate), (graphs[0], graphs[1]), question)
    differing = [mark for mark in _marks(pair) if _differs(pair, mark)]
    if not differing:
        return NOTHING
    for mark in differing:
        if (first := _first(pair, mark)) is not None:
            return first
    return f"no independent point of divergence was found before {differing[0].name}"


def _usable(step: StepTrace) -> Trace | str:
    if step.failure is not None:
        reason = f"{step.failure.type}: {step.failure.first_line}"
        return f"{step.cell} could not be traced: {reason}"
    if step.leaks:
        return f"{step.cell}: lower precision than float64 comes out of {', '.join(step.leaks)}"
    return step.trace or f"{step.cell} left no trace"


def _marks(pair: _Pair) -> Iterator[_Mark]:
    """Yield what both sides compute, in the order of execution, and gradients that one side lacks."""
    by_name = [dict(graph.trace.marks) for graph in pair.graphs]
    names = dict.fromkeys((*by_name[1], *by_name[0]))
    gradients = pair.steps[0].gradients | pair.steps[1].gradients
    marks = [
        _Mark(name, gradients.get(name, ""), by_name[0].get(name), by_name[1].get(name))
        for name in names
    ]
    yield from sorted(
        filter(lambda mark: _counts(pair, mark), marks), key=lambda m: _order(pair, m)
    )


def _counts(pair: _Pair, mark: _Mark) -> bool:
    if not mark.tensor:
        return mark.reference is not None and mark.candidate is not None
    if mark.tensor in pair.question.skipped:
        return False
    one_sided = mark.reference is None or mark.candidate is None
    return not one_sided or mark.tensor in pair.question.without


def _order(pair: _Pair, mark: _Mark) -> tuple[bool, int]:
    """Return where a mark stands: losses before gradients, each by the operation behind it."""
    graph, value = (
        (pair.graphs[1], mark.candidate)
        if mark.candidate is not None
        else (pair.graphs[0], mark.reference)
    )
    index = None if value is None else graph.producer(value)
    return bool(mark.tensor), -1 if index is None else index


def _differs(pair: _Pair, mark: _Mark) -> bool:
    if mark.reference is None or mark.candidate is None:
        return True
    values = (pair.graphs[0].value(mark.reference), pair.graphs[1].value(mark.candidate))
    return values[0].hash != values[1].hash


def _first(pair: _Pair, mark: _Mark) -> StepOrigin | None:
    reference, candidate = (_view(pair, mark, side) for side in (0, 1))
    sides: tuple[tuple[_Only, StepView | None, StepView | None], ...] = (
        ("candidate", candidate, reference),
        ("reference", reference, candidate),
    )
    for only_in, view, opposite in sides:
        for suspect in view.suspects if view is not None else ():
            if view is not None and _only_here(view, suspect):
                return _origin(pair, mark, only_in, view, suspect, opposite)
    return None


def _view(pair: _Pair, mark: _Mark, side: int) -> StepView | None:
    """Return the view of a side, 0 for the reference; None if it does not compute the mark."""
    value = (mark.reference, mark.candidate)[side]
    if value is None:
        return None
    parameters = {*pair.steps[0].parameters, *pair.steps[1].parameters}
    return StepView(pair.graphs[side], pair.graphs[1 - side], value, parameters)


def _only_here(view: View, suspect: Suspect) -> bool:
    """Return True if the other side has no output of an operation, or not the stored value."""
    if suspect.source is not None:
        return True
    numbers = [v for v in view.graph.op(suspect.op).outputs if not view.graph.is_index(v)]
    return any(view.roots(v) is None for v in numbers)


def _origin(
    pair: _Pair, mark: _Mark, only_in: _Only, view: View, suspect: Suspect, opposite: View | None
) -> StepOrigin:
    side, other_side = (1, 0) if only_in == "candidate" else (0, 1)
    counterpart = None if opposite is None else _counterpart(view, suspect, opposite)
    return StepOrigin(
        batch=pair.question.batch,
        part=_part(pair.steps[side], view.graph, suspect.op),
        sink=mark.name,
        rung=view.graph.trace.rung,
        only_in=only_in,
        side=_side(pair.steps[side], view.graph, suspect),
        counterpart=None
        if counterpart is None or opposite is None
        else _side(pair.steps[other_side], opposite.graph, counterpart),
        evidence=tuple(_evidence(view, suspect, opposite, counterpart)),
    )


def _part(step: StepTrace, graph: Graph, index: int) -> Literal["forward", "loss", "backward"]:
    if index in step.belongs:
        return "backward"
    logits = dict(graph.trace.marks).get("logits")
    made = None if logits is None else graph.producer(logits)
    return "loss" if made is not None and index > made else "forward"


def _side(step: StepTrace, graph: Graph, suspect: Suspect) -> StepSide:
    index = suspect.op
    functions, op = graph.functions(index), graph.op(index)
    node, forward = step.belongs.get(index, ("", ""))
    source = suspect.source
    return StepSide(
        stack=step.cell.stack,
        op=graph.name(index),
        arguments=graph.arguments(index),
        tensor="" if source is None else graph.trace.sources.get(source, "constant"),
        node=node,
        forward=forward,
        module=graph.module(index),
        function=functions[0].name if functions else "",
        source=f"{functions[0].file}:{op.line}" if functions else "",
        inputs=graph.described(op.inputs),
        outputs=graph.described(op.outputs[:1]),
    )


def _counterpart(view: View, suspect: Suspect, opposite: View) -> Suspect | None:
    """Return the operation of the other side that takes the most of the same numbers."""
    if suspect.source is not None:
        return None
    suspects = [s for s in opposite.suspects if s.source is None and _only_here(opposite, s)]
    roots, base = view.input_roots(suspect.op), view.graph.base(suspect.op)
    return max(
        suspects,
        key=lambda s: (
            overlap(roots, opposite.input_roots(s.op)),
            opposite.graph.base(s.op) == base,
            -s.op,
        ),
        default=None,
    )


def _evidence(
    view: View, suspect: Suspect, opposite: View | None, counterpart: Suspect | None
) -> Iterator[str]:
    """Yield the indices and masks of an operation where the other side has others of that size."""
    if suspect.source is not None or opposite is None or counterpart is None:
        return
    sizes = {prod(opposite.graph.value(v).shape) for v in _indices(opposite.graph, counterpart)}
    for value in _indices(view.graph, suspect):
        if not view.exists(value) and prod(view.graph.value(value).shape) in sizes:
            described = view.graph.described([value])[0]
            yield f"the other side has no {described}, by which it selects"


def _indices(graph: Graph, suspect: Suspect) -> list[int]:
    return [v for v in graph.op(suspect.op).inputs if graph.is_index(v)]
