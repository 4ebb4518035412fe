"""Which of two releases is wrong, as far as a finding, a consistency check or the config says so."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from samebits.compare.describe import some
from samebits.diagnose.everywhere import is_everywhere
from samebits.diagnose.failing import failing_signals
from samebits.findings.rule import RAISED
from samebits.findings.rulebook import plain_title
from samebits.jobs.cells import NOT_STARTED
from samebits.questions import questions
from samebits.questions.registry import codes_explaining, rules
from samebits.records.comparison import CellResult
from samebits.records.finding import RuleText
from samebits.records.ids import Verdict
from samebits.records.report import Report, Row
from samebits.reports.answer.change import only_draws, other_form
from samebits.reports.answer.known_fixes import blamed
from samebits.reports.answer.releases import listed, release, version
from samebits.reports.answer.sentences import SENTENCE, first_sentences
from samebits.reports.plain import KINDS
from samebits.reports.stories import EVERY_RELEASE

_VERBS = {"crash": "raises", "silent": "is wrong", "api": "raises", "rounding": "rounds"}
"""Kind of a finding -> what it says of a release."""
NOT_KNOWN = "not known: no finding or consistency check shows it"
_UNREAD = "unread parameter"
CHECK = "consistency check"
"""Stands where no finding but a check inside one release says that it is wrong."""
_CONTRADICTIONS = {
    "SB406": "the checkpoint contradicts its config.json",
    "SB322": "the index of the checkpoint contradicts its shards",
}
"""Files that contradict each other, so that no release can know which is meant."""
_OF_NO_SIDE = {
    "SB912": "layers and logits are the same",
    "SB821": "the checkpoint leaves open which one is meant",
}
"""Explain a difference and accuse neither side: which output, or which default, is meant only its reader knows."""
_MAX_REASON = 160
_CLAIM = re.compile(r"(\d[\w.]*) is (wrong|right)\b")
"""How a sentence of a reason begins that names a side."""
_MAX_CHECKS = 2
_MAX_FIELDS = 2


class Side(NamedTuple):
    """The side that is wrong, and why."""

    wrong: str = ""
    """The stack; '' if both sides are right, both are wrong, or nothing says which."""
    codes: tuple[str, ...] = ()
    """The findings that say so."""
    why: str = ""
    """One sentence, which names the side."""
    by: str = CHECK
    """What says so where no finding does."""
    concerns: str = ""
    """The configs and calls of a known fault; '' where a finding's page has them, or nothing does."""


def side(cell: CellResult, row: Row, report: Report, group: tuple[str, ...] = ()) -> Side:
    """Return which side of a cell and its reference is wrong.

    ``group`` are the stacks that differ in the same way, the cell's among them.
    """
    if cell.judged is Verdict.ROUNDING or cell.judged is Verdict.IDENTICAL:
        return Side(why="both: the difference goes away in float64" if cell.figure else "both")
    by_finding = _by_findings(cell, report, group)
    if by_finding.why and not _is_of_the_rest(cell, report):
        return _with_unrun(_with_shared(by_finding, cell, row, report), cell, row)
    if cell.judged is Verdict.FAILED and by_finding.why:
        return _with_exception(by_finding, cell, row, report)
    if cell.judged in (Verdict.FAILED, Verdict.UNSTABLE):
        by_itself = _by_itself(cell, row, report)
        both = (by_itself.why, _by_reason(cell, report).why)
        return by_itself._replace(why=". ".join(filter(None, both)))
    if cell.judged not in (Verdict.DIVERGED, Verdict.UNDECIDED):
        return Side()
    if other_form(cell):
        return Side(why="both: no other number differs but by rounding")
    for judged in (
        _by_checks(cell, row, report),
        _by_reason(cell, report),
        _by_known_fix(cell, report),
        _by_neither(cell, report),
        _by_unread(cell, report),
        _by_config(cell, report),
        _by_return(cell, row, report),
        _by_both(cell, row),
    ):
        if judged.why:
            return judged
    return Side(why="".join([NOT_KNOWN, _of_other_things(cell, row, report)]))


def _of_other_things(cell: CellResult, row: Row, report: Report) -> str:
    """Return how many consistency checks the sides fail that are not about what differs; '' if they fail none."""
    broken = {stack: checks_broken(row, stack) for stack in (_before(cell), cell.cell.stack)}
    failing = {release(stack, report): names for stack, names in broken.items() if names}
    if not failing:
        return ""
    if len(failing) == 1:
        (name, checks), *_ = failing.items()
        return f"; {name} alone fails some about other things: {some([*map(repr, checks)], 1)}"
    named = (f"{len(checks)} in {name}" for name, checks in failing.items())
    return f"; both fail some about other things ({', '.join(named)})"


def checks_broken(row: Row, stack: str) -> list[str]:
    """Return the consistency checks that a stack fails in a row."""
    asked = [question.breaks for question in questions() if question.breaks is not None]
    return [*dict.fromkeys(name for breaks in asked for name in breaks(row, stack))]


def faults(row: Row, report: Report) -> dict[str, tuple[str, ...]]:
    """Return stack -> what says that it is wrong: findings, a check, the matrix file; only such stacks."""
    reasons: dict[str, dict[str, None]] = {}
    for cell in row.cells:
        if cell.judged not in (Verdict.DIVERGED, Verdict.UNDECIDED, Verdict.UNSTABLE):
            continue
        of_cell = side(cell, row, report)
        if of_cell.wrong and (of_cell.codes or cell.judged is not Verdict.UNSTABLE):
            named = of_cell.codes or (of_cell.by,)
            both = _called_wrong(cell, report) if of_cell.by == report.matrix else ()
            for stack in dict.fromkeys((of_cell.wrong, *both)):
                reasons.setdefault(stack, {}).update(dict.fromkeys(named))
    for cell in row.cells:
        reasons.setdefault(cell.cell.stack, {}).update(dict.fromkeys(_shared(cell, row, report)))
    return {stack: tuple(names) for stack, names in reasons.items() if names}


def sound(row: Row, report: Report) -> list[str]:
    """Return the stacks of a row that work and that nothing calls wrong, the oldest first."""
    wrong = faults(row, report)
    return [
        cell.cell.stack
        for cell in row.cells
        if cell.cell.stack not in wrong and _works(cell, wrong, row, report)
    ]


def _works(
    cell: CellResult, wrong: Mapping[str, tuple[str, ...]], row: Row, report: Report
) -> bool:
    """Return True if a cell has the numbers of a reference that is right, or differs from a wrong one."""
    if cell.judged is Verdict.REFERENCE:
        return True
    if cell.judged is Verdict.DIVERGED:
        return side(cell, row, report).wrong == _before(cell)
    same = (Verdict.IDENTICAL, Verdict.ROUNDING)
    return cell.judged in same and _before(cell) not in wrong


def explaining(cell: CellResult, report: Report) -> list[tuple[RuleText, str]]:
    """Return the defects that explain a verdict, each with the stack that has it."""
    texts = {text.code: text for text in report.rules}
    pairs = {(e.code, e.stack): None for e in cell.explained_by if e.code in texts}
    return [(texts[code], stack) for code, stack in pairs]


def _by_findings(cell: CellResult, report: Report, group: tuple[str, ...]) -> Side:
    defects = [
        (text, stack)
        for text, stack in explaining(cell, report)
        if text.kind != "rounding" and text.code not in _OF_NO_SIDE
    ]
    stacks = list(dict.fromkeys(stack for _, stack in defects))
    if not stacks:
        return Side()
    codes = tuple(dict.fromkeys(text.code for text, _ in defects))
    if len(stacks) > 1:
        each = "; ".join(f"{release(s, report)}: {_name(t)} ({t.code})" for t, s in defects)
        return Side("", codes, f"neither. {each}")
    # what raises beside numbers that differ from run to run is not what makes them differ
    kinds = KINDS if cell.judged is Verdict.FAILED else [*KINDS[1:], KINDS[0]]
    text = min((text for text, _ in defects), key=lambda text: kinds.index(text.kind))
    name = _name(text)
    others = [code for code in codes if code != text.code]
    named = ", ".join([text.code, *others])
    for code in codes:
        if code in _CONTRADICTIONS:
            return Side("", codes, f"not known: {_CONTRADICTIONS[code]} ({named})")
    if _may_be_design(cell):
        return Side("", codes, f"not known: {name} ({named}), which a class may do by design")
    verb = _VERBS[text.kind] if cell.judged is Verdict.FAILED else _VERBS["silent"]
    at = EVERY_RELEASE if is_everywhere(cell) else release(stacks[0], report)
    faulty = f"{at} {verb}"
    is_alike = cell.judged in (Verdict.UNSTABLE, Verdict.FAILED) and stacks[0] in group
    if is_alike and len(group) > 1:
        faulty = f"{listed([*group], report)} {'raise' if verb == 'raises' else 'are wrong'}"
    return Side(stacks[0], codes, f"{faulty}: {name} ({named})")


def _may_be_design(cell: CellResult) -> bool:
    """Return True if transformers' own code draws in each forward, as VITS its noise and ViTMAE its mask."""
    is_stock = all(each.where.startswith("transformers/") for each in cell.explained_by)
    return cell.judged is Verdict.UNSTABLE and is_stock and only_draws(cell)


def _with_unrun(answer: Side, cell: CellResult, row: Row) -> Side:
    """Return an answer that also says if no prompt runs the weights that differ, and nothing else fails."""
    failing = failing_signals(cell)
    items = [item for s in failing for item in s.items if item.outcome != "identical"]
    unrun = tuple(f"{module.name}." for module in row.unrun.get(cell.cell.stack, ()))
    are_weights = {signal.signal for signal in failing} == {"weights"}
    if are_weights and items and all((i.subject.tensor or "").startswith(unrun) for i in items):
        return answer._replace(why=f"{answer.why}, but no prompt runs what differs")
    return answer


def _with_shared(answer: Side, cell: CellResult, row: Row, report: Report) -> Side:
    """Return an answer that also says if the side it does not blame is wrong in another way."""
    shared = [code for code in _shared(cell, row, report) if code not in answer.codes]
    if answer.wrong == cell.cell.stack or not shared:
        return answer
    also = f"{release(cell.cell.stack, report)} is wrong in another way ({', '.join(shared)})"
    return answer._replace(why=f"{answer.why}. {also}")


def _shared(cell: CellResult, row: Row, report: Report) -> tuple[str, ...]:
    """Return the defects of the reference that a cell has too.

    Another cell of the row differs from the reference, and one defect of the reference explains the first signal in
    which it fails. A cell with the reference's numbers in that signal has this defect.
    """
    if cell.judged not in (Verdict.IDENTICAL, Verdict.ROUNDING, Verdict.DIVERGED):
        return ()
    failing = {signal.signal for signal in failing_signals(cell)}
    repaired = {text.code for text, stack in explaining(cell, report) if stack == _before(cell)}
    explains = {rule.code: rule.explains for rule in rules()}
    shared: dict[str, None] = {}
    for other in row.cells:
        if other.judged is not Verdict.DIVERGED or other.reference != cell.reference:
            continue
        defects = [text for text, stack in explaining(other, report) if stack == _before(other)]
        if not defects:
            continue
        # the first signal that fails rests on no other one, so what can explain it does
        signals = [signal.signal for signal in failing_signals(other)][:1]
        first = [text for text in defects if explains.get(text.code, set()) & set(signals)]
        if failing.isdisjoint(signals) and len(first) == 1:
            shared.update(dict.fromkeys(text.code for text in first if text.kind == "silent"))
    return tuple(code for code in shared if code not in repaired)


def _before(cell: CellResult) -> str:
    """Return the stack of a cell's reference; '' if it has none."""
    return "" if cell.reference is None else cell.reference.stack


def _name(text: RuleText) -> str:
    """Return the name of a rule without its code."""
    return plain_title(text).removeprefix(f"{text.code} ")


def _wrong(stack: str, report: Report) -> str:
    return f"{release(stack, report)} is wrong"


def _is_of_the_rest(cell: CellResult, report: Report) -> bool:
    """Return True if findings explain what differs in a cell that raises, and none its exception."""
    codes = {text.code for text, _ in explaining(cell, report)}
    return cell.judged is Verdict.FAILED and codes_explaining(RAISED).isdisjoint(codes)


def _with_exception(answer: Side, cell: CellResult, row: Row, report: Report) -> Side:
    """Return what findings say of the rest of a cell, after which side raises."""
    by_itself = _by_itself(cell, row, report)
    wrong = answer.wrong if answer.wrong == by_itself.wrong else ""
    why = ". ".join(filter(None, (by_itself.why, answer.why)))
    return Side(wrong, answer.codes, why)


def _by_itself(cell: CellResult, row: Row, report: Report) -> Side:
    """Return a release that raises, or does not repeat itself, where its reference does both."""
    stack = cell.cell.stack
    if cell.reference is None or cell.reference == cell.cell:
        return Side()
    if not has_started(cell):
        return Side(why=f"not known: nothing ran in {release(stack, report)}")
    reference = release(cell.reference.stack, report)
    if cell.judged is Verdict.FAILED and raises(cell.reference.stack, row):
        if cell.rest is None and (phases := raised_in_part(cell.reference.stack, row)):
            why = f"{release(stack, report)} raises before it computes anything, {reference} in {phases} alone"
            return Side(stack, (), why)
        return Side(why=f"neither: {release(stack, report)} raises, and so does {reference}")
    what = "raises" if cell.judged is Verdict.FAILED else "does not repeat its own results"
    runs = "runs" if cell.judged is Verdict.FAILED else "does"
    return Side(stack, (), f"{release(stack, report)} {what}, {reference} {runs}")


def has_started(cell: CellResult) -> bool:
    """Return False if a cell has no environment, or no checkpoint, in which its model could have run."""
    return cell.failure is None or cell.failure.type != NOT_STARTED


def raises(stack: str, row: Row) -> bool:
    """Return True if the model raises in a stack."""
    return any(cell.cell.stack == stack and cell.judged is Verdict.FAILED for cell in row.cells)


def raised_in_part(stack: str, row: Row) -> str:
    """Return the phases in which the model raises in a stack that runs the others; '' for a stack that runs none."""
    cell = next(cell for cell in row.cells if cell.cell.stack == stack)
    return (
        "" if cell.rest is None else some([failure.phase for failure in cell.failures], _MAX_FIELDS)
    )


def _by_checks(cell: CellResult, row: Row, report: Report) -> Side:
    """Return a release that contradicts itself in what differs, where the other one does not."""
    if cell.reference is None:
        return Side()
    sides = (cell.reference.stack, cell.cell.stack)
    before, after = (_broken(cell, row, *pair) for pair in (sides, sides[::-1]))
    if bool(before) is bool(after):
        return Side()
    stack, other = sides if before else sides[::-1]
    names = before or after
    holds = f"which {'hold' if len(names) > 1 else 'holds'} in {release(other, report)}"
    return Side(stack, (), f"{_wrong(stack, report)}: it breaks {_quoted(names)}, {holds}")


def _by_unread(cell: CellResult, report: Report) -> Side:
    """Return the side in which no operation takes a parameter of the checkpoint that the other side's takes there.

    What a checkpoint stores its model was trained with.
    """
    cause = cell.cause
    if (
        cause is None
        or cause.reference is None
        or not cause.decides
        or cell.judged is not Verdict.DIVERGED
    ):
        return Side()
    sides = [each for each in (cause.reference, cause.candidate) if each.unread]
    if len(sides) != 1:
        return Side()
    (wrong,) = sides
    them = "them" if wrong.unread[1:] else "it"
    what = f"it loads {some(wrong.unread, _MAX_FIELDS)} and computes without {them}"
    return Side(wrong.stack, (), f"{_wrong(wrong.stack, report)}: {what}", _UNREAD)


def _by_known_fix(cell: CellResult, report: Report) -> Side:
    """Return the side with a fault that a later release mends, at the place where the cell begins to differ."""
    if cell.judged is not Verdict.DIVERGED or cell.reference is None:
        return Side()
    reference, candidate = cell.reference.stack, cell.cell.stack
    blame = blamed(cell, version(reference, report), version(candidate, report))
    if blame is None:
        return Side()
    wrong, other = (reference, candidate) if blame.is_reference else (candidate, reference)
    also = [
        f"{release(other, report)} may be wrong in another way: {fix.in_words}"
        for fix in blame.others
    ]
    why = ". ".join([f"{_wrong(wrong, report)}: {blame.fix.in_words}", *also])
    return Side(wrong, (), why, blame.fix.name, blame.fix.when)


def _by_neither(cell: CellResult, report: Report) -> Side:
    """Return a defect that explains a difference and accuses neither side."""
    for text, _ in explaining(cell, report):
        if text.code in _OF_NO_SIDE:
            where = next(each.where for each in cell.explained_by if each.code == text.code)
            what = f"{_name(text)} ({text.code}, {where})"
            return Side("", (text.code,), f"not known: {what}; {_OF_NO_SIDE[text.code]}")
    return Side()


def _by_return(cell: CellResult, row: Row, report: Report) -> Side:
    """Return that a later release has the reference's numbers again, which is no proof that they are right."""
    stacks = [each.cell.stack for each in row.cells]
    later = row.cells[stacks.index(cell.cell.stack) + 1 :]
    again = [each for each in later if each.judged in (Verdict.IDENTICAL, Verdict.ROUNDING)]
    if not again or cell.reference is None:
        return Side()
    name, old = release(again[-1].cell.stack, report), release(cell.reference.stack, report)
    return Side(why=f"not proven, but {name} computes again what {old} does")


def _by_both(cell: CellResult, row: Row) -> Side:
    """Return that both releases contradict themselves in what differs, which accuses neither."""
    if cell.reference is None:
        return Side()
    also = set(_broken(cell, row, cell.cell.stack))
    both = [name for name in _broken(cell, row, cell.reference.stack) if name in also]
    return Side(why=f"not known: both break {_quoted(both)}" if both else "")


def _broken(cell: CellResult, row: Row, stack: str, other: str = "") -> list[str]:
    """Return the checks of what differs that a stack breaks and another one, if there is one, keeps."""
    # the first signal that fails rests on no other one; a check of what follows says nothing of it
    signals = frozenset(signal.signal for signal in failing_signals(cell)[:1])
    return [
        name
        for question in questions()
        if question.contradicts is not None
        for name in question.contradicts(row, stack, other, signals)
    ]


def _quoted(names: list[str]) -> str:
    return ", ".join(f"{name!r}" for name in names[:_MAX_CHECKS])


def _by_reason(cell: CellResult, report: Report) -> Side:
    """Return what the matrix file says of a known difference, and the side that it calls wrong.

    Of several reasons, those that name a side are shown, else the last one.
    """
    reasons = [" ".join(reason.split()) for reason in cell.expected]
    if not reasons:
        return Side()
    claims = [reason for reason in reasons if _claimed(reason, cell, report)]
    # several claims leave room for a sentence each
    limit = _MAX_REASON if len(claims) < 2 else 0
    statement = " ".join(first_sentences(reason, limit) for reason in claims or reasons[-1:])
    wrong = _called_wrong(cell, report)
    worst = cell.cell.stack if cell.cell.stack in wrong else "".join(wrong)
    return Side(worst, (), f"{report.matrix}: {statement}", report.matrix)


def _called_wrong(cell: CellResult, report: Report) -> list[str]:
    """Return the sides that the matrix file calls wrong, where it lists the difference."""
    claimed = (_claimed(" ".join(reason.split()), cell, report) for reason in cell.expected)
    return list(dict.fromkeys(filter(None, claimed)))


def _claimed(reason: str, cell: CellResult, report: Report) -> str:
    """Return the side that a sentence such as ``4.48 is wrong`` names; '' for none, or for both."""
    if cell.reference is None:
        return ""
    sides = (cell.reference.stack, cell.cell.stack)
    wrong = {
        stack if claim[2] == "wrong" else other
        for claim in map(_CLAIM.match, SENTENCE.split(reason))
        if claim is not None
        for stack, other in (sides, sides[::-1])
        if _is_named(claim[1], stack, report)
    }
    return wrong.pop() if len(wrong) == 1 else ""


def _is_named(name: str, stack: str, report: Report) -> bool:
    """Return whether a name such as ``5.23`` is that of a stack, or of its release."""
    return name == stack or f"{version(stack, report)}.".startswith(f"{name}.")


def _by_config(cell: CellResult, report: Report) -> Side:
    """Return the numbers in the config, as a release loads it, that the reference does not have."""
    fields = list(_config_numbers(cell))[:_MAX_FIELDS]
    if not fields or cell.reference is None:
        return Side()
    candidate, reference = release(cell.cell.stack, report), release(cell.reference.stack, report)
    lines = "; ".join(
        f"{name} is {now} in {candidate}, {before} in {reference}" for name, before, now in fields
    )
    return Side("", (), f"compare with config.json: as loaded, {lines}")


def _config_numbers(cell: CellResult) -> Iterator[tuple[str, str, str]]:
    """Yield name, number before and number now of fields that have a number of their own now.

    A release may move a field, so its name counts; but not from one part of a model, such as its text, to another.
    """
    before: dict[tuple[str, str], set[str]] = {}
    now: dict[tuple[str, str], dict[str, None]] = {}
    for fact in cell.changes.get("config", ()):
        key = _part(fact.what), fact.what.rpartition(".")[2]
        if _is_number(fact.reference):
            before.setdefault(key, set()).add(str(fact.reference))
        if _is_number(fact.candidate):
            now.setdefault(key, {})[str(fact.candidate)] = None
    for key, values in now.items():
        earlier = before.get(key, set())
        new = [value for value in values if value not in earlier]
        if new and earlier:
            yield key[1], ", ".join(sorted(earlier)), ", ".join(new)


def _part(field: str) -> str:
    """Return the config inside the config to which a field belongs; '' for the whole one."""
    names = field.split(".")[:-1]
    return next((name for name in reversed(names) if name.endswith("_config")), "")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
