"""What do inputs, constants, rungs and tokens say together?"""

from __future__ import annotations

from math import inf, log, sqrt
from typing import TYPE_CHECKING, NamedTuple

from samebits.compare.amounts import short, some
from samebits.compare.outcome import differs
from samebits.records.ids import EXPLANATORY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from samebits.records.comparison import SignalComparison
    from samebits.records.ladder import (
        Constant,
        Flip,
        Kind,
        Ladder,
        LadderStep,
        Rule,
        Side,
        SplitJudgement,
    )

CLEAR = 2.0
"""How many times farther from its own float64 a side must be to be called the worse one.

Two orders of the same sum are about as far from the exact one (1.0 to 1.6 measured); a step in
a smaller dtype is 2**8 to 2**16 times as coarse, of which the rest of the layer leaves some.
"""

CHANCE = 4.0
"""Standard errors that it must also be away from 1: of a few elements any ratio is chance.

The logarithm of a ratio of two root mean squares over n elements each has one of 1 / sqrt(n).
"""


class Found(NamedTuple):
    """All that was found of a pair."""

    signals: tuple[SignalComparison, ...]
    constants: tuple[Constant, ...] = ()
    steps: tuple[LadderStep, ...] = ()
    flips: tuple[Flip, ...] = ()
    splits: tuple[SplitJudgement, ...] = ()
    missing: str = ""
    """Why the ladder was not climbed; '' if it was."""
    not_again: str = ""
    """Which cell's logits did not come out as in its own run; '' if all did."""


class Judgement(NamedTuple):
    """The kind of difference, the rule that decided, and why."""

    kind: Kind
    rule: Rule
    reason: str


def judgement(found: Found) -> Judgement:
    """Return what is said of a pair that differs; the first of these rules that speaks."""
    return (
        _inputs(found)
        or _changed_constant(found)
        or _not_again(found)
        or _not_finite(found)
        or _diverged(found)
        or _other_choice(found)
        or _not_known(found)
        or _uncovered(found)
        or _undecided(found)
        or _far_split(found)
        or _rounding(found)
    )


def _inputs(found: Found) -> Judgement | None:
    items = _items(found.signals, "inputs")
    if not items:
        return None
    reason = f"other inputs are fed: {some(items)}"
    return Judgement("diverged", "inputs", reason)


def _changed_constant(found: Found) -> Judgement | None:
    changed = [c for c in found.constants if c.kind == "changed"]
    if not changed:
        return None
    names = some(f"{constant.name} ({constant.signal})" for constant in changed)
    reason = f"both sides start from other numbers, whatever their size: {names}"
    return Judgement("diverged", "stored constant", reason)


def _not_again(found: Found) -> Judgement | None:
    """Return that the ladder looked at something else than the cells that were compared."""
    return Judgement("undecided", "nothing", found.not_again) if found.not_again else None


def _not_finite(found: Found) -> Judgement | None:
    step = next((s for s in found.steps if s.kind == "diverged" and "finite" in s.note), None)
    if step is None:
        return None
    return Judgement("diverged", "not finite", f"{_named(step)}: {step.note}")


def _diverged(found: Found) -> Judgement | None:
    """Return what stays apart in float64: another function, if it reaches logits or tokens."""
    diverged = [step for step in found.steps if step.kind == "diverged"]
    if not diverged:
        return None
    if all(step.what.startswith("layer") for step in diverged) and not _undecided(found):
        reason = (
            f"{_slope(diverged[0])}, while logits and decoding agree in float64: the layer hands "
            "on another quantity, and what is made of it is the same"
        )
        return Judgement("undecided", "nothing", reason)
    step = max(diverged, key=lambda step: step.float64 or 0.0)
    reason = f"the difference is there in float64, too: {_slope(step)}"
    return Judgement("diverged", "slope", reason)


def _other_choice(found: Found) -> Judgement | None:
    """Return what a flip says whose sides do not choose from the same scores: it is no rounding."""
    other = next((flip for flip in found.flips if flip.other_scores), None)
    if other is None:
        return None
    reason = (
        f"{other.choice} of {other.prompt} comes out differently at {other.rows} positions, and "
        "the scores that it chooses from are not the same in float64"
    )
    return Judgement("diverged", "choice", reason)


def _not_known(found: Found) -> Judgement | None:
    unknown = [constant for constant in found.constants if constant.kind == "not known"]
    if unknown:
        names = some(constant.name for constant in unknown)
        reason = f"whether one side's numbers are the other's, rounded, cannot be told: {names}"
        return Judgement("undecided", "nothing", reason)
    if found.missing:
        return Judgement("undecided", "nothing", found.missing)
    return None


def _uncovered(found: Found) -> Judgement | None:
    """Return what differs and was not seen on the ladder: each prompt's signals must be."""
    looked = {(step.prompt, step.what.partition(" ")[0]) for step in found.steps}
    words = {"hidden_states": "layer", "logits": "logits", "decode": "decode"}
    for signal, word in words.items():
        for name in _items(found.signals, signal):
            if (name.partition(" · ")[0], word) not in looked:
                reason = f"{signal} of {name} was not seen on the ladder"
                return Judgement("undecided", "nothing", reason)
    bearing = [signal for signal in found.signals if signal.signal not in EXPLANATORY]
    held: list[str] = [s.signal for s in bearing if s.outcome == "not compared" and not s.excused]
    held += [
        f"{signal.signal} {item.name}"
        for signal in bearing
        for item in signal.items
        if item.outcome == "not compared" and not item.excused
    ]
    if held:
        return Judgement("undecided", "nothing", f"{some(held)} could not be compared")
    return None


def _undecided(found: Found) -> Judgement | None:
    undecided = [step for step in found.steps if step.kind == "undecided"]
    if not undecided:
        return None
    step = undecided[0]
    return Judgement("undecided", "nothing", f"{_slope(step)}: {step.note}")


def _far_split(found: Found) -> Judgement | None:
    far = next((split for split in found.splits if split.near_tie is False), None)
    if far is not None:
        why = far.note or (
            f"the margin of {short(far.margin or 0.0)} is more than twice the drift of "
            f"{short(far.drift or 0.0)}"
        )
        reason = f"tokens part at step {far.step} of {far.prompt}, which is no near-tie: {why}"
        return Judgement("diverged", "tokens", reason)
    unknown = next((split for split in found.splits if split.near_tie is None), None)
    if unknown is None:
        return None
    reason = f"whether the split at step {unknown.step} of {unknown.prompt} is a near-tie: "
    return Judgement("undecided", "nothing", reason + unknown.note)


def _rounding(found: Found) -> Judgement:
    shrunk = [step for step in found.steps if step.kind == "rounding"]
    casts = [constant for constant in found.constants if constant.kind == "cast"]
    if not shrunk and not casts:
        return Judgement("undecided", "nothing", "nothing that differs was seen on the ladder")
    parts = [_said_of_casts(casts)] if casts else []
    if shrunk:
        step = max(shrunk, key=lambda step: step.ratio or 0.0)
        gone = "the difference goes away in float64"
        told = gone if step.float64 is not None else step.note
        parts.append(f"{told}: {_slope(step)}")
    if shrunk and all(step.float32 == 0 for step in shrunk):
        parts.append(
            "in float32 the numbers are the same: the sides cast at other places, or one of them "
            "asks for the dtype"
        )
    if found.flips:
        parts.append(_said_of_flips(found.flips))
    noisy = any(step.float64 is None for step in shrunk)
    rule: Rule = "dtype policy" if casts else "self-noise" if noisy else "slope"
    return Judgement("rounding", rule, "; ".join(parts))


def _said_of_casts(casts: list[Constant]) -> str:
    names = some(constant.name for constant in casts)
    return f"one side holds the other's numbers, rounded to a smaller dtype: {names}"


def _said_of_flips(flips: Sequence[Flip]) -> str:
    widest = max(flip.margin for flip in flips)
    rows = sum(flip.rows for flip in flips)
    return (
        f"{len(flips)} discrete choices flip at {rows} positions, with margins of "
        f"{short(widest)} at most"
    )


def is_left_over(ladder: Ladder) -> bool:
    """Return True if float64 left a part of a difference, as a rounded table does."""
    return ladder.kind == "undecided" and any(
        step.kind == "undecided" and step.float64 for step in ladder.steps
    )


def worse(
    steps: Iterable[LadderStep], constants: Iterable[Constant]
) -> tuple[Side | None, float | None]:
    """Return the side that is clearly farther from its own float64, and how many times.

    It is looked for where the difference starts, prompt by prompt; behind that, every layer
    adds its own rounding to both sides. A side that stores the coarser numbers is the worse one
    by that alone.
    """
    coarser = {constant.coarser for constant in constants if constant.kind == "cast"} - {None}
    if len(coarser) == 1:
        return coarser.pop(), None
    found: list[tuple[float, Side]] = []
    for step in starts(steps):
        if step.errors is None:
            continue
        mine, theirs = step.errors.reference, step.errors.candidate
        side: Side = "reference" if mine > theirs else "candidate"
        small, large = sorted((mine, theirs))
        ratio = large / small if small else inf
        if large and ratio >= CLEAR and log(ratio) >= CHANCE / sqrt(step.errors.n):
            found.append((ratio, side))
    if not found or len({side for _, side in found}) > 1:
        return None, None
    ratio, side = max(found)
    return side, ratio


def starts(steps: Iterable[LadderStep]) -> Iterator[LadderStep]:
    """Yield the first step of each prompt that differs: steps come in the order of data flow."""
    seen: set[str] = set()
    for step in steps:
        prompt = step.prompt.partition("[")[0]
        if step.own and prompt not in seen:
            seen.add(prompt)
            yield step


def _named(step: LadderStep) -> str:
    return f"{step.what} of {step.prompt}"


def _slope(step: LadderStep) -> str:
    """Return a step's figures as one reads a ladder: from the own dtype upwards."""
    rungs = [("", step.own)]
    if step.float32 != step.own:
        rungs.append(("float32 ", step.float32))
    rungs.append(("float64 ", step.float64))
    told = [f"{name}{short(size)}" for name, size in rungs if size is not None]
    return f"{_named(step)} {' → '.join(told)}"


def _items(signals: Iterable[SignalComparison], name: str) -> list[str]:
    return [
        item.name
        for signal in signals
        if signal.signal == name
        for item in signal.items
        if differs(item)
    ]
