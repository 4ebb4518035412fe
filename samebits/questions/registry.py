"""All rules, in the order of their codes, and their findings in one cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from samebits.compare.outcome import differing_items
from samebits.compare.phases import STORED
from samebits.findings import (
    attention,
    caches,
    configs,
    devices,
    forwards,
    generation,
    imports,
    loading,
    packages,
    raised,
    rotary,
    tokenizers,
    tying,
)
from samebits.findings.case import Case
from samebits.findings.rule import COMPUTED, RAISED, STATE, UNSTABLE, Rule, Sighting
from samebits.questions import questions
from samebits.questions.question import Question
from samebits.records.capture import Failure
from samebits.records.comparison import CellResult
from samebits.records.finding import Explanation, Finding, RuleText
from samebits.records.ids import EXPLANATORY, Signal, Verdict
from samebits.records.ladder import Decider
from samebits.records.question import Answer

_CORE = (
    attention,
    caches,
    configs,
    devices,
    forwards,
    generation,
    imports,
    loading,
    packages,
    raised,
    rotary,
    tokenizers,
    tying,
)
"""The modules of rules that need no question."""


def rules() -> tuple[Rule, ...]:
    """Return all rules, in the order of their codes: those of the core and those of questions."""
    return _rules(questions())


@cache
def _rules(of: tuple[Question, ...]) -> tuple[Rule, ...]:
    core = (rule for area in _CORE for rule in area.RULES)
    of_questions = (rule for question in of for rule in question.rules)
    return tuple(sorted((*core, *of_questions), key=lambda rule: rule.code))


def by_code() -> dict[str, Rule]:
    """Return code -> rule."""
    return _by_code(questions())


@cache
def _by_code(of: tuple[Question, ...]) -> dict[str, Rule]:
    return {rule.code: rule for rule in _rules(of)}


def codes_explaining(signals: frozenset[str]) -> frozenset[str]:
    """Return the codes of the rules that explain one of these signals."""
    return frozenset(rule.code for rule in rules() if rule.explains & signals)


def findings(case: Case) -> tuple[Finding, ...]:
    """Return the findings of all rules in one cell, in the order of the rules."""
    named: list[Finding] = []
    follows: list[frozenset[str]] = []
    for rule in rules():
        for sighting in _sightings(rule, case):
            if rule.is_general and _is_named(sighting, case, named):
                continue  # a rule for this exception says more
            finding = Finding(
                code=rule.code,
                where=sighting.where,
                evidence=sighting.evidence,
                saver=sighting.saver,
                raises=sighting.raises,
                of_reference=sighting.of_reference,
                of_prompts=sighting.of_prompts,
            )
            named.append(finding)
            follows.append(sighting.follows)
    codes = {finding.code for finding in named}
    return tuple(f for f, of in zip(named, follows, strict=True) if of.isdisjoint(codes))


def _is_named(sighting: Sighting, case: Case, named: Sequence[Finding]) -> bool:
    """Return True if a rule that says more of the exception has named it: its evidence has the same exception."""
    lines = [line for finding in named for line in finding.evidence]
    if any(sighting.evidence[0] in line for line in lines):
        return True
    if sighting.raises not in ("", case.capture.cell.stack):
        return False
    of_exceptions = codes_explaining(RAISED)
    about = [finding for finding in named if finding.code in of_exceptions]
    return any(
        any(failure.in_short in line for line in sighting.evidence)
        for failure in (each.failure for each in case.each_exception)
        if failure is not None
        and failure.in_short
        and any(is_about(finding, failure) for finding in about)
    )


def _sightings(rule: Rule, case: Case) -> Iterable[Sighting]:
    """Return what a rule sees; one of exceptions is asked about each of them, as a tokenizer's hides no forward's."""
    if not rule.explains & RAISED:
        return rule.check(case)
    return dict.fromkeys(
        sighting._replace(raises=sighting.raises or each.raises)
        for each in case.each_exception
        for sighting in rule.check(each)
    )


def completed(result: CellResult, answers: Mapping[str, Answer]) -> CellResult:
    """Return a cell with what the answers of its row add to it."""
    for question in questions():
        if question.completes is not None:
            result = question.completes(result, answers)
    return result


def explained(result: CellResult, by_stack: Mapping[str, tuple[Finding, ...]]) -> CellResult:
    """Return a result with its findings, and with those that explain its verdict.

    ``by_stack`` has the findings of all cells of the row. A defect of the reference explains a
    difference as well as one of the cell; one that both have explains none.
    """
    own = by_stack.get(result.cell.stack, ())
    return result.model_copy(
        update={"findings": own, "explained_by": _explained_by(result, by_stack)}
    )


def _explained_by(
    result: CellResult, by_stack: Mapping[str, tuple[Finding, ...]]
) -> tuple[Explanation, ...]:
    """Return what explains a cell: why it is unstable, what raises in it, and what else differs.

    One cell may have all of these, each with a cause of its own. It is equal when all of them are mended.
    """
    own = by_stack.get(result.cell.stack, ())
    of_reference = by_stack.get(result.reference.stack, ()) if result.reference is not None else ()
    explanations = (
        *_of_instability(own, of_reference, result),
        *_of_exceptions(own, result),
        *_of_difference(own, of_reference, result),
    )
    return tuple(dict.fromkeys(explanations))


def _of_exceptions(own: Iterable[Finding], result: CellResult) -> Iterable[Explanation]:
    if result.judged not in (Verdict.FAILED, Verdict.UNSTABLE):
        return ()
    raised_here = [f for f in (result.failure, *result.failures) if f is not None]
    about = (f for f in own if any(is_about(f, failure) for failure in raised_here))
    return _explanations(about, RAISED, result)


def _of_instability(
    own: Iterable[Finding], opposite: Iterable[Finding], result: CellResult
) -> Iterable[Explanation]:
    """Return what makes numbers differ from run to run, and which tensors are not the reference's in all runs."""
    if result.judged is not Verdict.UNSTABLE:
        return ()
    # what a call leaves behind changes no weight, and the two runs make different calls
    signals = set(result.unstable_signals)
    left = STATE if signals and signals <= COMPUTED else frozenset()
    unstable = _explanations(own, UNSTABLE | left, result)
    if result.reference is None:
        return unstable
    rule_by = by_code()
    stored = (
        f
        for f in _only(own, opposite)
        if f.code in rule_by and rule_by[f.code].text.kind != "rounding"
    )
    return (*unstable, *_explanations(stored, STORED, result))


def _of_difference(
    own: Iterable[Finding], opposite: Iterable[Finding], result: CellResult
) -> Iterable[Explanation]:
    """Return what explains the difference in what was compared; beside an exception, rounding needs no cause."""
    if result.judged is Verdict.UNSTABLE or result.decisive is None or result.reference is None:
        return
    if result.judged is Verdict.FAILED and result.compared is Verdict.ROUNDING:
        return
    wanted = _signals(result)
    sides = ((own, opposite, result.cell), (opposite, own, result.reference))
    for findings_here, elsewhere, cell in sides:
        fitting = (f for f in _only(findings_here, elsewhere) if _fits(f, result))
        yield from _explanations(fitting, wanted, result, cell.stack)


def _signals(result: CellResult) -> frozenset[Signal]:
    """Return the signals that decide; a kernel explains the layer that differs.

    Of those that a judgement rests on, the first in the order of data flow: the others follow from it.
    """
    assert result.decisive is not None
    decisive = result.decisive.signal
    first = [decider.signal for decider in _first_deciders(result)]
    return frozenset({"hidden_states" if decisive in EXPLANATORY else decisive, *first})


def _first_deciders(result: CellResult) -> list[Decider]:
    """Return what a judgement rests on of the first signal in the order of data flow."""
    rests_on = result.ladder.rests_on if result.ladder is not None else ()
    order = [signal.signal for signal in result.signals]
    first = min((d.signal for d in rests_on if d.signal in order), key=order.index, default="")
    return [decider for decider in rests_on if decider.signal == first]


def _only(findings_here: Iterable[Finding], elsewhere: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings of one side that the other side does not have at the same place.

    One ``of_reference`` accuses the reference though its cell is the candidate's, so both sides do not have it.
    """
    both = {(finding.code, finding.where) for finding in elsewhere if not finding.of_reference}
    return tuple(f for f in findings_here if f.of_reference or (f.code, f.where) not in both)


def _explanations(
    cell_findings: Iterable[Finding], wanted: frozenset[str], result: CellResult, stack: str = ""
) -> tuple[Explanation, ...]:
    rule_by = by_code()
    return tuple(
        Explanation(
            code=finding.code,
            where=finding.where,
            stack=_faulty(rule_by[finding.code], finding, result) or stack or result.cell.stack,
        )
        for finding in cell_findings
        if finding.code in rule_by  # a report of an earlier version may have codes that are gone
        and rule_by[finding.code].explains & wanted
    )


def _faulty(rule: Rule, finding: Finding, result: CellResult) -> str:
    """Return the stack that a rule accuses; '' for the one that shows the defect."""
    if finding.of_reference and result.reference is not None:
        return result.reference.stack
    return rule.faulty(result) if rule.faulty is not None else ""


def _fits(finding: Finding, result: CellResult) -> bool:
    """Return True if a defect is of the difference's kind, and about a tensor that differs if it is stored."""
    rule = by_code().get(finding.code)
    if rule is None:
        return False
    if (rule.text.kind == "rounding") is not (result.compared is Verdict.ROUNDING):
        return False
    if finding.of_prompts == ():
        return False
    if finding.of_prompts is not None and any(
        decider.subject.prompt not in finding.of_prompts for decider in _first_deciders(result)
    ):
        return False
    assert result.decisive is not None
    if result.decisive.signal not in STORED or rule.explains - STORED - UNSTABLE:
        return True
    names = {
        name for item in differing_items(result.signals, *STORED) for name in item.subject.names
    }
    return finding.where in names


def is_about(finding: Finding, failure: Failure | None) -> bool:
    """Return True if the evidence of a finding has the exception.

    Others are of another exception, of a save, of an import behind the one that raised, or of numbers.
    """
    message = failure.first_line if failure is not None else ""
    return any(message in line for line in finding.evidence)


def texts(codes: Iterable[str]) -> tuple[RuleText, ...]:
    """Return the texts of the rules with these codes, in the order of the rules."""
    wanted = set(codes)
    return tuple(rule.text for rule in rules() if rule.code in wanted)
