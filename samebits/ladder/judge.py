"""The precision ladder as the judge of a pair of cells that differs."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.compare.pair import Pair, TensorSource
from samebits.ladder.alignment import alignment, alignment_reason
from samebits.ladder.constants import constants
from samebits.ladder.decodes import with_observed
from samebits.ladder.distance import tensor_distance
from samebits.ladder.flips import flips
from samebits.ladder.rule import Evidence, judgement, worse
from samebits.ladder.steps import Climb, probe_steps, steps
from samebits.ladder.tokens import at_risk, judged_splits
from samebits.records.capture import Capture
from samebits.records.comparison import SignalComparison, TokenSplit
from samebits.records.ladder import Ladder, LadderFile, LadderStep
from samebits.records.tensor import TensorRef
from samebits_wire.rounding import shrinks

Files = tuple["LadderFile", "LadderFile"]


def ladder(
    reference: Capture,
    candidate: Capture,
    signals: tuple[SignalComparison, ...],
    splits: tuple[TokenSplit, ...],
    values: TensorSource,
    files: Files | None,
) -> Ladder:
    """Return the ladder's judgement of a pair; ``files`` is None if the ladder did not run."""
    missing = _missing(files)
    if files:
        forced = {row: facts.ids for row, facts in (reference.signals.greedy or {}).items()}
        files = (
            with_observed(files[0], reference, forced),
            with_observed(files[1], candidate, forced),
        )
    climb = Climb(Pair(reference, candidate, values), files) if files and not missing else None
    evidence = Evidence(
        signals=signals,
        constants=constants(signals, values),
        steps=steps(climb) if climb else (),
        flips=flips(climb) if climb else (),
        splits=judged_splits(reference, candidate, splits, values, climb),
        missing=missing,
        unrepeated="; ".join(_unrepeated_logits(climb, nearly=False)) if climb else "",
    )
    result = judgement(evidence)
    alignment_result = alignment(climb) if climb else None
    reason = result.reason
    if result.kind == "rounding" and alignment_result is not None and alignment_result.same:
        reason = f"{reason}; {alignment_reason(alignment_result)}"
    side, ratio = (
        worse(evidence.steps, evidence.constants) if result.kind == "rounding" else (None, None)
    )
    return Ladder(
        kind=result.kind,
        rule=result.rule,
        reason=reason,
        rests_on=result.rests_on,
        worse=side,
        worse_ratio=ratio,
        steps=evidence.steps,
        constants=evidence.constants,
        flips=evidence.flips,
        splits=evidence.splits,
        at_risk=at_risk(climb) if climb else (),
        alignment=alignment_result,
        notes=tuple(_notes(climb)) if climb else (),
        seconds=(files[0].seconds, files[1].seconds) if files else (0.0, 0.0),
    )


def informing_steps(
    reference: Capture, candidate: Capture, values: TensorSource, files: Files | None
) -> tuple[LadderStep, ...]:
    """Return the steps of the user's probes that only inform; none if the ladder did not run."""
    if files is None or _missing(files):
        return ()
    return probe_steps(Climb(Pair(reference, candidate, values), files), verdict=False)


def _missing(files: Files | None) -> str:
    """Return why nothing was computed on the rungs, '' if something was."""
    if files is None:
        return "the float64 check was not run"
    for where, file in zip(("the reference", "this cell"), files, strict=True):
        if file.failure is not None:
            message = file.failure.first_line
            if file.failure.type == "not asked":
                return f"the float64 check was not run for {where}: {message}"
            return f"{where} failed in the float64 check: {file.failure.type}: {message}"
    return ""


def _notes(climb: Climb) -> Iterator[str]:
    for where, file in zip(("reference", "this cell"), climb.files, strict=True):
        for name, rung in file.rungs.items():
            for subject, reason in rung.refused.items():
                yield f"{where}, {name}: {subject}: {reason}"
            if rung.leaks:
                yield f"{where}, {name}: lower precision comes out of {', '.join(rung.leaks)}"
    yield from _unrepeated_logits(climb)


def _unrepeated_logits(climb: Climb, *, nearly: bool = True) -> Iterator[str]:
    """Yield the side and prompts for which the native rung's logits differ from the run's.

    ``nearly``: those, too, whose logits come so near that the difference of the sides is another one. LAPACK,
    for example, computes singular values in another way below a dispatch mode, as torch then asks for vectors.
    """
    for where, capture, file in zip(
        ("the reference", "this cell"),
        (climb.pair.reference, climb.pair.candidate),
        climb.files,
        strict=True,
    ):
        others = [
            prompt
            for prompt, facts in (capture.signals.forward or {}).items()
            if (again := _own_logits(file, prompt)) is not None
            and facts.logits is not None
            and again.hash != facts.logits.hash
            and (nearly or not _comes_near(climb, prompt, facts.logits, again))
        ]
        if others:
            yield f"{where}: the logits are not those of the first run: {', '.join(others)}"


def _comes_near(climb: Climb, prompt: str, first: TensorRef, again: TensorRef) -> bool:
    """Return True if two runs of one side differ by nothing, next to the difference of the two sides."""
    values = climb.pair.values
    reference, candidate = (
        facts.logits if facts else None for facts in climb.pair.forwards(prompt)
    )
    runs = tensor_distance(first, again, values)
    sides = tensor_distance(reference, candidate, values)
    if runs is None or sides is None or not runs.finite_alike:
        return False
    return shrinks(sides.max_abs, runs.max_abs)


def _own_logits(file: LadderFile, prompt: str) -> TensorRef | None:
    rung = file.rungs.get("own")
    forward = rung.forward.get(prompt) if rung else None
    return forward.logits if forward else None
