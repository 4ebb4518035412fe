"""The hunt for the cause of a difference: each suspect is ruled in or out, in order of data flow.

A suspect is ruled out only if its bytes (or, for code and arguments, its facts) were compared on
both sides and are the same. It is ruled in if it differs and everything that it is computed from is
the same. A difference after another difference follows from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from samebits.compare.describe import amount, some
from samebits.compare.outcome import differing_items, differs
from samebits.compare.pair import Pair, TensorSource
from samebits.diagnose.code import config, library_code, own_code
from samebits.diagnose.flow import ATTENTION_INPUTS, Attention, Flow, LayerOutput
from samebits.diagnose.positions import first_row
from samebits.records.capture import Capture
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.finding import ROPE_TABLES, Status, Step
from samebits.records.ids import Signal

ROPE = ROPE_TABLES
QKV = "query, key and value"
ATTENTION = "attention"
EAGER = "attention forced to eager"
EMBEDDINGS = "embeddings"
LAYERS = "layers"
OUTPUTS = "other outputs"
ROOTS: tuple[Signal, ...] = ("inputs", "weights", "buffers", "inv_freq")
"""The signals that exist before anything is computed."""


def steps(
    reference: Capture,
    candidate: Capture,
    signals: Iterable[SignalComparison],
    values: TensorSource,
) -> tuple[Step, ...]:
    """Return the hunt for the cause of a difference between two runs; () if nothing differs."""
    by_name: dict[str, SignalComparison] = {signal.signal: signal for signal in signals}
    if not any(signal.outcome == "differs" for signal in by_name.values()):
        return ()
    pair = Pair(reference, candidate, values)
    return tuple(_Hunt(pair, by_name).steps())


class _Hunt:
    """Examines the suspects in order and records which of them differ."""

    def __init__(self, pair: Pair, signals: dict[str, SignalComparison]) -> None:
        self._pair = pair
        self._signals = signals
        self._flow = Flow(pair, _chosen_prompt(pair, signals), signals)
        self._differing: dict[str, None] = {}
        self._origins: set[str] = set()
        self._decoding_only = not self._in_forward()

    def steps(self) -> Iterator[Step]:
        reference, candidate = self._pair.reference, self._pair.candidate
        own_files = own_code(reference, candidate)
        yield from [own_files] if own_files is not None else []
        yield library_code(reference, candidate)
        yield config(reference, candidate)
        for signal in ROOTS:
            yield self._root_signal(signal)
        yield self._embeddings()
        yield self._rope()
        yield self._attention_inputs()
        yield self._attention()
        eager = self._eager()
        yield from [eager] if eager is not None else []
        yield self._layers()
        yield self._logits()
        yield from self._outputs()
        yield self._decode()

    def _in_forward(self) -> bool:
        """Return True if a full forward differs; False if only decoding does."""
        return any(self._signals[s].outcome == "differs" for s in self._signals if s in _FORWARD)

    @property
    def _elsewhere(self) -> str:
        """What differs if no full forward does: decoding, state, or a probe of the user's."""
        decodes = (self._signals.get(name) for name in ("decode", "greedy"))
        if any(signal is not None and signal.outcome == "differs" for signal in decodes):
            return "decoding"
        state = self._signals.get("state")
        if state is not None and state.outcome == "differs":
            return "what a forward leaves behind"
        return "a probe"

    def _step(self, suspect: str, status: Status, what: str) -> Step:
        """Return a step on a full forward; it rules nothing out if none differs."""
        if self._decoding_only and status in ("ruled out", "open"):
            text = f"{what}; observed in a full forward, but only {self._elsewhere} differs"
            return Step(suspect=suspect, status="not observed", what=text)
        return Step(suspect=suspect, status=status, what=what)

    def _differs(self, suspect: str, what: str, needs: Iterable[str] = ()) -> Step:
        """Record a suspect that differs and return its step."""
        causes = [name for name in needs if name in self._differing]
        self._differing[suspect] = None
        if causes:
            # suspects between the origin and this one add no information
            origins = [name for name in causes if name in self._origins] or causes[:1]
            return self._step(suspect, "follows", f"{what}; downstream of {', '.join(origins)}")
        self._origins.add(suspect)
        return self._step(suspect, "ruled in", what)

    # --- before anything is computed ----------------------------------------------------------

    def _root_signal(self, name: Signal) -> Step:
        signal = self._signals.get(name)
        if signal is None or signal.outcome == "not compared":
            reason = signal.note if signal is not None else "not compared"
            return Step(suspect=name, status="not observed", what=reason)
        n = signal.n_items
        if signal.outcome == "identical":
            what = f"all {n:,} hold the same bytes" if n > 1 else "the same bytes"
            return Step(suspect=name, status="ruled out", what=what)
        items = [item for item in signal.items if differs(item)]
        what = f"{signal.n_differ:,} of {n:,}: {some((i.name for i in items), 3)}"
        return self._differs(name, f"{what}: {self._detail(items[0])}")

    def _detail(self, item: ItemComparison) -> str:
        """Return the size of the difference, its first numbers, and whether it was ever written."""
        phrases = [amount(item)]
        if item.reference is not None and item.candidate is not None and item.metrics is not None:
            refs = (item.reference, item.candidate)
            rows = [first_row(ref, self._pair.values, 0) for ref in refs]
            if all(rows) and len(item.reference.shape) == len(item.candidate.shape) == 1:
                phrases.append(f"{rows[0]} in the reference, {rows[1]} in the candidate")
        buffers = self._pair.candidate.signals.buffers or {}
        name = item.subject.counterpart or item.subject.tensor
        if not item.subject.prompt and name in buffers and buffers[name].unwritten:
            phrases.append("never written in this cell")
        return "; ".join(phrases)

    # --- one forward --------------------------------------------------------------------------

    def _embeddings(self) -> Step:
        layer = self._flow.embeddings
        if layer is None or layer.same is None:
            return Step(
                suspect=EMBEDDINGS,
                status="not observed",
                what=self._missing_reason("no layers were observed"),
            )
        where = f"the input of the first layer ({self._prompt_text()})"
        if layer.same:
            return self._step(EMBEDDINGS, "ruled out", f"{where} is the same")
        return self._differs(EMBEDDINGS, f"{where} differs", ("inputs", "weights", "buffers"))

    def _rope(self) -> Step:
        tables = self._flow.rotary()
        if not tables:
            reason = self._flow.missing_reason("rotary")
            return Step(suspect=ROPE, status="not observed", what=reason)
        what = _grouped({part: table.what for part, table in tables.items()})
        verdicts = [table.same for table in tables.values()]
        if False in verdicts:
            return self._differs(ROPE, what, ("inputs", "buffers", "inv_freq"))
        if None in verdicts:
            return self._step(ROPE, "open", what)
        return self._step(ROPE, "ruled out", f"as computed ({self._prompt_text()}): {what}")

    def _attention_inputs(self) -> Step:
        attention = self._flow.attention
        if not attention:
            reason = self._flow.missing_reason("attention")
            return Step(suspect=QKV, status="not observed", what=reason)
        first = attention[0]
        by_part = {part: first.parts[part].what for part in ATTENTION_INPUTS if part in first.parts}
        what = f"entering {first.module}: {_grouped(by_part)}"
        if first.inputs_same is False:
            return self._differs(QKV, what, (*ROOTS, EMBEDDINGS, ROPE))
        later = next((a for a in attention if a.inputs_same is False), None)
        if later is None and first.inputs_same is None:
            return self._step(QKV, "open", what)
        if later is None:
            if all(a.inputs_same for a in attention):
                more = "; the same holds for the other layers" if len(attention) > 1 else ""
                return self._step(QKV, "ruled out", f"{what}{more}")
            if first.output_same is False:  # the inputs of later layers are downstream of it
                return self._step(QKV, "ruled out", what)
            what = f"{what}; the other layers could not be compared"
            return self._step(QKV, "open", what)
        return self._later_layer(what, later)

    def _later_layer(self, what: str, later: Attention) -> Step:
        """Return the step for attention inputs that first differ in a later layer."""
        parts = [
            part for part in ATTENTION_INPUTS if part in later.parts and not later.parts[part].same
        ]
        what = f"{what}; the first that differ are inputs of {later.module} ({', '.join(parts)})"
        layer_input = self._layer_before(later.module)
        if layer_input is not None and layer_input.same:
            return self._differs(QKV, what, (*ROOTS, ROPE))
        self._differing[QKV] = None
        return self._step(QKV, "follows", f"{what}; downstream of the output of earlier layers")

    def _attention(self) -> Step:
        attention = self._flow.attention
        first = next((a for a in attention if a.output_same is False), None)
        call_text = self._call_text(None if first is None else attention.index(first))
        if not attention:
            reason = self._flow.missing_reason("attention")
            return Step(suspect=ATTENTION, status="not observed", what=f"{call_text}; {reason}")
        if first is None:
            n = len(attention)
            if all(a.output_same for a in attention):
                what = f"the output is the same in all {n} of them; {call_text}"
                return self._step(ATTENTION, "ruled out", what)
            what = f"the output could not be compared in all of them; {call_text}"
            return self._step(ATTENTION, "open", what)
        mask = first.parts.get("mask")
        masked = f"; the mask: {mask.what}" if mask is not None and mask.same is False else ""
        what = f"{first.module}{masked}; {call_text}"
        earlier = attention[: attention.index(first)]
        if first.inputs_same is None or None in [a.output_same for a in earlier]:
            self._differing[ATTENTION] = None
            text = f"its output differs, but not everything before it could be compared: {what}"
            return self._step(ATTENTION, "open", text)
        if not first.inputs_same:
            self._differing[ATTENTION] = None
            return self._step(
                ATTENTION, "follows", f"its output differs, but so do its inputs: {what}"
            )
        text = f"the same query, key and value give different outputs: {what}"
        return self._differs(ATTENTION, text, self._roots_inside(first.module))

    def _roots_inside(self, module: str) -> list[str]:
        """Return the roots that differ inside a module: a bias per head, a sink, a stored mask."""
        tensors = (
            (root, item.subject.tensor)
            for root in ROOTS
            for item in self._items(root)
            if differs(item)
        )
        inside = (root for root, tensor in tensors if tensor.startswith(f"{module}."))
        return list(dict.fromkeys(inside))

    def _items(self, name: str) -> tuple[ItemComparison, ...]:
        signal = self._signals.get(name)
        return signal.items if signal is not None else ()

    def _call_text(self, place: int | None) -> str:
        if not self._flow.calls_observed:
            return "its calls were not observed"
        differences = self._flow.call_differences(place)
        return (
            f"called differently: {some(differences, 3)}"
            if differences
            else "called in the same way"
        )

    def _eager(self) -> Step | None:
        """Return the step of logits with attention forced to eager; None if the logits agree."""
        if self._flow.logits() is not False:
            return None
        if self._flow.is_eager_anyway:
            reason = "both sides use eager attention already"
            return Step(suspect=EAGER, status="not observed", what=reason)
        same = self._flow.eager()
        if same is None:
            return Step(
                suspect=EAGER, status="not observed", what=self._flow.missing_reason("eager")
            )
        if same:
            what = "both compute the same logits: the difference is in how attention is computed"
            return self._step(EAGER, "ruled in", what)
        if QKV in self._differing and self._flow.attention[0].inputs_same is False:
            what = "the logits still differ: the difference starts before attention"
            return self._step(EAGER, "ruled out", what)
        what = (
            "the logits still differ, which alone rules nothing out: eager attention or its mask "
            "may have changed"
        )
        return self._step(EAGER, "open", what)

    def _layers(self) -> Step:
        layers = [layer for layer in self._flow.layers if layer is not self._flow.embeddings]
        if not layers:
            return Step(
                suspect=LAYERS,
                status="not observed",
                what=self._missing_reason("no layers were observed"),
            )
        first = next((layer for layer in layers if layer.same is False), None)
        if first is None:
            if all(layer.same for layer in layers):
                what = f"the output of all {len(layers)} is the same ({self._prompt_text()})"
                return self._step(LAYERS, "ruled out", what)
            what = "not all of them could be compared"
            return self._step(LAYERS, "open", what)
        what = f"layer {first.index} ({' → '.join(first.names)}) is the first whose output differs"
        attention_same = [a.output_same for a in self._flow.attention if first.contains(a.module)]
        if False in attention_same:
            return self._differs(LAYERS, what, (ATTENTION,))
        if attention_same and None not in attention_same:
            text = f"{what}, but the output of its attention is the same: it starts elsewhere in the layer"
            return self._differs(LAYERS, text, ("weights", "buffers"))
        return self._differs(LAYERS, what, (*ROOTS, EMBEDDINGS, ROPE, QKV, ATTENTION))

    def _logits(self) -> Step:
        same = self._flow.logits()
        where = f"those of {self._prompt_text()}"
        if same is None:
            return Step(
                suspect="logits", status="not observed", what=self._missing_reason("not compared")
            )
        if same:
            return Step(suspect="logits", status="ruled out", what=f"{where} are the same")
        needs = (*ROOTS, EMBEDDINGS, ROPE, QKV, ATTENTION, LAYERS)
        layers_same = [layer.same for layer in self._flow.layers]
        if not layers_same or None in layers_same:
            self._differing["logits"] = None
            return Step(
                suspect="logits",
                status="open",
                what=f"{where} differ; the layers were not observed",
            )
        if all(layers_same):
            text = f"{where} differ, but the output of the last layer does not: final norm or head"
            return self._differs("logits", text, ("weights",))
        return self._differs("logits", f"{where} differ", needs)

    def _outputs(self) -> Iterator[Step]:
        signal = self._signals.get("outputs")
        if signal is None or signal.outcome == "not compared":
            return
        items = [item for item in signal.items if differs(item)]
        if not items:
            what = f"all {signal.n_items:,} hold the same bytes"
            yield Step(suspect=OUTPUTS, status="ruled out", what=what)
            return
        what = f"{items[0].name}: {amount(items[0])}"
        if not self._differing:
            what += "; the layers and the logits that were observed are the same"
        yield self._differs(OUTPUTS, what, tuple(self._differing))

    def _decode(self) -> Step:
        name = "decoding through the cache"
        signal = self._signals.get("decode")
        if signal is None or signal.outcome == "not compared":
            reason = signal.note if signal is not None else "not compared"
            return Step(suspect=name, status="not observed", what=reason)
        if signal.outcome == "identical":
            what = "the logits of every step are the same"
            return Step(suspect=name, status="ruled out", what=what)
        items = [item for item in signal.items if differs(item)]
        what = f"prompt {items[0].name}: {amount(items[0])}"
        if self._decoding_only and not self._differing:
            text = f"{what}, but the logits of full forwards are the same"
            return Step(suspect=name, status="ruled in", what=text)
        return self._differs(name, what, tuple(self._differing))

    # --- texts --------------------------------------------------------------------------------

    def _prompt_text(self) -> str:
        return f"prompt {self._flow.prompt}"

    def _missing_reason(self, default: str) -> str:
        return default if self._flow.is_comparable else self._flow.missing_reason("")

    def _layer_before(self, module: str) -> LayerOutput | None:
        """Return the output of the layer before the one that contains a module."""
        layers = self._flow.layers
        place = next((i for i, layer in enumerate(layers) if layer.contains(module)), 0)
        return layers[place - 1] if place else None


_FORWARD = frozenset(
    {"inputs", "weights", "buffers", "inv_freq", "hidden_states", "logits", "outputs"}
)


def _chosen_prompt(pair: Pair, signals: dict[str, SignalComparison]) -> str:
    """Return the first prompt whose forward differs, one without padding if possible."""
    prompts = [p for p in pair.prompts if _forward_differs(p, signals)] or list(pair.prompts)
    unpadded = [
        p for p in prompts if all(f is None or f.real_rows is None for f in pair.forwards(p))
    ]
    return next(iter(unpadded or prompts), "")


def _forward_differs(prompt: str, signals: dict[str, SignalComparison]) -> bool:
    items = differing_items(signals.values(), "hidden_states", "logits", "outputs")
    return any(item.subject.prompt == prompt for item in items)


def _grouped(texts: dict[str, str]) -> str:
    """Return ``query and key: the same; value: …``: parts with the same text together."""
    groups: dict[str, list[str]] = {}
    for part, text in texts.items():
        groups.setdefault(text, []).append(part)
    return "; ".join(f"{' and '.join(parts)}: {text}" for text, parts in groups.items())
