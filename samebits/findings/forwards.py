"""SB912 to SB914, SB934: rules for what a forward takes, draws and returns."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.compare.outcome import differing_items, has_other_size
from samebits.findings.case import Case
from samebits.findings.rule import UNSTABLE, Rule, Sighting
from samebits.records.capture import ForwardFacts


def _other_output(case: Case) -> Iterator[Sighting]:
    """Find outputs that hold another quantity where layers and logits agree but for rounding."""
    if case.ladder is None or not case.has_diverged:
        return
    steps = [step for step in case.ladder.steps if step.kind in ("diverged", "undecided")]
    if any(step.signal != "outputs" for step in steps):
        return
    if case.first() not in ("outputs", "hidden_states", "logits"):
        return  # other inputs, weights or tables explain it
    changed = {str(step.subject): step for step in steps if step.kind == "diverged"}
    evidence: dict[str, str] = {}
    for item in differing_items(case.signals, "outputs"):
        tensor = item.subject.tensor
        if has_other_size(item):
            evidence.setdefault(tensor, f"{item.name}: {item.note}")
        elif (step := changed.get(str(item.subject))) is not None:
            evidence.setdefault(tensor, f"{item.name}: {step.own:.2g} → float64 {step.float64:.2g}")
    if evidence:
        yield Sighting(", ".join(evidence), tuple(evidence.values()))


def _one_more_argument(case: Case) -> Iterator[Sighting]:
    """Find arguments without which forward raises or gives different logits here, and not in the reference."""
    lines: dict[str, list[str]] = {}
    for prompt, name, facts, before in _omissions(case):
        omission, other = facts.omitted[name], before.omitted.get(name)
        if name not in facts.optional or (name in before.optional and other is None):
            continue
        what = f"raises {omission.message}" if omission.message else "gives other logits"
        without = "gives the same logits" if other else "takes no such argument"
        lines.setdefault(name, []).append(
            f"{prompt}: without {name} forward {what}; the reference {without}"
        )
    for name, evidence in lines.items():
        yield Sighting(f"forward({name}=…)", tuple(evidence))


def _argument_left_out(case: Case) -> Iterator[Sighting]:
    """Find prompts whose logits are those of the reference once an argument is added that it does not use."""
    lines: dict[str, list[str]] = {}
    for prompt, name, facts, before in _omissions(case):
        logits = before.logits
        if name in facts.optional or logits is None or logits.hash != facts.omitted[name].complete:
            continue
        lines.setdefault(name, []).append(
            f"{prompt}: with {name} the logits have the bytes of the reference, without it they differ"
        )
    for name, evidence in lines.items():
        yield Sighting(f"forward({name}=…)", tuple(evidence))


def _omissions(case: Case) -> Iterator[tuple[str, str, ForwardFacts, ForwardFacts]]:
    """Yield prompt, argument and both sides' facts where leaving out the argument has an effect here alone."""
    before = case.reference.signals.forward if case.reference is not None else None
    for prompt, facts in (case.capture.signals.forward or {}).items():
        if before is None or prompt not in before:
            continue
        for name, omission in facts.omitted.items():
            of_reference = before[prompt].omitted.get(name)
            if omission.effect != "none" and (
                of_reference is None or of_reference.effect == "none"
            ):
                yield prompt, name, facts, before[prompt]


def _drawn(case: Case) -> Iterator[Sighting]:
    """Find what draws random numbers in evaluation mode, if the forward gives other bytes each time."""
    state = case.capture.signals.state
    if state is None or state.repeats or not state.draws:
        return
    lines = (f"{draw.place} in {draw.function}: {draw.op}" for draw in state.draws)
    yield Sighting(state.draws[0].place, tuple(lines))


RULES = (
    Rule("SB912", _other_output, explains=frozenset({"outputs"})),
    Rule("SB913", _one_more_argument),
    Rule("SB914", _argument_left_out, explains=frozenset({"hidden_states", "logits"})),
    Rule("SB934", _drawn, explains=UNSTABLE),
)
