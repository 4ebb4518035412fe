"""What to do about a difference, and the command that says more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from samebits.compare.describe import some
from samebits.diagnose.everywhere import is_everywhere
from samebits.findings.packages import NEEDED
from samebits.records.comparison import CellResult
from samebits.records.finding import Finding, RuleText
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports.answer.change import other_form
from samebits.reports.answer.releases import are_neighbours, version
from samebits.reports.answer.sentences import first_sentences
from samebits.reports.answer.side import (
    Side,
    checks_broken,
    faults,
    has_started,
    raised_in_part,
    raises,
    sound,
)
from samebits.reports.beside import Defect, defects, raising_uses
from samebits.reports.commands import compare_two, find_commit
from samebits.reports.plain import explaining_codes, mended, remedy_as_seen, replacements
from samebits.reports.stories import is_reference

MAX_REMEDY = 150
_ASKED = (Verdict.FAILED, Verdict.UNSTABLE, Verdict.DIVERGED, Verdict.UNDECIDED)
"""Verdicts of which the release is worth finding."""
_NOTHING = "Nothing"
_RANDOM = ("SB302", "SB304", "SB322")
"""Parameters that hold what memory held, or random numbers: their release is right about nothing."""
_UNFED = "If forward needs inputs that samebits does not make, name them: --inputs FILE, or inputs: in matrix.yaml"
_BROKEN = "Mend the model or its files: every release of this run raises this"
_UNLOADED = "Mend the model or its files: no release of this run loads it"
_OF_USES = "SB9"
"""Begins the codes of defects in some use of the API, such as one argument of generate()."""
_OF_ONE_STEP = {"SB872"}
"""Met once, by whoever changes the release in the middle of a training: no reason to avoid a release."""


def remedy(cell: CellResult, side: Side, rows: Sequence[Row], report: Report) -> str:
    """Return what to do: the remedies of the defects that explain it, else the safe release.

    ``rows`` are those of the model that differ in this way, that of the cell first.
    """
    if cell.judged in (Verdict.ROUNDING, Verdict.IDENTICAL):
        if drawn := _drawn(cell.cell.stack, rows):
            return f"{_NOTHING}, if what the checkpoint lacks may be random: {drawn}"
        return nothing(report, rows, cell.cell.stack) or _NOTHING
    if cell.judged is Verdict.FIXED:
        return f"Remove its entry under expected of {report.matrix}"
    right = _right(cell, side, rows, report)
    use = _use(right, cell, rows, report) if right else ""
    if codes := mended([cell], report):
        texts = {text.code: text for text in report.rules}
        # of several changes the way around them comes first, as it is the shorter one
        is_own = texts[next(iter(codes))].kind == "crash" and len(codes) == 1
        advice = _advice(cell, rows, codes, texts, MAX_REMEDY if is_own or not use else 0)
        parts = [advice, use] if is_own else [use, advice]
        return ". Or: ".join(filter(None, parts))
    if outputs := other_form(cell):
        beside = _beside(report, rows, cell.cell.stack)
        also = f"; beside it: {beside}" if beside else ""
        return f"Adapt code that reads {some(outputs)}, if there is any{also}"
    if is_everywhere(cell) and cell.failure is not None:
        is_forward = cell.failure.phase.startswith("forward")
        return _UNFED if is_forward else _BROKEN
    if not has_started(cell):
        return "Mend what the message names, and run again"
    if _is_loaded_nowhere(rows):
        return _UNLOADED
    if cell.judged in (Verdict.FAILED, Verdict.UNSTABLE) or side.wrong:
        return use or "No release of this run is known to be right"
    if cell.judged in (Verdict.DIVERGED, Verdict.UNDECIDED) and cell.reference is not None:
        old = _unchanged(rows[0]) or cell.reference.stack
        if cell.expected:
            return f"Transformers {version(old, report)} keeps the old numbers{_but(old, rows, report)}"
        return f"{_use(old, cell, rows, report)} until you know which side is right"
    return ""


def _is_loaded_nowhere(rows: Sequence[Row]) -> bool:
    """Return True if each release that has the model raises in the load, be it for another reason."""
    cells = [cell for row in rows for cell in row.cells if cell.judged is not Verdict.ABSENT]
    return all(cell.failure is not None and cell.failure.phase == "load" for cell in cells)


def nothing(report: Report, rows: Sequence[Row] = (), stack: str = "") -> str:
    """Return what to do where nothing differs; '' unless a candidate has a defect or raises beside the verdict."""
    beside = _beside(report, rows, stack)
    return f"{_NOTHING} for what was compared; beside it: {beside}" if beside else ""


def _beside(report: Report, rows: Sequence[Row], stack: str) -> str:
    """Return the codes of what a candidate does wrong or raises beside the verdict; '' for none.

    ``rows`` are those of the models that are asked about, by default all. Of several models only what
    ``stack`` does is named: another answer has the rest.
    """
    rows = rows if len(report.models) > 1 and rows else report.rows
    asked = stack if len(report.models) > 1 else ""
    models = {row.model for row in rows}  # a page of one model has the releases of all
    uses = [f for _, f in raising_uses(report) if not models.isdisjoint(f.models)]
    new = filter(_is_new, defects(report, [cell for row in rows for cell in row.cells]))
    codes = [f.code for f in uses if asked in ("", f.raises)]
    codes += [defect.text.code for defect in new if not asked or asked in defect.stacks]
    return ", ".join(dict.fromkeys(codes))


def _is_new(defect: Defect) -> bool:
    return defect.since == "changed" and defect.text.kind in ("crash", "silent")


def _advice(
    cell: CellResult,
    rows: Sequence[Row],
    codes: Mapping[str, Sequence[str]],
    texts: Mapping[str, RuleText],
    limit: int,
) -> str:
    """Return the remedies of all defects to mend; of several the first sentence of each, after its code."""
    # what the reference does wrong is a finding of its own cell
    stacks = {cell.cell.stack, *(e.stack for e in cell.explained_by)}
    cells = [c for row in rows[:1] for c in row.cells if c.cell.stack in stacks] or [cell]
    remedies = {
        code: _replacement(cell, texts[code])
        or first_sentences(
            remedy_as_seen(texts[code], cells), 0 if codes.keys() - {code} else limit
        )
        for code in codes
    }
    if len(codes) == 1 and not any(codes.values()):
        return next(iter(remedies.values())).rstrip(".")
    lines = []
    for code, text in remedies.items():
        also = f" (and {', '.join(codes[code])})" if codes[code] else ""
        lines.append(f"{code}{also}: {text.rstrip('.')}")
    return "; ".join(lines)


def _unchanged(row: Row) -> str:
    """Return the newest stack with the reference's numbers, but for rounding; '' for none."""
    same = (Verdict.REFERENCE, Verdict.IDENTICAL, Verdict.ROUNDING)
    stacks = [cell.cell.stack for cell in row.cells if cell.judged in same]
    return stacks[-1] if stacks else ""


def _replacement(cell: CellResult, text: RuleText) -> str:
    """Return what a rule about many names says of the one that an exception names; '' for none."""
    if text.code == NEEDED:
        packages = (e.where for e in cell.explained_by if e.code == NEEDED)
        options = " ".join(f"--package {package}" for package in dict.fromkeys(packages))
        return f"Name what the model needs: samebits check MODEL {options}"
    messages = " ".join(f.message for f in (cell.failure, *cell.failures) if f is not None)
    named = replacements(text, messages)
    return next((f"{name}: {instead}" for name, instead in named.items()), "")


def _use(stack: str, cell: CellResult, rows: Sequence[Row], report: Report) -> str:
    reference = cell.reference.stack if cell.reference is not None else stack
    left = reference if stack == cell.cell.stack else cell.cell.stack
    verb = "Stay with" if left in _later(stack, report) else "Use"
    return f"{verb} transformers {version(stack, report)}{_but(stack, rows, report)}"


def _later(stack: str, report: Report) -> list[str]:
    """Return the stacks behind one in the order of the report; [] for one that it has not."""
    order = [entry.id for entry in report.stacks]
    return order[order.index(stack) + 1 :] if stack in order else []


def _but(stack: str, rows: Sequence[Row], report: Report) -> str:
    """Return what a stack does wrong in these rows beside the difference; '' for none."""
    broken = [*dict.fromkeys(name for row in rows for name in checks_broken(row, stack))]
    checks = f"{len(broken)} consistency checks, such as" if broken[1:] else "the consistency check"
    limits = [f"it fails {checks} {broken[0]!r}"] if broken else []
    if drawn := _drawn(stack, rows):
        limits.append(f"it draws what the checkpoint lacks at random: {drawn}")
    if crashes := _crashes(stack, rows, report):
        limits.append(f"it raises elsewhere: {crashes}")
    return f" (but {'; '.join(limits)})" if limits else ""


def _drawn(stack: str, rows: Sequence[Row]) -> str:
    """Return the first tensor that a stack does not load and fills at random, and the code; '' for none."""
    named = {f.where: f.code for f in _accusing(stack, rows) if f.code in _RANDOM}
    if not named:
        return ""
    (where, code), *others = named.items()
    return f"{where} and {len(others)} more ({code})" if others else f"{where} ({code})"


def _accusing(stack: str, rows: Sequence[Row]) -> list[Finding]:
    """Return the findings that accuse a stack, be they shown at a candidate of it."""
    cells = (cell for row in rows for cell in row.cells)
    return [f for cell in cells for f in cell.findings if cell.faulty(f) == stack]


def _crashes(stack: str, rows: Sequence[Row], report: Report) -> str:
    """Return the defects with which a stack raises beside the forward, such as in a save; '' for none."""
    raising = {text.code for text in report.rules if text.kind == "crash"}
    later = _later(stack, report)  # nobody who stays with a release loads what one of these saved
    accused = {f.code for f in _accusing(stack, rows) if f.saver not in later} & raising
    own = (cell for row in rows for cell in row.cells if cell.cell.stack == stack)
    codes = accused - explaining_codes(own) - _OF_ONE_STEP
    return ", ".join(sorted(code for code in codes if not code.startswith(_OF_USES)))


def _right(cell: CellResult, side: Side, rows: Sequence[Row], report: Report) -> str:
    """Return the newest stack that works in all of these rows, else the side that nothing calls wrong; '' for none."""
    if not side.wrong or cell.reference is None:
        return ""
    first, *others = [sound(row, report) for row in rows]
    if both := [stack for stack in first if all(stack in other for other in others)]:
        return both[-1]
    opposite = cell.cell.stack if side.wrong == cell.reference.stack else cell.reference.stack
    is_faulty = opposite in faults(rows[0], report) or any(
        _runs_nowhere(opposite, row) for row in rows
    )
    return "" if is_faulty or _raises_alike(opposite, cell, rows[0]) else opposite


def _raises_alike(stack: str, cell: CellResult, row: Row) -> bool:
    """Return True if a stack raises in the phase in which a cell does: a tokenizer that loads in neither."""
    phase = cell.failure.phase if cell.failure is not None else None
    failures = (each.failure for each in row.cells if each.cell.stack == stack)
    return any(failure is not None and failure.phase == phase for failure in failures)


def _runs_nowhere(stack: str, row: Row) -> bool:
    """Return True if the model raises in a stack before it computes anything."""
    return raises(stack, row) and not raised_in_part(stack, row)


def command(cell: CellResult, first: str, row: Row, report: Report) -> str:
    """Return the command that finds the release, or the commit of a clone, in which it begins; once that is known, ''.

    ``first`` is the first stack that shows it.
    """
    if cell.reference is None or is_reference(cell) or len(report.stacks) < 2:
        return ""
    if cell.judged not in _ASKED or not has_started(cell):
        return ""
    order = [each.cell.stack for each in row.cells if each.judged is not Verdict.ABSENT]
    before = order[order.index(first) - 1] if first in order[1:] else cell.reference.stack
    if searched := find_commit(report, before, first):
        return searched
    if any(stack.between for stack in report.stacks) or are_neighbours(before, first, report):
        return ""
    model = "" if len(report.models) == 1 else cell.cell.model
    # a reference that is newer than what it is compared with: --from is the older one
    older, newer = sorted((before, first), key=[stack.id for stack in report.stacks].index)
    return compare_two(report, older, newer, model=model, more="--releases")
