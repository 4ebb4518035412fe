"""The result of a run in one sentence: how many models fail, change, round, and are identical."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from samebits.compare.registry import signal_names
from samebits.diagnose.everywhere import is_everywhere
from samebits.diagnose.exit_code import FAIL, INCOMPLETE, PASS, UNASKED
from samebits.questions import questions
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import Report
from samebits.reports.answer.of_model import WORST_FIRST, answer, kind_of
from samebits.reports.beside import limits_beside
from samebits.reports.stories import is_reference
from samebits.text.numbers import count, plural

_WORDS = {
    Verdict.FAILED: ("fails", "fail"),
    Verdict.UNSTABLE: ("is unstable", "are unstable"),
    Verdict.DIVERGED: ("changes behaviour", "change behaviour"),
    Verdict.UNDECIDED: (
        "differs and may change behaviour",
        "differ and may change behaviour",
    ),
    Verdict.NOT_FINISHED: ("is not finished", "are not finished"),
    Verdict.NOT_OBSERVED: ("is not compared", "are not compared"),
    Verdict.FIXED: ("no longer differs as listed", "no longer differ as listed"),
    Verdict.ROUNDING: ("only rounds", "only round"),
    Verdict.IDENTICAL: ("is identical", "are identical"),
}
"""Verdict of a model -> words: for one model, for several."""
_QUIET = (Verdict.ROUNDING, Verdict.IDENTICAL)


def result(report: Report, *, with_limits: bool = True) -> str:
    """Return the result: for one model, what changed in it; for many, how many do what.

    With limits, it ends with how far a result holds that passes.
    """
    text = _of_one(report) if len(report.models) == 1 else _of_many(report)
    return "; ".join(filter(None, (text, *(passing(report) if with_limits else ()))))


def _of_many(report: Report) -> str:
    counts = _counts(report)
    new = [*_phrases(counts[False])]
    expected = [*_phrases(counts[True])]
    quiet = ", ".join([*_phrases(counts[False], _QUIET), *_alone(report)])
    parts = [f"{'new: ' if expected else ''}{', '.join(new)}"] if new else []
    if expected:
        parts += [f"{'' if new else 'nothing new; '}known: {', '.join(expected)}"]
    parts += [quiet] if quiet else []
    text = "; ".join(parts) or "nothing was compared"
    if report.exit_code == INCOMPLETE:
        text = f"incomplete: {text}"
    elif report.exit_code == FAIL and not new:
        text = f"fails: {_why(report)}; {text}"
    return text


def passing(report: Report) -> tuple[str, ...]:
    """Return how far a result holds that passes: what did not run, and the defects beside the verdict."""
    if report.exit_code not in (PASS, UNASKED):
        return ()
    strict = f"exit code {UNASKED}, as asked" if report.exit_code == UNASKED else ""
    limits = (question.limit(report) for question in questions() if question.limit is not None)
    return tuple(filter(None, (strict, *limits, *limits_beside(report))))


def _of_one(report: Report) -> str:
    worst = answer(report)
    if worst is None:
        if report.exit_code == INCOMPLETE:
            return "incomplete: nothing that was compared differs, but not everything was"
        passes = report.exit_code in (PASS, UNASKED)
        whole = "both releases" if len(report.stacks) == 2 else "every release that has it"
        return f"{same(report)} in {whole}" if passes else _why(report)
    prefix = "known: " if worst.is_known else ""
    releases = f"{worst.before} → {worst.after}: " if worst.before else ""
    return f"{prefix}{releases}{worst.change}"


def same(report: Report) -> str:
    """Return what is the same in a run in which nothing differs: bits, or what a folder without a model holds."""
    compared = [cell for cell in report.cells if cell.judged is Verdict.IDENTICAL]
    signals = {s.signal for cell in compared for s in cell.signals if s.outcome == "identical"}
    if signals and signals.isdisjoint(signal_names()):
        return compared[-1].headline
    return "same bits"


def _why(report: Report) -> str:
    """Return why a run does not pass in which no model fails."""
    broken = [stack.id for stack in report.stacks if stack.failure]
    if broken:
        return f"{', '.join(broken)} could not be built"
    gone = sum(bool(entry.fixed) for entry in report.expected)
    if gone:
        return f"{plural(gone, 'known difference')} no longer occurs"
    return report.reasons[0] if report.reasons else "nothing was compared"


def _counts(report: Report) -> dict[bool, Counter[Verdict]]:
    """Return the models by their worst verdict: False, those that are new or quiet; True, known ones."""
    models: dict[str, list[CellResult]] = {}
    for cell in report.cells:
        models.setdefault(cell.cell.model, []).append(cell)
    counts: dict[bool, Counter[Verdict]] = {False: Counter(), True: Counter()}
    for cells in models.values():
        failing = [cell for cell in cells if not cell.verdict.passes or is_everywhere(cell)]
        expected = [cell for cell in cells if cell.verdict is Verdict.EXPECTED]
        worst = _worst(failing) or _worst(expected) or _worst(cells)
        if worst is not None:
            counts[not failing and bool(expected)][worst] += 1
    return counts


def in_one_release(report: Report) -> set[str]:
    """Return the models that only one release has, so that nothing is compared."""
    cells = [cell for cell in report.cells if cell.judged is not Verdict.ABSENT]
    compared = {cell.cell.model for cell in cells if not is_reference(cell)}
    return {cell.cell.model for cell in cells} - compared


def _alone(report: Report) -> Iterator[str]:
    if n := len(in_one_release(report)):
        yield f"{count(n)} {'is' if n == 1 else 'are'} in one release only"


def _worst(cells: Iterable[CellResult]) -> Verdict | None:
    kinds = set(map(kind_of, cells)) & _WORDS.keys()
    return next((verdict for verdict in WORST_FIRST if verdict in kinds), None)


def _phrases(counts: Counter[Verdict], verdicts: Iterable[Verdict] | None = None) -> Iterator[str]:
    wanted = verdicts or [verdict for verdict in _WORDS if verdict not in _QUIET]
    noun = "model" if verdicts is None else ""
    for verdict in wanted:
        if n := counts[verdict]:
            singular, several = _WORDS[verdict]
            number = plural(n, noun) if noun else count(n)
            yield f"{number} {singular if n == 1 else several}"
            noun = ""
