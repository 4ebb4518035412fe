"""The data flow of one prompt on both sides: rope, attention, layers and logits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from samebits.compare.facts import call_changes, material_changes, paired_calls
from samebits.compare.forwards import same_inputs
from samebits.compare.metrics import differing
from samebits.compare.outcome import differs
from samebits.diagnose.first import value_text
from samebits.diagnose.positions import SAME, Observed, compare_positions, first_row

if TYPE_CHECKING:
    from samebits.compare.pair import Pair
    from samebits.diagnose.positions import Ranges
    from samebits.records.capture import AttentionCall, Capture
    from samebits.records.comparison import SignalComparison
    from samebits.records.evidence import AttentionTensors, PromptEvidence, RotaryTable
    from samebits.records.tensor import TensorRef

ATTENTION_INPUTS = ("query", "key", "value")
UNKNOWN = Observed(same=None, what="not observed")


@dataclass(frozen=True)
class Attention:
    """One attention computation on both sides."""

    module: str
    reference: dict[str, TensorRef]
    candidate: dict[str, TensorRef]
    parts: dict[str, Observed]
    """``query``, ``key``, ``value``, ``mask`` and ``output``, if observed on both sides."""

    @property
    def inputs_same(self) -> bool | None:
        """True if query, key and value are known to be the same; False if one differs."""
        same = [self.parts.get(part, UNKNOWN).same for part in ATTENTION_INPUTS]
        return False if False in same else None if None in same else True

    @property
    def output_same(self) -> bool | None:
        """True if the output is known to be the same."""
        return self.parts.get("output", UNKNOWN).same


@dataclass(frozen=True)
class LayerOutput:
    """The output of one layer on both sides, or the input of the first."""

    index: int
    names: tuple[str, ...]
    """One name, or those of both sides."""
    same: bool | None

    def contains(self, module: str) -> bool:
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
        """True if both sides ran a forward over the prompt, with the same inputs."""
        return None not in self.pair.forwards(self.prompt) and same_inputs(self.pair, self.prompt)

    @cached_property
    def _evidence(self) -> tuple[PromptEvidence, PromptEvidence] | None:
        sides = self.pair.reference.signals.evidence, self.pair.candidate.signals.evidence
        prompts = [side.prompts.get(self.prompt) if side is not None else None for side in sides]
        if not self.is_comparable or prompts[0] is None or prompts[1] is None:
            return None
        return prompts[0], prompts[1]

    @cached_property
    def _ranges(self) -> Ranges:
        forward, _ = self.pair.forwards(self.prompt)
        return forward.real_rows if forward is not None else None

    def missing_reason(self, what: str) -> str:
        """Return why something was not observed: ``rotary``, ``attention`` or ``eager``."""
        if not self.is_comparable:
            return "the inputs differ, or one side ran no forward"
        reasons = []
        for where, capture in (
            ("in the reference", self.pair.reference),
            ("in this cell", self.pair.candidate),
        ):
            evidence = capture.signals.evidence
            skip = evidence.skips.get(what) if evidence is not None else "nothing was recorded"
            reasons += [f"{where}: {skip}"] if skip else []
        return "; ".join(reasons) or "nothing was observed"

    # --- rope -------------------------------------------------------------------------------

    def rotary(self) -> dict[str, Observed]:
        """Return the comparison of the rotary tables by part, as sets like those of inv_freq."""
        if self._evidence is None:
            return {}
        reference_tables, candidate_tables = (
            _tables_by_part(side.rotary) for side in self._evidence
        )
        by_part = {}
        for part in reference_tables:
            if part in candidate_tables:
                by_part[part] = self._table(part, reference_tables[part], candidate_tables[part])
        return by_part

    def _table(self, part: str, reference: list[TensorRef], candidate: list[TensorRef]) -> Observed:
        shared = {ref.hash for ref in reference} & {ref.hash for ref in candidate}
        rest = [[ref for ref in side if ref.hash not in shared] for side in (reference, candidate)]
        if not rest[0] and not rest[1]:
            return SAME
        if len(rest[0]) != len(rest[1]):
            counts = f"{len(reference)} different tables → {len(candidate)}"
            return Observed(same=None, what=counts)
        for a, b in zip(*rest, strict=True):
            observed = compare_positions(a, b, self.pair.values, self._ranges)
            if observed.same is not True:
                return self._with_row_texts(part, observed, a, b)
        return SAME

    def _with_row_texts(
        self, part: str, observed: Observed, a: TensorRef, b: TensorRef
    ) -> Observed:
        """Return ``observed`` with the numbers at the first position that differs."""
        if observed.first is None:
            return observed
        rows = [first_row(ref, self.pair.values, observed.first) for ref in (a, b)]
        place = f"position {observed.first}: {rows[0]} in the reference, {rows[1]} in the candidate"
        return (
            replace(observed, what=f"{observed.what} ({part} at {place})")
            if all(rows)
            else observed
        )

    # --- attention --------------------------------------------------------------------------

    @cached_property
    def attention(self) -> tuple[Attention, ...]:
        """The attention computations of both sides, in order of execution; () if not comparable."""
        if self._evidence is None:
            return ()
        reference, candidate = (side.attention for side in self._evidence)
        if len(reference) != len(candidate):
            return ()
        calls = self._calls()
        paired = calls if len(calls) == len(reference) else [None] * len(reference)
        return tuple(
            self._attention(a, b, call)
            for a, b, call in zip(reference, candidate, paired, strict=True)
        )

    def _attention(
        self,
        a: AttentionTensors,
        b: AttentionTensors,
        call: tuple[AttentionCall, AttentionCall] | None,
    ) -> Attention:
        parts = {
            part: compare_positions(
                a.tensors[part], b.tensors[part], self.pair.values, self._ranges
            )
            for part in a.tensors
            if part in b.tensors
        }
        query = parts.get("query")
        if call is not None and query is not None and query.same is False:
            parts["query"] = self._unscaled(a.tensors["query"], b.tensors["query"], call) or query
        return Attention(b.module, a.tensors, b.tensors, parts)

    def _unscaled(
        self, a: TensorRef, b: TensorRef, call: tuple[AttentionCall, AttentionCall]
    ) -> Observed | None:
        """Return that queries are equal except for the scale, which may be applied beforehand."""
        reference_call, candidate_call = call
        sdpa = reference_call.sdpa or candidate_call.sdpa
        values = self.pair.values
        if (
            (reference_call.sdpa is None) == (candidate_call.sdpa is None)
            or sdpa is None
            or a.shape != b.shape
        ):
            return None
        if not (values.has(a) and values.has(b)) or a.dtype != b.dtype:
            return None
        fused, by_hand = (a, b) if reference_call.sdpa is not None else (b, a)
        scale = sdpa.scale if sdpa.scale is not None else a.shape[-1] ** -0.5
        plain = values.tensor(fused)
        if differing(plain * plain.dtype.type(scale), values.tensor(by_hand)).any():
            return None
        where = "in the candidate" if by_hand is b else "in the reference"
        return Observed(same=True, what=f"the same, but {where} already multiplied by {scale:.4g}")

    def _calls(self) -> list[tuple[AttentionCall, AttentionCall]]:
        sides = (self.pair.reference.signals.attention, self.pair.candidate.signals.attention)
        reference_calls, candidate_calls = (
            s.calls.get(self.prompt, ()) if s is not None else () for s in sides
        )
        return paired_calls(reference_calls, candidate_calls)

    def call_differences(self, place: int | None = None) -> list[str]:
        """Return the ways in which attention is computed or called differently, each once.

        ``place`` is the position of one computation in order of execution; None means all of them.
        """
        calls = self._calls()
        if place is not None and place < len(calls) == len(self.attention):
            calls = [calls[place]]
        texts = (text for a, b in calls for text in _call_texts(a, b))
        return list(dict.fromkeys(texts))

    @property
    def calls_observed(self) -> bool:
        """True if the attention calls of both sides were observed."""
        return bool(self._calls())

    # --- layers -----------------------------------------------------------------------------

    @cached_property
    def layers(self) -> tuple[LayerOutput, ...]:
        """The layers of the prompt; the input of the first is number 0."""
        signal = self.signals.get("hidden_states")
        outputs = []
        for item in signal.items if signal is not None else ():
            subject = item.subject
            if subject.prompt != self.prompt or subject.layer is None:
                continue
            compared = differs(item) or item.outcome == "identical"
            same = not differs(item) if compared else None
            outputs.append(LayerOutput(subject.layer, subject.names, same))
        return tuple(sorted(outputs, key=lambda layer: layer.index))

    @property
    def embeddings(self) -> LayerOutput | None:
        """The input of the first layer."""
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
        item = next((i for i in signal.items if i.subject.prompt == self.prompt), None)
        if item is not None and item.outcome == "not compared":
            return None
        return item is None or not differs(item)

    def eager(self) -> bool | None:
        """Return whether the logits are the same with eager attention forced on both sides."""
        if self._evidence is None:
            return None
        refs = [self._eager_ref(is_candidate) for is_candidate in (False, True)]
        if refs[0] is None or refs[1] is None:
            return None
        return compare_positions(refs[0], refs[1], self.pair.values, self._ranges).same

    def _eager_ref(self, is_candidate: bool) -> TensorRef | None:
        """Return one side's logits with eager attention, forced or used in any case."""
        assert self._evidence is not None
        if _is_eager(self.pair.candidate if is_candidate else self.pair.reference):
            forward = self.pair.forwards(self.prompt)[is_candidate]
            return forward.logits if forward is not None else None
        return self._evidence[is_candidate].eager_logits

    @property
    def is_eager_anyway(self) -> bool:
        """True if both sides use eager attention already, so that forcing it changes nothing."""
        return _is_eager(self.pair.reference) and _is_eager(self.pair.candidate)


def _is_eager(capture: Capture) -> bool:
    attention = capture.signals.attention
    return attention is not None and attention.resolved == "eager"


def _call_texts(reference: AttentionCall, candidate: AttentionCall) -> list[str]:
    changes = material_changes(reference, candidate)
    # where only one side calls sdpa, the arguments have no counterpart
    if (reference.sdpa is None) != (candidate.sdpa is None):
        changes = [change for change in changes if change.what in ("computed", "aten")]
    else:
        changes += [c for c in call_changes(reference, candidate) if c.what == "sdpa.enable_gqa"]
    triples = ((c.what.removeprefix("sdpa."), c.reference, c.candidate) for c in changes)
    return [f"{what} {value_text(before)} → {value_text(after)}" for what, before, after in triples]


def _tables_by_part(rotary: tuple[RotaryTable, ...]) -> dict[str, list[TensorRef]]:
    """Return the tables by part, each content once."""
    by_part: dict[str, dict[str, TensorRef]] = {}
    for table in rotary:
        by_part.setdefault(table.part, {}).setdefault(table.ref.hash, table.ref)
    return {part: list(refs.values()) for part, refs in by_part.items()}
