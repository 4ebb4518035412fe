"""Which suspect is ruled in and which is ruled out, in the order in which a person would look?

The order is that in which data flows. A suspect is ruled out only where its bytes (or, for code
and arguments, its facts) were compared on both sides and are the same. It is ruled in where it
differs and nothing that it is computed from does; what differs behind another difference follows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.amounts import amount, some
from samebits.compare.outcome import differs
from samebits.compare.pair import Pair
from samebits.diagnose.code import config, library_code, own_code
from samebits.diagnose.flow import ENTERING, Flow
from samebits.diagnose.positions import first_row
from samebits.records.finding import ROPE_TABLES, Step

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.compare.pair import TensorSource
    from samebits.diagnose.flow import Attention, LayerSeen
    from samebits.records.capture import Capture
    from samebits.records.comparison import ItemComparison, SignalComparison
    from samebits.records.finding import Status
    from samebits.records.ids import Signal

ROPE = ROPE_TABLES
ENTERS = "query, key and value"
ATTENTION = "attention"
EAGER = "attention forced to eager"
EMBEDDINGS = "embeddings"
LAYERS = "layers"
ROOTS: tuple[Signal, ...] = ("inputs", "weights", "buffers", "inv_freq")
"""What is there before anything is computed."""


def steps(
    reference: Capture,
    candidate: Capture,
    signals: Iterable[SignalComparison],
    values: TensorSource,
) -> tuple[Step, ...]:
    """Return the hunt for the cause of a difference between two runs; () if nothing differs."""
    told: dict[str, SignalComparison] = {signal.signal: signal for signal in signals}
    if not any(signal.outcome == "differs" for signal in told.values()):
        return ()
    pair = Pair(reference, candidate, values)
    return tuple(_Hunt(pair, told).steps())


class _Hunt:
    """Walks through the suspects and remembers which of them differ."""

    def __init__(self, pair: Pair, signals: dict[str, SignalComparison]) -> None:
        self._pair = pair
        self._signals = signals
        self._flow = Flow(pair, _prompt(pair, signals), signals)
        self._different: dict[str, None] = {}
        self._begins: set[str] = set()
        self._decoding_only = not self._in_forward()

    def steps(self) -> Iterator[Step]:
        reference, candidate = self._pair.reference, self._pair.candidate
        own = own_code(reference, candidate)
        yield from [own] if own is not None else []
        yield library_code(reference, candidate)
        yield config(reference, candidate)
        for signal in ROOTS:
            yield self._root(signal)
        yield self._embeddings()
        yield self._rope()
        yield self._entering()
        yield self._attention()
        eager = self._eager()
        yield from [eager] if eager is not None else []
        yield self._layers()
        yield self._logits()
        yield self._decode()

    def _in_forward(self) -> bool:
        """Return True if some full forward differs: otherwise only decoding does."""
        return any(self._signals[s].outcome == "differs" for s in self._signals if s in _FORWARD)

    def _step(self, suspect: str, status: Status, what: str) -> Step:
        """Return a step on what a full forward showed; of decoding it rules nothing out."""
        if self._decoding_only and status in ("ruled out", "open"):
            text = f"{what}; seen in a full forward, while only decoding differs"
            return Step(suspect=suspect, status="not observed", what=text)
        return Step(suspect=suspect, status=status, what=what)

    def _differs(self, suspect: str, what: str, needs: Iterable[str] = ()) -> Step:
        """Return the step of something that differs, and remember it."""
        before = [name for name in needs if name in self._different]
        self._different[suspect] = None
        if before:
            # what lies between adds nothing to where it comes from
            origins = [name for name in before if name in self._begins] or before[:1]
            return self._step(suspect, "follows", f"{what}; downstream of {', '.join(origins)}")
        self._begins.add(suspect)
        return self._step(suspect, "ruled in", what)

    # --- what is there before anything is computed --------------------------------------------

    def _root(self, name: Signal) -> Step:
        signal = self._signals.get(name)
        if signal is None or signal.outcome == "not compared":
            why = signal.note if signal is not None else "not compared"
            return Step(suspect=name, status="not observed", what=why)
        n = signal.n_items
        if signal.outcome == "identical":
            what = f"all {n:,} hold the same bytes" if n > 1 else "the same bytes"
            return Step(suspect=name, status="ruled out", what=what)
        items = [item for item in signal.items if differs(item)]
        what = f"{signal.n_differ:,} of {n:,}: {some((i.name for i in items), 3)}"
        return self._differs(name, f"{what}: {self._detail(items[0])}")

    def _detail(self, item: ItemComparison) -> str:
        """Return how far apart an item is, its first numbers, and whether anything wrote it."""
        told = [amount(item)]
        if item.reference is not None and item.candidate is not None and item.metrics is not None:
            refs = (item.reference, item.candidate)
            rows = [first_row(ref, self._pair.values, 0) for ref in refs]
            if all(rows) and len(item.reference.shape) == len(item.candidate.shape) == 1:
                told.append(f"{rows[0]} in the reference, {rows[1]} here")
        buffers = self._pair.candidate.signals.buffers or {}
        name = item.name.rpartition(" → ")[2]
        if name in buffers and buffers[name].unwritten:
            told.append("nothing ever wrote it here")
        return "; ".join(told)

    # --- one forward --------------------------------------------------------------------------

    def _embeddings(self) -> Step:
        seen = self._flow.embeddings
        if seen is None or seen.same is None:
            return Step(suspect=EMBEDDINGS, status="not observed", what=self._why("no layers seen"))
        where = f"what enters the first layer ({self._of_prompt()})"
        if seen.same:
            return self._step(EMBEDDINGS, "ruled out", f"{where} is the same")
        return self._differs(EMBEDDINGS, f"{where} differs", ("inputs", "weights", "buffers"))

    def _rope(self) -> Step:
        found = self._flow.rotary()
        if not found:
            why = self._flow.why_not("rotary")
            return Step(suspect=ROPE, status="not observed", what=why)
        what = _joined({part: seen.what for part, seen in found.items()})
        verdicts = [seen.same for seen in found.values()]
        if False in verdicts:
            return self._differs(ROPE, what, ("inputs", "buffers", "inv_freq"))
        if None in verdicts:
            return self._step(ROPE, "open", what)
        return self._step(ROPE, "ruled out", f"as computed ({self._of_prompt()}): {what}")

    def _entering(self) -> Step:
        attention = self._flow.attention
        if not attention:
            why = self._flow.why_not("attention")
            return Step(suspect=ENTERS, status="not observed", what=why)
        first = attention[0]
        told = {part: first.parts[part].what for part in ENTERING if part in first.parts}
        what = f"entering {first.module}: {_joined(told)}"
        if first.entering is False:
            return self._differs(ENTERS, what, (*ROOTS, EMBEDDINGS, ROPE))
        other = next((a for a in attention if a.entering is False), None)
        if other is None and first.entering is None:
            return self._step(ENTERS, "open", what)
        if other is None:
            if all(a.entering for a in attention):
                more = "; likewise in the other layers" if len(attention) > 1 else ""
                return self._step(ENTERS, "ruled out", f"{what}{more}")
            if first.leaving is False:  # what enters later layers is downstream of that
                return self._step(ENTERS, "ruled out", what)
            what = f"{what}; in other layers it could not be compared"
            return self._step(ENTERS, "open", what)
        return self._later(what, other)

    def _later(self, what: str, other: Attention) -> Step:
        """Return the step where a later layer's attention is the first to be entered otherwise."""
        parts = [part for part in ENTERING if part in other.parts and not other.parts[part].same]
        what = f"{what}; the first that differ enter {other.module} ({', '.join(parts)})"
        before = self._before(other.module)
        if before is not None and before.same:
            return self._differs(ENTERS, what, (*ROOTS, ROPE))
        self._different[ENTERS] = None
        return self._step(ENTERS, "follows", f"{what}; downstream of what leaves earlier layers")

    def _attention(self) -> Step:
        attention = self._flow.attention
        first = next((a for a in attention if a.leaving is False), None)
        called = self._called(None if first is None else attention.index(first))
        if not attention:
            why = self._flow.why_not("attention")
            return Step(suspect=ATTENTION, status="not observed", what=f"{called}; {why}")
        if first is None:
            n = len(attention)
            if all(a.leaving for a in attention):
                what = f"what leaves it is the same in all {n} of them; {called}"
                return self._step(ATTENTION, "ruled out", what)
            what = f"what leaves it could not be compared everywhere; {called}"
            return self._step(ATTENTION, "open", what)
        mask = first.parts.get("mask")
        masked = f"; the mask: {mask.what}" if mask is not None and mask.same is False else ""
        what = f"{first.module}{masked}; {called}"
        before = attention[: attention.index(first)]
        if first.entering is None or None in [a.leaving for a in before]:
            self._different[ATTENTION] = None
            told = f"what leaves it differs, and not all before that could be compared: {what}"
            return self._step(ATTENTION, "open", told)
        if not first.entering:
            self._different[ATTENTION] = None
            return self._step(
                ATTENTION, "follows", f"what leaves it differs, and so does what enters it: {what}"
            )
        told = f"the same query, key and value give other outputs: {what}"
        return self._differs(ATTENTION, told, self._roots_inside(first.module))

    def _roots_inside(self, module: str) -> list[str]:
        """Return which roots differ inside a module: a bias per head, a sink, a stored mask."""
        names = ((root, item.name) for root in ROOTS for item in self._items(root) if differs(item))
        return list(dict.fromkeys(root for root, name in names if name.startswith(f"{module}.")))

    def _items(self, name: str) -> tuple[ItemComparison, ...]:
        signal = self._signals.get(name)
        return signal.items if signal is not None else ()

    def _called(self, place: int | None) -> str:
        if not self._flow.is_call_seen:
            return "how it is called was not seen"
        found = self._flow.calling(place)
        return f"called otherwise: {some(found, 3)}" if found else "called in the same way"

    def _eager(self) -> Step | None:
        """Return the step of logits with attention forced to eager; None where logits agree."""
        if self._flow.logits() is not False:
            return None
        if self._flow.is_eager_anyway:
            why = "both sides resolve to eager attention anyway"
            return Step(suspect=EAGER, status="not observed", what=why)
        same = self._flow.eager()
        if same is None:
            return Step(suspect=EAGER, status="not observed", what=self._flow.why_not("eager"))
        if same:
            what = "both compute the same logits: the difference is in how attention is computed"
            return self._step(EAGER, "ruled in", what)
        if ENTERS in self._different and self._flow.attention[0].entering is False:
            what = "the logits still differ: it begins before attention"
            return self._step(EAGER, "ruled out", what)
        what = "the logits still differ, which alone rules nothing out: eager code or its mask may have changed"
        return self._step(EAGER, "open", what)

    def _layers(self) -> Step:
        layers = [layer for layer in self._flow.layers if layer is not self._flow.embeddings]
        if not layers:
            return Step(suspect=LAYERS, status="not observed", what=self._why("no layers seen"))
        first = next((layer for layer in layers if layer.same is False), None)
        if first is None:
            if all(layer.same for layer in layers):
                what = f"the output of all {len(layers)} is the same ({self._of_prompt()})"
                return self._step(LAYERS, "ruled out", what)
            what = "not all of them could be compared"
            return self._step(LAYERS, "open", what)
        what = f"layer {first.index} ({' → '.join(first.names)}) is the first whose output differs"
        inside = [a.leaving for a in self._flow.attention if first.holds(a.module)]
        if False in inside:
            return self._differs(LAYERS, what, (ATTENTION,))
        if inside and None not in inside:
            told = f"{what}, and what leaves its attention is the same: it is made elsewhere in it"
            return self._differs(LAYERS, told, ("weights", "buffers"))
        return self._differs(LAYERS, what, (*ROOTS, EMBEDDINGS, ROPE, ENTERS, ATTENTION))

    def _logits(self) -> Step:
        same = self._flow.logits()
        where = f"those of {self._of_prompt()}"
        if same is None:
            return Step(suspect="logits", status="not observed", what=self._why("not compared"))
        if same:
            return Step(suspect="logits", status="ruled out", what=f"{where} are the same")
        needs = (*ROOTS, EMBEDDINGS, ROPE, ENTERS, ATTENTION, LAYERS)
        seen = [layer.same for layer in self._flow.layers]
        if not seen or None in seen:
            self._different["logits"] = None
            return Step(
                suspect="logits", status="open", what=f"{where} differ; layers were not seen"
            )
        if all(seen):
            told = f"{where} differ, and what leaves the last layer does not: final norm or head"
            return self._differs("logits", told, ("weights",))
        return self._differs("logits", f"{where} differ", needs)

    def _decode(self) -> Step:
        name = "decoding through the cache"
        signal = self._signals.get("decode")
        if signal is None or signal.outcome == "not compared":
            why = signal.note if signal is not None else "not compared"
            return Step(suspect=name, status="not observed", what=why)
        if signal.outcome == "identical":
            what = "the logits of every step are the same"
            return Step(suspect=name, status="ruled out", what=what)
        items = [item for item in signal.items if differs(item)]
        what = f"prompt {items[0].name}: {amount(items[0])}"
        if self._decoding_only and not self._different:
            told = f"{what}, while the logits of full forwards are the same"
            return Step(suspect=name, status="ruled in", what=told)
        return self._differs(name, what, tuple(self._different))

    # --- words --------------------------------------------------------------------------------

    def _of_prompt(self) -> str:
        return f"prompt {self._flow.prompt}"

    def _why(self, otherwise: str) -> str:
        return otherwise if self._flow.is_comparable else self._flow.why_not("")

    def _before(self, module: str) -> LayerSeen | None:
        """Return what was seen of the input of the layer that a module is part of."""
        layers = self._flow.layers
        place = next((i for i, layer in enumerate(layers) if layer.holds(module)), 0)
        return layers[place - 1] if place else None


_FORWARD = frozenset({"inputs", "weights", "buffers", "inv_freq", "hidden_states", "logits"})


def _prompt(pair: Pair, signals: dict[str, SignalComparison]) -> str:
    """Return the first prompt whose forward differs, one without padding if there is one."""
    found = [p for p in pair.prompts if _forward_differs(p, signals)] or list(pair.prompts)
    plain = [p for p in found if all(f is None or f.real_rows is None for f in pair.forwards(p))]
    return next(iter(plain or found), "")


def _forward_differs(prompt: str, signals: dict[str, SignalComparison]) -> bool:
    items = [i for s in ("hidden_states", "logits") if s in signals for i in signals[s].items]
    return any(
        differs(item) and (item.name == prompt or item.name.startswith(f"{prompt} · layer "))
        for item in items
    )


def _joined(told: dict[str, str]) -> str:
    """Return ``query and key: the same; value: …``: parts of which the same is said together."""
    groups: dict[str, list[str]] = {}
    for part, what in told.items():
        groups.setdefault(what, []).append(part)
    return "; ".join(f"{' and '.join(parts)}: {what}" for what, parts in groups.items())
