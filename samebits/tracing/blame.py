"""What is it that differs first, in words: the cause that two joined traces give."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.trace import Cause, Side
from samebits.tracing import masks
from samebits.tracing.join import Joined, Suspect, View, join

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from samebits.trace import CauseKind, Trace, Visibility
    from samebits.tracing.graph import Graph

_OTHERS = 4
"""Further places that are told."""
_FAR = 30
"""Layout operations that are followed back at most."""
_PRODUCTS = {"mm", "bmm", "addmm", "baddbmm", "linear", "matmul"}


class Blamed:
    """The cause of one pair, with the operations that are worth a closer look."""

    def __init__(self, joined: Joined) -> None:
        self.joined = joined
        self.here, self.there = joined.candidate, joined.reference
        self.suspect = self.here.suspects[0] if self.here.suspects else None
        self.counterpart = self._counterpart()
        self.makers: tuple[list[int], list[int]] = [], []
        """Operations that make the mask that is blamed, on both sides."""
        self.mask = _mask_differs(self) if self.suspect and self.suspect.source is None else None

    @property
    def looks(self) -> tuple[list[int], list[int]]:
        """Operations to look at on the reference's side and on the candidate's."""
        sides = self.counterpart, self.suspect
        there, here = ([] if suspect is None else [suspect.op] for suspect in sides)
        return [*there, *self.makers[0]], [*here, *self.makers[1]]

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
                _overlap(roots, self.there.input_roots(s.op)),
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
    kind, why = _kind(blamed)
    candidate = _side(here, suspect) if suspect else Side(stack=_stack(here))
    reference = _side(there, counterpart) if counterpart else None
    return Cause(
        kind=kind,
        headline=_headline(kind, candidate, reference, why),
        prompt=here.graph.trace.prompt,
        what=here.graph.trace.what,
        sink=blamed.joined.sink,
        candidate=candidate,
        reference=reference,
        evidence=tuple(why),
        also=tuple(_also(here, suspect)),
    )


# --- which kind it is -----------------------------------------------------------------------------


def _kind(blamed: Blamed) -> tuple[CauseKind, list[str]]:
    suspect, counterpart = blamed.suspect, blamed.counterpart
    if suspect is None:
        return "operation", ["the candidate computes nothing by itself that the reference lacks"]
    if suspect.source is not None:
        return _source_kind(blamed, suspect.source)
    if blamed.mask is not None:
        return "mask", blamed.mask
    if counterpart is None or counterpart.source is not None:
        return "operation", []
    return _operation_kind(blamed, suspect.op, counterpart.op)


def _source_kind(blamed: Blamed, source: int) -> tuple[CauseKind, list[str]]:
    graph = blamed.here.graph
    name = graph.trace.sources.get(source, "constant")
    told = graph.described([source])[0]
    if name == "constant":
        return "constant", [f"a constant that the reference does not have: {told}"]
    last = name.rpartition(".")[2]
    kind: CauseKind = "weight" if last in {"weight", "bias"} else "buffer"
    return kind, [f"no tensor of the reference has the content of {told}"]


def _operation_kind(blamed: Blamed, index: int, other: int) -> tuple[CauseKind, list[str]]:
    here, there = blamed.here, blamed.there
    one, two = there.graph, here.graph
    if _other_kernel(one, other, two, index):
        return "kernel", ["one side calls a fused attention and the other computes it step by step"]
    sides = (one, other), (two, index)
    said = [_hashes(one, other), _hashes(two, index)]
    same_op = one.name(other) == two.name(index)
    if said[0] == said[1] and same_op:
        if one.arguments(other) != two.arguments(index):
            return "argument", [f"({one.arguments(other)}) became ({two.arguments(index)})"]
        shapes = [[long_axes(g.value(v).shape) for v in g.op(i).inputs] for g, i in sides]
        if shapes[0] != shapes[1]:
            told = " and ".join(", ".join(g.described(g.op(i).inputs)) for g, i in sides)
            return "shape", [f"the same numbers in other shapes: {told}"]
        return "memory", ["the same operation on the same numbers"]
    if (dtypes := _dtypes_differ(one, other, two, index)) is not None:
        return "precision", [dtypes]
    if one.base(other) == two.base(index):
        return _same_operation(blamed, index, other)
    return "operation", []


def _same_operation(blamed: Blamed, index: int, other: int) -> tuple[CauseKind, list[str]]:
    """Return the kind of a difference between two calls of one operation."""
    one, two = blamed.there.graph, blamed.here.graph
    left, right = one.op(other).inputs, two.op(index).inputs
    if len(left) == len(right):
        for place, (a, b) in enumerate(zip(left, right, strict=True)):
            if one.value(a).hash == two.value(b).hash:
                continue
            names = one.described([a])[0], two.described([b])[0]
            told = f"input {place}: {names[0]} became {names[1]}"
            if names[0] == names[1]:
                told = f"input {place}, {names[0]}, holds other elements, or in other places"
            if one.is_index(a) and two.is_index(b):
                literal = one.value(a).literal is not None and two.value(b).literal is not None
                return ("constant" if literal else "positions"), [told, *_makers(blamed, a, b)]
            same_shape = long_axes(one.value(a).shape) == long_axes(two.value(b).shape)
            if same_shape and blamed.here.exists(b):
                return "wiring", [told, *_makers(blamed, a, b)]
            roots = blamed.there.roots(a), blamed.here.roots(b)
            if same_shape and None not in roots:
                return "layout", [told, *_laid_out(blamed, a, b)]
            if roots[0] and roots[1] and roots[0] & roots[1]:
                return "shape", [told]
    return "operation", []


def _makers(blamed: Blamed, there: int, here: int) -> list[str]:
    """Return which operations made a value of the candidate and its counterpart."""
    return [
        f"{name} it is from {made}"
        for name, graph, value in (
            ("there", blamed.there.graph, there),
            ("here", blamed.here.graph, here),
        )
        if (made := maker(graph, value))
    ]


def _laid_out(blamed: Blamed, there: int, here: int) -> list[str]:
    """Return the operations that put the elements of both values where they are."""
    sides = ("there", blamed.there, there), ("here", blamed.here, here)
    return [
        f"{name} they are put in place by {', '.join(places)}"
        for name, view, value in sides
        if (places := _layout_places(view, value))
    ]


def _layout_places(view: View, value: int) -> list[str]:
    graph = view.graph
    found: dict[str, None] = {}
    for _ in range(_FAR):
        index = graph.producer(value)
        if index is None or not graph.is_layout(index) or view.exists(value):
            break
        found[place_of(graph, index)] = None
        inputs = graph.op(index).inputs
        value = inputs[-1] if graph.base(index) == "write" else inputs[0]
    return list(found)[:_OTHERS]


def maker(graph: Graph, value: int) -> str:
    """Return the operation that computed a value, behind what only laid it out; '' for none."""
    for _ in range(_FAR):
        index = graph.producer(value)
        if index is None:
            return graph.trace.sources.get(value, "")
        inputs = graph.op(index).inputs
        if not graph.is_layout(index) or not inputs:
            return place_of(graph, index)
        value = inputs[-1] if graph.base(index) == "write" else inputs[0]
    return ""


def place_of(graph: Graph, index: int) -> str:
    """Return an operation with the function and the line that called it."""
    functions = graph.functions(index)
    if not functions:
        return graph.name(index)
    file = functions[0].file.rpartition("/")[2]
    return f"{graph.name(index)} in {functions[0].name} ({file}:{graph.op(index).line})"


def long_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without its axes of length 1."""
    return tuple(n for n in shape if n != 1)


def _dtypes_differ(one: Graph, other: int, two: Graph, index: int) -> str | None:
    if "_to_copy" in {one.base(other), two.base(index)}:
        graph, cast = (two, index) if two.base(index) == "_to_copy" else (one, other)
        op = graph.op(cast)
        names = [graph.value(v).dtype for v in (op.inputs[0], op.outputs[0])]
        return f"{_side_name(graph is two)} casts {names[0]} to {names[1]} before it goes on"
    pairs = [
        tuple(graph.value(v).dtype for v in (*graph.data_inputs(i), *graph.op(i).outputs[:1]))
        for graph, i in ((one, other), (two, index))
    ]
    left, right = (set(pair) for pair in pairs)
    if left == right:
        return None
    return f"computed in {' and '.join(sorted(left))} there, in {' and '.join(sorted(right))} here"


def _side_name(is_candidate: bool) -> str:
    return "the candidate" if is_candidate else "the reference"


def _hashes(graph: Graph, index: int) -> list[str]:
    return [graph.value(v).hash for v in graph.op(index).inputs]


def _other_kernel(one: Graph, other: int, two: Graph, index: int) -> bool:
    """Return True if one side calls a kernel where the other one computes attention by hand."""
    if _is_kernel(one, other) == _is_kernel(two, index):
        return False
    graph, step = (two, index) if _is_kernel(one, other) else (one, other)
    behind = next((seen.op for seen in graph.trace.attentions if seen.op >= step), None)
    if behind is None or _is_kernel(graph, behind):
        return False
    return _attention_of(graph, step) is not None or graph.module(behind) == graph.module(step)


def _is_kernel(graph: Graph, index: int) -> bool:
    name = graph.base(index)
    return "scaled_dot_product" in name or "flash_attn" in name


# --- masks ----------------------------------------------------------------------------------------


def _mask_differs(blamed: Blamed) -> list[str] | None:
    """Return how the masks differ, if the suspect lies in an attention whose mask does."""
    assert blamed.suspect is not None
    one, two = blamed.there.graph, blamed.here.graph
    index = blamed.suspect.op
    place = _attention_of(two, index)
    if place is None or len(one.trace.attentions) != len(two.trace.attentions):
        return None
    seen = one.trace.attentions[place], two.trace.attentions[place]
    said = masks.difference(*seen, two.trace.real_rows)
    if not said:
        return None
    views = (blamed.there, seen[0]), (blamed.here, seen[1])
    told = [said]
    for name, (view, attention), makers in zip(
        ("there", "here"), views, blamed.makers, strict=True
    ):
        mask = _mask_of(view.graph, attention)
        if mask is None:
            told.append(f"{name} it has no mask")
            continue
        told.append(f"{name} the mask is from {maker(view.graph, mask)}")
        if (first := view.first_made(mask)) is not None:
            makers.append(first)
            told.append(f"what only {name} is made for it begins at {place_of(view.graph, first)}")
    return told


def _mask_of(graph: Graph, seen: Visibility) -> int | None:
    """Return the mask that an attention was given; None if it has none."""
    if _is_kernel(graph, seen.op):
        masked = [v for v in graph.op(seen.op).inputs[3:] if graph.is_index(v)]
        return _as_written(graph, masked[0]) if masked else None
    for index in range(seen.op, max(-1, seen.op - 16), -1):
        if graph.module(index) == graph.module(seen.op) and not graph.is_layout(index):
            places = [v for v in graph.op(index).inputs if graph.is_index(v)]
            places = [v for v in places if len(graph.value(v).shape) > 1]
            if places:
                return places[0]
    return None


def _as_written(graph: Graph, mask: int) -> int:
    """Return the boolean mask that sdpa itself turned into numbers, or the mask as it is."""
    index = graph.producer(mask)
    if index is None or graph.base(index) != "where":
        return mask
    first = graph.op(index).inputs[0]
    return first if graph.value(first).dtype == "bool" else mask


def _attention_of(graph: Graph, index: int) -> int | None:
    """Return the place of the attention that an operation masks, or computes with a mask."""
    op = graph.op(index)
    for place, seen in enumerate(graph.trace.attentions):
        if seen.op < index:
            continue
        if seen.op == index:
            return place
        if (graph.op(seen.op).chain, graph.op(seen.op).line) == (op.chain, op.line):
            return place  # a composite operation that was taken to pieces
        same = graph.module(seen.op) == graph.module(index)
        return place if same and _leads_to_scores(graph, index, seen) else None
    return None


def _leads_to_scores(graph: Graph, index: int, seen: Visibility) -> bool:
    """Return True if an operation is the product of query and key or stands behind it."""
    if graph.base(index) in _PRODUCTS:
        return True
    return any(
        graph.base(i) in _PRODUCTS and graph.module(i) == graph.module(seen.op)
        for i in range(max(0, index - 12), index)
    )


# --- words ----------------------------------------------------------------------------------------


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
        attention=_attention_story(graph, index),
    )


def _attention_story(graph: Graph, index: int) -> str:
    """Return the operations of the attention that an operation belongs to, up to its weights."""
    place = _attention_of(graph, index)
    if place is None:
        return ""
    last = graph.trace.attentions[place].op
    if _is_kernel(graph, last):
        return f"{graph.base(last)}({graph.arguments(last)})"
    first = next(
        (
            i
            for i in range(last, max(-1, last - 16), -1)
            if graph.base(i) in _PRODUCTS and graph.module(i) == graph.module(last)
        ),
        last,
    )
    steps = [i for i in range(first, last + 1) if not graph.is_layout(i)]
    return ", ".join(f"{graph.base(i)}({graph.arguments(i)})" for i in steps)


def _headline(kind: CauseKind, here: Side, there: Side | None, why: list[str]) -> str:
    if kind in {"weight", "buffer", "constant"} and here.tensor:
        name = here.tensor if here.tensor != "constant" else f"a constant in {_place(here)}"
        return f"{name} does not exist in {there.stack if there else 'the reference'}"
    told = f"{here.op} in {_place(here)}"
    if kind == "mask":
        return f"{_mask_words(why)}: {why[0]}"
    base = f"{told} has inputs that exist in {there.stack if there else 'the reference'}"
    if there is None:
        return f"{base} and an output that does not"
    return f"{base} and an output that does not; there it is {there.op} in {_place(there)}"


def _mask_words(why: list[str]) -> str:
    made = next((line for line in why if line.startswith("here the mask is from ")), "")
    return f"the mask from {made.partition('from ')[2]}" if made else "a mask that is not there"


def _place(side: Side) -> str:
    return f"{side.function} ({side.source.rpartition('/')[2]})" if side.function else "torch"


def _also(view: View, first: Suspect | None) -> Iterator[str]:
    others = [s for s in view.suspects if s != first]
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


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """Return how much of what two operations take is the same."""
    return len(one & other) / max(1, len(one | other))


def _same_module(one: str, other: str) -> bool:
    return one.rpartition(".")[2] == other.rpartition(".")[2]
