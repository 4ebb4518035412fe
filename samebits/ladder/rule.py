"""The rules that decide the kind of a difference from inputs, constants, rungs and tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import inf, log, sqrt
from typing import NamedTuple

from samebits.compare.describe import short, some
from samebits.compare.outcome import differing_items, differs, has_other_shape
from samebits.compare.phases import STORED
from samebits.compare.standing import LEAKED
from samebits.records.comparison import ItemComparison, SignalComparison
from samebits.records.ids import Signal
from samebits.records.ladder import (
    ON_LADDER,
    Constant,
    Decider,
    Flip,
    Kind,
    Ladder,
    LadderFile,
    LadderStep,
    Rule,
    Side,
    SplitJudgement,
)
from samebits.records.subject import Reason, Subject

CLEAR = 2.0
"""How many times farther from its own float64 a side must be to count as the worse one.

Two orders of the same sum are about equally far from the exact one (1.0 to 1.6 measured). A step in
a smaller dtype is 2**8 to 2**16 times as coarse, of which the rest of the layer leaves some.
"""

MIN_STANDARD_ERRORS = 4.0
"""Standard errors that the ratio must also be away from 1: of few elements any may be chance.

The logarithm of a ratio of two root mean squares over n elements each has a standard error of 1 /
sqrt(n).
"""


_HALF = 0.5
"""Share of a difference that float64 leaves at least where another function makes it, and no rounded table."""

OWN_RULES: frozenset[Signal] = frozenset({"inputs", "greedy", "state", *STORED, *ON_LADDER})
"""Signals that a rule below speaks for by name; every other one is a probe of the user's or an added
signal."""


class Evidence(NamedTuple):
    """Everything that was found about a pair."""

    signals: tuple[SignalComparison, ...]
    constants: tuple[Constant, ...] = ()
    steps: tuple[LadderStep, ...] = ()
    flips: tuple[Flip, ...] = ()
    splits: tuple[SplitJudgement, ...] = ()
    missing: str = ""
    """Why the ladder did not run; '' if it did."""
    unrepeated: str = ""
    """The cell whose logits differ from those of its own run; '' if there is none."""


_SCORES: frozenset[Signal] = frozenset({"logits", "decode"})


class Judgement(NamedTuple):
    """The kind of difference, the rule that decided, and why."""

    kind: Kind
    rule: Rule
    reason: str
    rests_on: tuple[Decider, ...] = ()
    """The differences that the rule rests on; () for rounding, which rests on all of them."""


def judgement(evidence: Evidence) -> Judgement:
    """Return the judgement of a pair that differs, by the first of these rules that applies."""
    return (
        _other_inputs(evidence)
        or _changed_constant(evidence)
        or _other_output(evidence)
        or _left_behind(evidence)
        or _unrepeated(evidence)
        or _not_finite(evidence)
        or _diverged(evidence)
        or _other_choice(evidence)
        or _unknown(evidence)
        or _other_result(evidence)
        or _uncovered(evidence)
        or _undecided(evidence)
        or _far_split(evidence)
        or _rounding(evidence)
    )


def _other_inputs(evidence: Evidence) -> Judgement | None:
    items = _differing_subjects(evidence.signals, "inputs")
    if not items:
        return None
    reason = f"the inputs differ: {some(map(str, items))}"
    return Judgement("diverged", "inputs", reason, _deciders(("inputs", item) for item in items))


def _changed_constant(evidence: Evidence) -> Judgement | None:
    changed = [c for c in evidence.constants if c.kind == "changed"]
    if not changed:
        return None
    names = some(f"{constant.name} ({constant.signal})" for constant in changed)
    reason = f"both sides start from different numbers, however small the difference: {names}"
    return Judgement("diverged", "stored constant", reason, _deciders(map(_of_constant, changed)))


def _unrepeated(evidence: Evidence) -> Judgement | None:
    """Return that the ladder did not reproduce the cells that were compared."""
    return Judgement("undecided", "nothing", evidence.unrepeated) if evidence.unrepeated else None


def _not_finite(evidence: Evidence) -> Judgement | None:
    step = next((s for s in evidence.steps if s.reason == Reason.NOT_FINITE), None)
    if step is None:
        return None
    reason = f"{_step_text(step)}: {step.note}"
    return Judgement("diverged", "not finite", reason, _deciders([_of_step(step)]))


def _diverged(evidence: Evidence) -> Judgement | None:
    """Return the difference that remains in float64: another function, if it reaches an output."""
    diverged = [step for step in evidence.steps if step.kind == "diverged"]
    if not diverged:
        return None
    if all(step.signal == "hidden_states" for step in diverged) and not _undecided(evidence):
        reason = (
            f"{_slope_text(diverged[0])}, while logits and decoding agree in float64: "
            "the layer's output is a different quantity, but what is computed from it is the same"
        )
        return Judgement("undecided", "nothing", reason, _deciders(map(_of_step, diverged)))
    step = max(diverged, key=lambda step: step.float64 or 0.0)
    reason = f"the difference is still there in float64: {_slope_text(step)}"
    prompts = {step.subject.prompt for step in diverged if step.signal != "hidden_states"}
    reaching = [step for step in diverged if not prompts or step.subject.prompt in prompts]
    return Judgement("diverged", "slope", reason, _deciders(map(_of_step, reaching)))


def _other_choice(evidence: Evidence) -> Judgement | None:
    """Return a flip between different scores, which is not rounding."""
    flip = next((flip for flip in evidence.flips if flip.other_scores), None)
    if flip is None:
        return None
    reason = (
        f"{flip.choice} of {flip.prompt} differs at {flip.rows} positions, and its scores also "
        "differ in float64"
    )
    return Judgement("diverged", "choice", reason)


def _other_output(evidence: Evidence) -> Judgement | None:
    """Return logits or an output that the candidate returns in another shape, or no longer.

    Logits and scores of decoding that are of another function weigh more.
    """
    if not evidence.unrepeated and any(
        step.kind == "diverged" and step.signal in _SCORES for step in evidence.steps
    ):
        return None
    items = list(differing_items(evidence.signals, "outputs"))
    regrouped = [item for item in items if item.reason == Reason.REGROUPED]
    missing = [i for i in items if i.candidate is None and i.reason != Reason.REGROUPED]
    if missing:
        names = some(item.name for item in missing)
        reason = f"forward no longer returns what it returns in the reference: {names}"
        return Judgement("diverged", "missing output", reason, _deciders(map(_of_output, missing)))
    logits = [i for i in differing_items(evidence.signals, "logits") if has_other_shape(i)]
    reshaped = [*regrouped, *(item for item in items if has_other_shape(item))]
    if not (logits or reshaped):
        return None
    names = some(f"{item.name} ({item.note})" for item in (*logits, *reshaped))
    reason = f"forward returns something else under the same name: {names}"
    differences = [*(("logits", item.subject) for item in logits), *map(_of_output, reshaped)]
    return Judgement("diverged", "shape", reason, _deciders(differences))


def _left_behind(evidence: Evidence) -> Judgement | None:
    """Return state that one side leaves behind, which changes what its next forward computes."""
    item = next(differing_items(evidence.signals, "state"), None)
    if item is None:
        return None
    text = f"prompt {item.subject.prompt} run again after all else: {item.note}"
    deciders = _deciders([("state", item.subject)])
    if item.reason == Reason.STATE:
        return Judgement("diverged", "state", text, deciders)
    return Judgement("undecided", "nothing", text, deciders)


def _other_result(evidence: Evidence) -> Judgement | None:
    """Return a part of a probe's result or of an added signal that has another shape or one side."""
    for signal in _others(evidence.signals):
        for item in filter(differs, signal.items):
            one_sided = item.outcome in ("only here", "only in reference")
            if one_sided or has_other_shape(item):
                reason = f"{signal.signal} {item.name}: {item.note}"
                deciders = _deciders([(signal.signal, item.subject)])
                return Judgement("diverged", "probe", reason, deciders)
    return None


def _others(signals: Iterable[SignalComparison]) -> Iterator[SignalComparison]:
    """Yield the signals that make a verdict and have no rule by name."""
    return (signal for signal in signals if signal.signal not in OWN_RULES)


def _unknown(evidence: Evidence) -> Judgement | None:
    unknown = [constant for constant in evidence.constants if constant.kind == "not known"]
    if unknown:
        names = some(constant.name for constant in unknown)
        reason = f"it is not known whether one side's numbers are the other's, rounded: {names}"
        return Judgement("undecided", "nothing", reason, _deciders(map(_of_constant, unknown)))
    if evidence.missing:
        return Judgement("undecided", "nothing", evidence.missing)
    return None


def _uncovered(evidence: Evidence) -> Judgement | None:
    """Return what differs and was not judged: no signal rounds because another one does."""
    covered = {_coverage(step.signal, step.subject) for step in evidence.steps}
    covered |= {(constant.signal, str(constant.subject)) for constant in evidence.constants}
    covered |= {("greedy", split.prompt) for split in evidence.splits}
    for signal in evidence.signals:
        for item in filter(differs, signal.items):
            if _coverage(signal.signal, item.subject) not in covered:
                reason = f"{signal.signal} of {item.subject} was not computed in the float64 check"
                deciders = _deciders([(signal.signal, item.subject)])
                return Judgement("undecided", "nothing", reason, deciders)
    blocked: list[str] = [
        s.signal for s in evidence.signals if s.outcome == "not compared" and not s.excused
    ]
    blocked += [
        f"{signal.signal} {item.name}"
        for signal in evidence.signals
        for item in signal.items
        if item.outcome == "not compared" and not item.excused
    ]
    if blocked:
        return Judgement("undecided", "nothing", f"{some(blocked)} could not be compared")
    return None


def _coverage(signal: str, subject: Subject) -> tuple[str, str]:
    """Return what one judgement covers: a stored tensor, an output, a part of a result, or a prompt."""
    if signal == "outputs" or signal in STORED:
        return signal, str(subject)
    return signal, subject.prompt_row or subject.tensor


def _undecided(evidence: Evidence) -> Judgement | None:
    undecided = [step for step in evidence.steps if step.kind == "undecided"]
    if not undecided:
        return None
    step = undecided[0]
    reason = f"{_slope_text(step)}: {step.note}"
    return Judgement("undecided", "nothing", reason, _deciders([_of_step(step)]))


def _far_split(evidence: Evidence) -> Judgement | None:
    far = next((split for split in evidence.splits if split.near_tie is False), None)
    if far is not None:
        explanation = far.note or (
            f"the margin of {short(far.margin or 0.0)} is more than twice the drift of "
            f"{short(far.drift or 0.0)}"
        )
        reason = (
            f"tokens differ at step {far.step} of {far.prompt}, which is not a near-tie: "
            f"{explanation}"
        )
        return Judgement("diverged", "tokens", reason, _of_tokens(evidence, far))
    unknown = next((split for split in evidence.splits if split.near_tie is None), None)
    if unknown is None:
        return None
    reason = (
        f"it is not known whether the split at step {unknown.step} of {unknown.prompt} is a "
        "near-tie: "
    )
    return Judgement("undecided", "nothing", reason + unknown.note, _of_tokens(evidence, unknown))


def _rounding(evidence: Evidence) -> Judgement:
    shrunk = [step for step in evidence.steps if step.kind == "rounding"]
    casts = [constant for constant in evidence.constants if constant.kind == "cast"]
    if not shrunk and not casts:
        return Judgement(
            "undecided", "nothing", "the float64 check computed no tensor that differs"
        )
    parts = [_casts_text(casts)] if casts else []
    if shrunk:
        step = max(shrunk, key=lambda step: step.ratio or 0.0)
        vanishes = "the difference goes away in float64"
        text = vanishes if step.float64 is not None else step.note
        parts.append(f"{text}: {_slope_text(step)}")
    if shrunk and all(step.float32 == 0 for step in shrunk):
        parts.append(
            "in float32 the numbers are the same: the two sides cast at different places, or the "
            "code of one of them depends on the dtype"
        )
    if evidence.flips:
        parts.append(_flips_text(evidence.flips))
    noisy = any(step.float64 is None for step in shrunk)
    rule: Rule = "dtype policy" if casts else "self-noise" if noisy else "slope"
    return Judgement("rounding", rule, "; ".join(parts))


def _casts_text(casts: list[Constant]) -> str:
    names = some(constant.name for constant in casts)
    return f"one side holds the other's numbers, rounded to a smaller dtype: {names}"


def _flips_text(flips: Sequence[Flip]) -> str:
    margin = max(flip.margin for flip in flips)
    rows = sum(flip.rows for flip in flips)
    return (
        f"{len(flips)} discrete choices flip at {rows} positions, with margins of "
        f"{short(margin)} at most"
    )


def is_left_over(ladder: Ladder) -> bool:
    """Return True if float64 leaves a part of a difference, as a rounded table does.

    Where the rest of the difference is small, what a table leaves can be as large as another function's difference.
    Then a tensor is the same in the variant's dtype and not in float64, or no tensor keeps half of its difference.
    """
    if ladder.kind == "undecided":
        return any(step.kind == "undecided" and step.float64 for step in ladder.steps)
    if ladder.kind != "diverged" or ladder.rule != "slope":
        return False
    stays = [step for step in ladder.steps if step.kind == "diverged"]
    is_hidden = any(step.own == 0 and step.float64 for step in ladder.steps)
    return is_hidden or all((step.ratio or 1.0) < _HALF for step in stays)


def lacks_float32(ladder: Ladder, files: tuple[LadderFile, LadderFile]) -> bool:
    """Return True if a side left out the float32 rung, and float64 alone left a step undecided."""
    dtype = files[0].cell.variant.dtype
    is_left_out = dtype != "float32" and any(
        file.failure is None and "float32" not in file.rungs for file in files
    )
    return is_left_out and any(
        step.kind == "undecided" and step.note != LEAKED for step in ladder.steps
    )


def worse(
    steps: Iterable[LadderStep], constants: Iterable[Constant]
) -> tuple[Side | None, float | None]:
    """Return the side that is clearly farther from its own float64, and how many times.

    The ratio is taken where the difference starts, prompt by prompt; after that, every layer adds
    its own rounding to both sides. A side that stores the coarser numbers is the worse one for that
    reason.
    """
    coarser = {constant.coarser for constant in constants if constant.kind == "cast"} - {None}
    if len(coarser) == 1:
        return coarser.pop(), None
    ratios: list[tuple[float, Side]] = []
    for step in starts(step for step in steps if step.signal in ON_LADDER):
        if step.errors is None:
            continue
        reference, candidate = step.errors.reference, step.errors.candidate
        side: Side = "reference" if reference > candidate else "candidate"
        small, large = sorted((reference, candidate))
        ratio = large / small if small else inf
        if large and ratio >= CLEAR and log(ratio) >= MIN_STANDARD_ERRORS / sqrt(step.errors.n):
            ratios.append((ratio, side))
    if not ratios or len({side for _, side in ratios}) > 1:
        return None, None
    ratio, side = max(ratios)
    return side, ratio


def starts(steps: Iterable[LadderStep]) -> Iterator[LadderStep]:
    """Yield the first step of each prompt that differs; steps are in the order of data flow."""
    prompts: set[str] = set()
    for step in steps:
        prompt = step.subject.prompt
        if step.own and prompt not in prompts:
            prompts.add(prompt)
            yield step


def _deciders(differences: Iterable[tuple[Signal, Subject]]) -> tuple[Decider, ...]:
    """Return the first difference of each signal, of layers the first in order of execution."""
    subjects: dict[Signal, list[Subject]] = {}
    for signal, subject in differences:
        subjects.setdefault(signal, []).append(subject)
    return tuple(
        Decider(signal=signal, subject=min(listed, key=lambda subject: subject.layer or 0))
        for signal, listed in subjects.items()
    )


def _of_step(step: LadderStep) -> tuple[Signal, Subject]:
    return step.signal, step.subject


def _of_constant(constant: Constant) -> tuple[Signal, Subject]:
    return constant.signal, constant.subject


def _of_output(item: ItemComparison) -> tuple[Signal, Subject]:
    return "outputs", item.subject


def _of_tokens(evidence: Evidence, split: SplitJudgement) -> tuple[Decider, ...]:
    subjects = _differing_subjects(evidence.signals, "greedy")
    return _deciders(("greedy", s) for s in subjects if s.prompt_row == split.prompt)


def _step_text(step: LadderStep) -> str:
    return f"{step.what} of {step.prompt}" if step.prompt else f"{step.signal} {step.what}"


def _slope_text(step: LadderStep) -> str:
    """Return a step's figures in the order of the ladder, from the native dtype upwards."""
    rungs = [("", step.own)]
    if step.float32 != step.own:
        rungs.append(("float32 ", step.float32))
    rungs.append(("float64 ", step.float64))
    figures = [f"{name}{short(size)}" for name, size in rungs if size is not None]
    return " ".join([_step_text(step), *filter(None, [" → ".join(figures)])])


def _differing_subjects(signals: Iterable[SignalComparison], name: Signal) -> list[Subject]:
    return [item.subject for item in differing_items(signals, name)]
