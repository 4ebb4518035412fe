"""What do two runs' evidence of one prompt say of rope, attention and layers?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from samebits.compare.facts import call_changes, material_changes, paired_calls
from samebits.compare.forwards import same_inputs
from samebits.compare.metrics import differing
from samebits.compare.outcome import differs
from samebits.diagnose.positions import SAME, Seen, compared, first_row

if TYPE_CHECKING:
    from samebits.compare.pair import Pair
    from samebits.diagnose.positions import Ranges
    from samebits.records.capture import AttentionCall, Capture
    from samebits.records.comparison import SignalComparison
    from samebits.records.evidence import AttentionTensors, PromptEvidence, RotaryTable
    from samebits.records.tensor import TensorRef

ENTERING = ("query", "key", "value")
UNKNOWN = Seen(same=None, what="not observed")


@dataclass(frozen=True)
class Attention:
    """One attention computation on both sides."""

    module: str
    reference: dict[str, TensorRef]
    candidate: dict[str, TensorRef]
    parts: dict[str, Seen]
    """``query``, ``key``, ``value``, ``mask`` and ``output`` that both sides saw."""

    @property
    def entering(self) -> bool | None:
        """True if query, key and value are known to be the same; False if one differs."""
        found = [self.parts.get(part, UNKNOWN).same for part in ENTERING]
        return False if False in found else None if None in found else True

    @property
    def leaving(self) -> bool | None:
        """True if the output is known to be the same."""
        return self.parts.get("output", UNKNOWN).same


@dataclass(frozen=True)
class LayerSeen:
    """The output of one layer on both sides, or what enters the first."""

    index: int
    names: tuple[str, ...]
    """One, or those of both sides."""
    same: bool | None

    def holds(self, module: str) -> bool:
        """Return True if ``module`` is part of this layer."""
        return any(module.startswith(f"{name}.") for name in self.names)


@dataclass(frozen=True)
class Flow:
    """The evidence of one prompt on both sides."""

    pair: Pair
    prompt: str
    signals: dict[str, SignalComparison]

    @cached_property
    def is_comparable(self) -> bool:
        """True if both sides ran a forward over the prompt and were fed the same."""
        return None not in self.pair.forwards(self.prompt) and same_inputs(self.pair, self.prompt)

    @cached_property
    def _evidence(self) -> tuple[PromptEvidence, PromptEvidence] | None:
        sides = self.pair.reference.signals.evidence, self.pair.candidate.signals.evidence
        found = [side.prompts.get(self.prompt) if side is not None else None for side in sides]
        if not self.is_comparable or found[0] is None or found[1] is None:
            return None
        return found[0], found[1]

    @cached_property
    def _ranges(self) -> Ranges:
        forward, _ = self.pair.forwards(self.prompt)
        return forward.real_rows if forward is not None else None

    def why_not(self, what: str) -> str:
        """Return why something was not observed: ``rotary``, ``attention`` or ``eager``."""
        if not self.is_comparable:
            return "other inputs were fed, or one side ran no forward"
        told = []
        for where, capture in (("there", self.pair.reference), ("here", self.pair.candidate)):
            evidence = capture.signals.evidence
            skip = evidence.skips.get(what) if evidence is not None else "nothing was taken along"
            told += [f"{where}: {skip}"] if skip else []
        return "; ".join(told) or "nothing was seen"

    # --- rope -------------------------------------------------------------------------------

    def rotary(self) -> dict[str, Seen]:
        """Return how the rotary tables compare, by part: the set of contents, as for inv_freq."""
        if self._evidence is None:
            return {}
        mine, theirs = (_tables(side.rotary) for side in self._evidence)
        found = {}
        for part in mine:
            if part in theirs:
                found[part] = self._table(part, mine[part], theirs[part])
        return found

    def _table(self, part: str, mine: list[TensorRef], theirs: list[TensorRef]) -> Seen:
        known = {ref.hash for ref in mine} & {ref.hash for ref in theirs}
        left = [[ref for ref in side if ref.hash not in known] for side in (mine, theirs)]
        if not left[0] and not left[1]:
            return SAME
        if len(left[0]) != len(left[1]):
            n = f"{len(mine)} different tables → {len(theirs)}"
            return Seen(same=None, what=n)
        for a, b in zip(*left, strict=True):
            seen = compared(a, b, self.pair.values, self._ranges)
            if seen.same is not True:
                return self._with_numbers(part, seen, a, b)
        return SAME

    def _with_numbers(self, part: str, seen: Seen, a: TensorRef, b: TensorRef) -> Seen:
        """Return ``seen`` with the numbers at the first position that differs."""
        if seen.first is None:
            return seen
        rows = [first_row(ref, self.pair.values, seen.first) for ref in (a, b)]
        shown = f"position {seen.first}: {rows[0]} in the reference, {rows[1]} here"
        return replace(seen, what=f"{seen.what} ({part} at {shown})") if all(rows) else seen

    # --- attention --------------------------------------------------------------------------

    @cached_property
    def attention(self) -> tuple[Attention, ...]:
        """The attention computations of both sides, in order of execution; () if not comparable."""
        if self._evidence is None:
            return ()
        mine, theirs = (side.attention for side in self._evidence)
        if len(mine) != len(theirs):
            return ()
        calls = self._calls()
        by_hand = calls if len(calls) == len(mine) else [None] * len(mine)
        return tuple(
            self._attention(a, b, call) for a, b, call in zip(mine, theirs, by_hand, strict=True)
        )

    def _attention(
        self,
        a: AttentionTensors,
        b: AttentionTensors,
        call: tuple[AttentionCall, AttentionCall] | None,
    ) -> Attention:
        parts = {
            part: compared(a.tensors[part], b.tensors[part], self.pair.values, self._ranges)
            for part in a.tensors
            if part in b.tensors
        }
        query = parts.get("query")
        if call is not None and query is not None and query.same is False:
            parts["query"] = self._unscaled(a.tensors["query"], b.tensors["query"], call) or query
        return Attention(b.module, a.tensors, b.tensors, parts)

    def _unscaled(
        self, a: TensorRef, b: TensorRef, call: tuple[AttentionCall, AttentionCall]
    ) -> Seen | None:
        """Return that queries are the same but for the scale, which by hand may come first."""
        mine, theirs = call
        sdpa = mine.sdpa or theirs.sdpa
        values = self.pair.values
        if (mine.sdpa is None) == (theirs.sdpa is None) or sdpa is None or a.shape != b.shape:
            return None
        if not (values.has(a) and values.has(b)) or a.dtype != b.dtype:
            return None
        fused, by_hand = (a, b) if mine.sdpa is not None else (b, a)
        scale = sdpa.scale if sdpa.scale is not None else a.shape[-1] ** -0.5
        plain = values.tensor(fused)
        if differing(plain * plain.dtype.type(scale), values.tensor(by_hand)).any():
            return None
        where = "here" if by_hand is b else "in the reference"
        return Seen(same=True, what=f"the same, {where} already times {scale:.4g}")

    def _calls(self) -> list[tuple[AttentionCall, AttentionCall]]:
        sides = (self.pair.reference.signals.attention, self.pair.candidate.signals.attention)
        mine, theirs = (s.calls.get(self.prompt, ()) if s is not None else () for s in sides)
        return paired_calls(mine, theirs)

    def calling(self, place: int | None = None) -> list[str]:
        """Return in which ways attention is computed or called otherwise, each once.

        ``place`` is that of one computation, in order of execution; None means all of them.
        """
        calls = self._calls()
        if place is not None and place < len(calls) == len(self.attention):
            calls = [calls[place]]
        found = (told for one, other in calls for told in _call_changes(one, other))
        return list(dict.fromkeys(found))

    @property
    def is_call_seen(self) -> bool:
        """True if both sides' attention calls were watched."""
        return bool(self._calls())

    # --- layers -----------------------------------------------------------------------------

    @cached_property
    def layers(self) -> tuple[LayerSeen, ...]:
        """The layers of the prompt, what enters the first of them as number 0."""
        signal = self.signals.get("hidden_states")
        found = []
        for item in signal.items if signal is not None else ():
            prompt, _, rest = item.name.rpartition(" · layer ")
            number, _, names = rest.partition(" (")
            if prompt != self.prompt or not number.isdigit():
                continue
            known = differs(item) or item.outcome == "identical"
            same = not differs(item) if known else None
            told = tuple(names.removesuffix(")").split(" → "))
            found.append(LayerSeen(int(number), told, same))
        return tuple(sorted(found, key=lambda layer: layer.index))

    @property
    def embeddings(self) -> LayerSeen | None:
        """What enters the first layer."""
        first = self.layers[0] if self.layers else None
        return first if first is not None and "embeddings" in first.names else None

    # --- logits -----------------------------------------------------------------------------

    def logits(self) -> bool | None:
        """Return whether the logits of the prompt are the same."""
        signal, forwards = self.signals.get("logits"), self.pair.forwards(self.prompt)
        refs = [forward.logits if forward is not None else None for forward in forwards]
        if signal is None or refs[0] is None or refs[1] is None or not self.is_comparable:
            return None
        if refs[0].hash == refs[1].hash:
            return True
        item = next((i for i in signal.items if i.name == self.prompt), None)
        if item is not None and item.outcome == "not compared":
            return None
        return item is None or not differs(item)

    def eager(self) -> bool | None:
        """Return whether the logits are the same with attention forced to eager on both sides."""
        if self._evidence is None:
            return None
        refs = [self._eager_ref(here) for here in (False, True)]
        if refs[0] is None or refs[1] is None:
            return None
        return compared(refs[0], refs[1], self.pair.values, self._ranges).same

    def _eager_ref(self, here: bool) -> TensorRef | None:
        """Return one side's logits with eager attention, forced or as it is anyway."""
        assert self._evidence is not None
        if _is_eager(self.pair.candidate if here else self.pair.reference):
            forward = self.pair.forwards(self.prompt)[here]
            return forward.logits if forward is not None else None
        return self._evidence[here].eager_logits

    @property
    def is_eager_anyway(self) -> bool:
        """True if both sides resolve to eager attention, so that forcing it changes nothing."""
        return _is_eager(self.pair.reference) and _is_eager(self.pair.candidate)


def _is_eager(capture: Capture) -> bool:
    attention = capture.signals.attention
    return attention is not None and attention.resolved == "eager"


def _call_changes(one: AttentionCall, other: AttentionCall) -> list[str]:
    changes = material_changes(one, other)
    if (one.sdpa is None) != (other.sdpa is None):  # then no argument has a counterpart
        changes = [change for change in changes if change.what in ("computed", "aten")]
    else:
        changes += [c for c in call_changes(one, other) if c.what == "sdpa.enable_gqa"]
    told = ((c.what.removeprefix("sdpa."), c.reference, c.candidate) for c in changes)
    return [f"{what} {_shown(before)} → {_shown(after)}" for what, before, after in told]


def _shown(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _tables(rotary: tuple[RotaryTable, ...]) -> dict[str, list[TensorRef]]:
    """Return the tables by part, each content once."""
    found: dict[str, dict[str, TensorRef]] = {}
    for table in rotary:
        found.setdefault(table.part, {}).setdefault(table.ref.hash, table.ref)
    return {part: list(refs.values()) for part, refs in found.items()}
