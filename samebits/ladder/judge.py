"""The precision ladder as the judge of a pair of cells that differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.compare.pair import Pair
from samebits.ladder.alignment import alignment, alignment_reason
from samebits.ladder.constants import constants
from samebits.ladder.flips import flips
from samebits.ladder.rule import Found, judgement, worse
from samebits.ladder.steps import Climb, steps
from samebits.ladder.tokens import at_risk, judged_splits
from samebits.records.ladder import Ladder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.compare.pair import TensorSource
    from samebits.records.capture import Capture
    from samebits.records.comparison import SignalComparison, TokenSplit
    from samebits.records.ladder import LadderFile

Files = tuple["LadderFile", "LadderFile"]


def ladder(
    reference: Capture,
    candidate: Capture,
    signals: tuple[SignalComparison, ...],
    splits: tuple[TokenSplit, ...],
    values: TensorSource,
    files: Files | None,
) -> Ladder:
    """Return what the ladder says of a pair; ``files`` is None where it was not climbed."""
    missing = _missing(files)
    climb = Climb(Pair(reference, candidate, values), files) if files and not missing else None
    found = Found(
        signals=signals,
        constants=constants(signals, values),
        steps=steps(climb) if climb else (),
        flips=flips(climb) if climb else (),
        splits=judged_splits(reference, candidate, splits, values, climb),
        missing=missing,
        not_again="; ".join(_not_again(climb)) if climb else "",
    )
    said = judgement(found)
    aligned = alignment(climb) if climb else None
    reason = said.reason
    if said.kind == "rounding" and aligned is not None and aligned.same:
        reason = f"{reason}; {alignment_reason(aligned)}"
    side, ratio = worse(found.steps, found.constants) if said.kind == "rounding" else (None, None)
    return Ladder(
        kind=said.kind,
        rule=said.rule,
        reason=reason,
        worse=side,
        worse_ratio=ratio,
        steps=found.steps,
        constants=found.constants,
        flips=found.flips,
        splits=found.splits,
        at_risk=at_risk(climb) if climb else (),
        alignment=aligned,
        notes=tuple(_notes(climb)) if climb else (),
        seconds=(files[0].seconds, files[1].seconds) if files else (0.0, 0.0),
    )


def _missing(files: Files | None) -> str:
    """Return why nothing was computed on the rungs, '' if something was."""
    if files is None:
        return "the ladder was not climbed"
    for where, file in zip(("the reference", "this cell"), files, strict=True):
        if file.failure is not None:
            said = file.failure.message.partition("\n")[0]
            if file.failure.type == "not asked":
                return f"{where} was not asked on the ladder: {said}"
            return f"{where} failed on the ladder: {file.failure.type}: {said}"
    return ""


def _notes(climb: Climb) -> Iterator[str]:
    for where, file in zip(("reference", "here"), climb.files, strict=True):
        for name, rung in file.rungs.items():
            for what, why in rung.refused.items():
                yield f"{where}, {name}: {what}: {why}"
            if rung.leaks:
                yield f"{where}, {name}: less precision comes out of {', '.join(rung.leaks)}"
    yield from _not_again(climb)


def _not_again(climb: Climb) -> Iterator[str]:
    """Yield which side's own rung gave other logits than its own run, and for which prompts."""
    for where, capture, file in zip(
        ("reference", "here"),
        (climb.pair.reference, climb.pair.candidate),
        climb.files,
        strict=True,
    ):
        others = [
            prompt
            for prompt, facts in (capture.signals.forward or {}).items()
            if (again := _own_logits(file, prompt)) is not None
            and facts.logits is not None
            and again != facts.logits.hash
        ]
        if others:
            yield f"{where}: the logits did not come out as before: {', '.join(others)}"


def _own_logits(file: LadderFile, prompt: str) -> str | None:
    rung = file.rungs.get("own")
    forward = rung.forward.get(prompt) if rung else None
    return forward.logits.hash if forward and forward.logits else None
