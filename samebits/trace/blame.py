"""What is it that differs first, in words: the cause that two joined traces give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.records.trace import Cause, Side
from samebits.trace.attention import (
    attention_of,
    attention_story,
    beyond_attention,
    is_kernel,
    mask_story,
)
from samebits.trace.join import Joined, Suspect, View, join
from samebits.trace.kinds import Parted, kind_of
from samebits.trace.origin import overlap, place_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from samebits.records.trace import CauseKind, Trace

_OTHERS = 4
"""Further places that are told."""
STORED = {"weight", "buffer", "constant"}


class Blamed:
    """The cause of one pair, with the operations that are worth a closer look."""

    def __init__(self, joined: Joined) -> None:
        self.joined = joined
        self.here, self.there = joined.candidate, joined.reference
        self.suspect = self.here.suspects[0] if self.here.suspects else None
        self.counterpart = self._counterpart()
        self.makers: tuple[list[int], list[int]] = [], []
        """Operations that make the mask that is blamed, on both sides."""
        mask = None
        if self.suspect and self.suspect.source is None:
            mask = mask_story(self.there, self.here, self.suspect.op, self.makers)
        self.headline = ""
        """What says it better than the names of the operations; '' if nothing does."""
        self.kind, self.why = kind_of(
            Parted(self.there, self.here, self.suspect, self.counterpart), mask
        )
        if self.kind == "layout":
            self._to_where_it_is_laid_out()
        elif self.kind == "kernel":
            self._to_what_no_kernel_does()

    @property
    def looks(self) -> tuple[list[int], list[int]]:
        """Operations to look at on the reference's side and on the candidate's."""
        sides = self.counterpart, self.suspect
        there, here = ([] if suspect is None else [suspect.op] for suspect in sides)
        return [*there, *self.makers[0]], [*here, *self.makers[1]]

    def _to_where_it_is_laid_out(self) -> None:
        """Blame what puts the elements in other places, and not the operation that takes them."""
        assert self.suspect is not None and self.counterpart is not None  # noqa: PT018
        sides = (self.here, self.suspect), (self.there, self.counterpart)
        first = [
            min(
                (i for v in view.graph.data_inputs(s.op) if (i := view.first_made(v)) is not None),
                default=None,
            )
            for view, s in sides
        ]
        if any(
            i is None or not view.graph.is_layout(i)
            for i, (view, _) in zip(first, sides, strict=True)
        ):
            return
        felt = place_of(self.here.graph, self.suspect.op)
        self.suspect, self.counterpart = (Suspect(index) for index in first if index is not None)
        told = [
            place_of(v.graph, i) for i, (v, _) in zip(first, sides, strict=True) if i is not None
        ]
        self.headline = f"{told[0]} puts elements elsewhere than {told[1]} in {_stack(self.there)}"
        self.why = [f"the same elements stand in other places for {felt}", *self.why]

    def _to_what_no_kernel_does(self) -> None:
        """Blame what attention by hand does to the scores and no fused attention does."""
        assert self.suspect is not None and self.counterpart is not None  # noqa: PT018
        sides = [(self.here, self.suspect), (self.there, self.counterpart)]
        by_hand = 1 if is_kernel(self.here.graph, self.suspect.op) else 0
        view, step = sides[by_hand]
        index = beyond_attention(view.graph, step.op)
        if index is None:
            return
        other, kernel = sides[1 - by_hand]
        place = attention_of(other.graph, kernel.op)
        last = kernel.op if place is None else other.graph.trace.attentions[place].op
        found = Suspect(index), Suspect(last)
        self.suspect, self.counterpart = found if by_hand == 0 else found[::-1]
        self.kind = "operation"
        told, stack = place_of(view.graph, index), _stack(view)
        self.headline = f"in {stack} the scores pass through {told}, which no fused attention does"
        self.why = [f"{_stack(other)} calls a fused attention, {stack} computes it step by step"]

    def _counterpart(self) -> Suspect | None:
        """Return what the reference has in the place of the suspect."""
        if self.suspect is None:
            return self.there.suspects[0] if self.there.suspects else None
        index, source = self.suspect
        if source is not None:
            return self._other_source(source)
        roots = self.here.input_roots(index)
        base, graph = self.here.graph.base(index), self.there.graph
        fitting = [s for s in self.there.suspects if s.source is None] or [
            Suspect(i) for i in sorted(self.there.slice) if not graph.is_layout(i)
        ]
        if not fitting:
            return None
        return max(
            fitting,
            key=lambda s: (
                overlap(roots, self.there.input_roots(s.op)),
                graph.base(s.op) == base,
                _same_module(graph.module(s.op), self.here.graph.module(index)),
                -s.op,
            ),
        )

    def _other_source(self, source: int) -> Suspect | None:
        """Return the reference's stored tensor of that name or shape, that the candidate lacks."""
        name = self.here.graph.trace.sources.get(source, "")
        value = self.here.graph.value(source)
        others = [s for s in self.there.suspects if s.source is not None]
        graph = self.there.graph
        for number, known in graph.trace.sources.items():
            if known == name != "constant" and graph.users(number):
                return Suspect(graph.users(number)[0], number)
        for other in others:
            if (
                other.source is not None
                and self.there.graph.value(other.source).shape == value.shape
            ):
                return other
        return self.there.suspects[0] if self.there.suspects else None


def blame(reference: Trace, candidate: Trace, same_weights: Collection[str] = ()) -> Blamed | None:
    """Return what makes the candidate part from the reference; None if it does not."""
    joined = join(reference, candidate, same_weights)
    return None if joined is None else Blamed(joined)


def cause(blamed: Blamed) -> Cause | None:
    """Return the cause in words; None if nothing parts by itself on either side."""
    suspect, counterpart = blamed.suspect, blamed.counterpart
    here, there = blamed.here, blamed.there
    if suspect is None and counterpart is None:
        return None
    kind, why = blamed.kind, list(blamed.why)
    candidate = _side(here, suspect) if suspect else Side(stack=_stack(here))
    reference = _side(there, counterpart) if counterpart else None
    also = list(_also(here))
    if also and kind in STORED:
        why.append(
            "other places on the way part by themselves, too; no trace tells which of them matters"
        )
    return Cause(
        kind=kind,
        headline=blamed.headline or _headline(kind, candidate, reference, why),
        prompt=here.graph.trace.prompt,
        what=here.graph.trace.what,
        sink=blamed.joined.sink,
        candidate=candidate,
        reference=reference,
        evidence=tuple(why),
        also=tuple(also),
    )


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
        attention=attention_story(graph, index),
    )


def _headline(kind: CauseKind, here: Side, there: Side | None, why: list[str]) -> str:
    if kind in STORED and here.tensor:
        name = here.tensor if here.tensor != "constant" else f"a constant in {_place(here)}"
        return (
            f"{name} holds what {there.stack if there else 'the reference'} does not compute with"
        )
    if kind == "mask":
        return f"{_mask_words(why)}: {why[0]}"
    if kind == "keys" and there is not None:
        return f"{_op(here)} is given other keys than {_op(there)} in {there.stack}"
    base = f"{_op(here)} has inputs that exist in {there.stack if there else 'the reference'}"
    if there is None:
        return f"{base} and an output that does not"
    return f"{base} and an output that does not; there it is {_op(there)}"


def _op(side: Side) -> str:
    return f"{side.op} in {_place(side)}"


def _mask_words(why: list[str]) -> str:
    made = next((line for line in why if line.startswith("here the mask is from ")), "")
    return f"the mask from {made.partition('from ')[2]}" if made else "a mask that is not there"


def _place(side: Side) -> str:
    return f"{side.function} ({side.source.rpartition('/')[2]})" if side.function else "torch"


def _also(view: View) -> Iterator[str]:
    """Yield the places behind the first that part by themselves."""
    others = view.suspects[1:]
    seen: set[str] = set()
    for suspect in others:
        side = _side(view, suspect)
        told = f"{side.tensor or side.op} in {_place(side)}"
        if told not in seen:
            seen.add(told)
            yield told
        if len(seen) == _OTHERS:
            return


def _stack(view: View) -> str:
    return view.graph.trace.cell.stack


def _same_module(one: str, other: str) -> bool:
    return one.rpartition(".")[2] == other.rpartition(".")[2]
