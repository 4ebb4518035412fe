"""The cause of a difference, in words, from two joined traces."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from samebits.records.trace import GIVEN, Cause, Side, Trace
from samebits.trace.around import around
from samebits.trace.attention import (
    attention_of,
    attention_operations,
    first_unfused,
    is_kernel,
    mask_difference,
)
from samebits.trace.graph import Graph
from samebits.trace.join import Joined, Suspect, View, join
from samebits.trace.kinds import Divergence, input_makers, kind_of
from samebits.trace.origin import overlap, place_of

_MAX_OTHERS = 4
"""Further places that a cause lists."""
STORED = {"weight", "buffer", "constant"}


class Blamed:
    """The cause of one pair, with the operations to inspect further."""

    def __init__(self, joined: Joined) -> None:
        self.joined = joined
        self.candidate, self.reference = joined.candidate, joined.reference
        self.suspect = self.candidate.suspects[0] if self.candidate.suspects else None
        left_out = self._left_out()
        self.counterpart = left_out or self._counterpart()
        self.leaves_out = left_out is not None
        """Whether the candidate gives what the counterpart takes, and has no such operation itself."""
        self.makers: tuple[list[int], list[int]] = [], []
        """Operations that compute what is blamed, in the reference and in the candidate: the mask, or
        the inputs that differ."""
        mask = None
        if self.suspect and self.suspect.source is None:
            mask = mask_difference(self.reference, self.candidate, self.suspect.op, self.makers)
        self.mask_maker = None if mask is None else mask.maker
        """The operation that makes the candidate's mask, if the masks differ."""
        self.headline = ""
        """A headline that replaces the default one; '' if none does."""
        pair = Divergence(self.reference, self.candidate, self.suspect, self.counterpart)
        self.kind, self.evidence = kind_of(pair, None if mask is None else mask.lines)
        if self.leaves_out:
            self._blame_left_out()
        elif self.kind in GIVEN and mask is None:
            self.makers = input_makers(pair)
        if self.kind == "layout":
            self._blame_layout()
        elif self.kind == "kernel":
            self._blame_unfused()

    @property
    def looks(self) -> tuple[list[int], list[int]]:
        """Operations to inspect in the reference and in the candidate."""
        sides = self.counterpart, self.suspect
        reference_ops, candidate_ops = (
            [] if suspect is None else [suspect.op] for suspect in sides
        )
        return [*reference_ops, *self.makers[0]], [*candidate_ops, *self.makers[1]]

    def _left_out(self) -> Suspect | None:
        """Return the operation of the reference that takes the output of the candidate and changes it."""
        if self.suspect is None or self.suspect.source is not None:
            return None
        result = self.candidate.graph.value(self.candidate.sink).hash
        graph = self.reference.graph
        for suspect in self.reference.suspects:
            inputs = (graph.value(v).hash for v in graph.op(suspect.op).inputs)
            if suspect.source is None and result in inputs:
                return suspect
        return None

    def _blame_left_out(self) -> None:
        assert self.suspect is not None and self.counterpart is not None  # noqa: PT018
        self.kind, self.evidence = "operation", []
        self.headline = (
            f"{_stack(self.candidate)} leaves out "
            f"{place_of(self.reference.graph, self.counterpart.op)}: it ends with what "
            f"{place_of(self.candidate.graph, self.suspect.op)} gives"
        )

    def _blame_layout(self) -> None:
        """Blame the operation that moves the elements instead of the one that reads them."""
        assert self.suspect is not None and self.counterpart is not None  # noqa: PT018
        sides = (self.candidate, self.suspect), (self.reference, self.counterpart)
        first_ops = [
            min(
                (i for v in view.graph.data_inputs(s.op) if (i := view.first_made(v)) is not None),
                default=None,
            )
            for view, s in sides
        ]
        if any(
            i is None or not view.graph.is_layout(i)
            for i, (view, _) in zip(first_ops, sides, strict=True)
        ):
            return
        affected = place_of(self.candidate.graph, self.suspect.op)
        self.suspect, self.counterpart = (
            Suspect(index) for index in first_ops if index is not None
        )
        places = [
            place_of(v.graph, i)
            for i, (v, _) in zip(first_ops, sides, strict=True)
            if i is not None
        ]
        self.headline = (
            f"{places[0]} puts elements in different places than {places[1]} in "
            f"{_stack(self.reference)}"
        )
        self.evidence = [
            f"the same elements are in different places for {affected}",
            *self.evidence,
        ]

    def _blame_unfused(self) -> None:
        """Blame the operation on the scores that no fused attention does."""
        assert self.suspect is not None and self.counterpart is not None  # noqa: PT018
        sides = [(self.candidate, self.suspect), (self.reference, self.counterpart)]
        by_hand = 1 if is_kernel(self.candidate.graph, self.suspect.op) else 0
        view, step = sides[by_hand]
        index = first_unfused(view.graph, step.op)
        if index is None:
            return
        kernel_view, kernel = sides[1 - by_hand]
        attention = attention_of(kernel_view.graph, kernel.op)
        last = kernel.op if attention is None else kernel_view.graph.trace.attentions[attention].op
        pair = Suspect(index), Suspect(last)
        self.suspect, self.counterpart = pair if by_hand == 0 else pair[::-1]
        self.kind = "operation"
        where, stack = place_of(view.graph, index), _stack(view)
        self.headline = (
            f"in {stack} the scores go through {where}, which a fused attention does not do"
        )
        self.evidence = [
            f"{_stack(kernel_view)} calls a fused attention, {stack} computes it step by step"
        ]

    def _counterpart(self) -> Suspect | None:
        """Return the operation or tensor of the reference that corresponds to the suspect."""
        if self.suspect is None:
            return self.reference.suspects[0] if self.reference.suspects else None
        index, source = self.suspect
        if source is not None:
            return self._source_counterpart(source)
        roots = self.candidate.input_roots(index)
        base, graph = self.candidate.graph.base(index), self.reference.graph
        matches = [s for s in self.reference.suspects if s.source is None] or [
            Suspect(i) for i in sorted(self.reference.slice) if not graph.is_layout(i)
        ]
        if not matches:
            return None
        return max(
            matches,
            key=lambda s: (
                overlap(roots, self.reference.input_roots(s.op)),
                graph.base(s.op) == base,
                _same_module(graph.module(s.op), self.candidate.graph.module(index)),
                -s.op,
            ),
        )

    def _source_counterpart(self, source: int) -> Suspect | None:
        """Return the reference's stored tensor of that name, or a suspect of that shape."""
        name = self.candidate.graph.trace.sources.get(source, "")
        value = self.candidate.graph.value(source)
        stored = [s for s in self.reference.suspects if s.source is not None]
        graph = self.reference.graph
        for number, known_name in graph.trace.sources.items():
            if known_name == name != "constant" and graph.users(number):
                return Suspect(graph.users(number)[0], number)
        for suspect in stored:
            if (
                suspect.source is not None
                and self.reference.graph.value(suspect.source).shape == value.shape
            ):
                return suspect
        return self.reference.suspects[0] if self.reference.suspects else None


def blame(reference: Trace, candidate: Trace, same_weights: Collection[str] = ()) -> Blamed | None:
    """Return what makes the candidate differ from the reference; None if it does not differ."""
    joined = join(reference, candidate, same_weights)
    return None if joined is None else Blamed(joined)


def cause(blamed: Blamed) -> Cause | None:
    """Return the cause in words; None if neither side has a suspect."""
    suspect, counterpart = blamed.suspect, blamed.counterpart
    candidate_view, reference_view = blamed.candidate, blamed.reference
    if suspect is None and counterpart is None:
        return None
    kind, evidence = blamed.kind, list(blamed.evidence)
    trace = candidate_view.graph.trace
    assert trace.what != "training", "a training step has an origin"
    candidate = _side(candidate_view, suspect) if suspect else Side(stack=_stack(candidate_view))
    reference = _side(reference_view, counterpart) if counterpart else None
    if suspect and counterpart and reference:
        views = ((candidate_view.graph, suspect.op), (reference_view.graph, counterpart.op))
        candidate = candidate.model_copy(update={"unread": _unread(*views)})
        reference = reference.model_copy(update={"unread": _unread(*views[::-1])})
    others = list(_other_places(candidate_view))
    if others and kind in STORED:
        evidence.append(
            "there are other independent points of divergence; no trace shows which of them matters"
        )
    return Cause(
        kind=kind,
        headline=blamed.headline or _headline(blamed, candidate, reference, evidence),
        prompt=trace.prompt,
        what=trace.what,
        sink=blamed.joined.sink,
        candidate=candidate,
        reference=reference,
        evidence=tuple(evidence),
        also=tuple(others),
        around=around(reference_view, candidate_view, counterpart, suspect),
    )


def _unread(side: tuple[Graph, int], opposite: tuple[Graph, int]) -> tuple[str, ...]:
    """Return the stored tensors that the other side's operation takes besides the inputs of this one.

    No operation of this side takes their contents, in any order of the elements.
    """
    (graph, op), (more, counterpart) = side, opposite
    own = {graph.root(value) for value in graph.op(op).inputs}
    others = {more.root(value): value for value in more.op(counterpart).inputs}
    if not own < others.keys():
        return ()
    read = {graph.root(value) for each in graph.trace.ops for value in each.inputs}
    names = (
        more.trace.sources.get(others[root], "constant") for root in others.keys() - own - read
    )
    return tuple(sorted(name for name in names if name != "constant"))


def _side(view: View, suspect: Suspect) -> Side:
    graph, index = view.graph, suspect.op
    functions = graph.functions(index)
    op = graph.op(index)
    tensor = "" if suspect.source is None else graph.trace.sources.get(suspect.source, "constant")
    return Side(
        stack=_stack(view),
        op="" if suspect.source is not None else graph.name(index),
        arguments=graph.arguments(index),
        module=graph.module(index),
        function=functions[0].name if functions else "",
        source=f"{functions[0].file}:{op.line}" if functions else "",
        tensor=tensor,
        inputs=graph.described(op.inputs),
        outputs=graph.described(op.outputs[:1]),
        attention=attention_operations(graph, index),
    )


def _headline(blamed: Blamed, candidate: Side, reference: Side | None, evidence: list[str]) -> str:
    kind = blamed.kind
    stack = reference.stack if reference else "the reference"
    words = _operation_words(candidate)
    if kind in STORED and candidate.tensor:
        is_named = candidate.tensor != "constant"
        name = candidate.tensor if is_named else f"a constant in {_place(candidate)}"
        return f"{name} holds values that {stack} does not compute with"
    if kind == "mask":
        maker = blamed.mask_maker
        mask_words = "a missing mask" if maker is None else f"the mask from {maker}"
        return f"{mask_words}: {evidence[0]}"
    if kind == "keys" and reference is not None:
        return f"{words} is given different keys than {_operation_words(reference)} in {stack}"
    base = f"{words}: its inputs also occur in {stack}, its output does not"
    if reference is None:
        return base
    return f"{base}; its counterpart there is {_operation_words(reference)}"


def _operation_words(side: Side) -> str:
    return f"{side.op} in {_place(side)}"


def _place(side: Side) -> str:
    return f"{side.function} ({side.source.rpartition('/')[2]})" if side.function else "torch"


def _other_places(view: View) -> Iterator[str]:
    """Yield the other places where the two sides diverge independently."""
    suspects = view.suspects[1:]
    places: set[str] = set()
    for suspect in suspects:
        side = _side(view, suspect)
        place = f"{side.tensor or side.op} in {_place(side)}"
        if place not in places:
            places.add(place)
            yield place
        if len(places) == _MAX_OTHERS:
            return


def _stack(view: View) -> str:
    return view.graph.trace.cell.stack


def _same_module(reference: str, candidate: str) -> bool:
    return reference.rpartition(".")[2] == candidate.rpartition(".")[2]
