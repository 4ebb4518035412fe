"""SB83x, SB897 …: rules for what a model's processors make of images, videos and sounds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from samebits.findings.case import Case
from samebits.findings.packages import missing_packages, remedy
from samebits.findings.rule import Check, Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.processors.compare import changed_outputs, comparisons, effect_of
from samebits.questions.processors.records import (
    PROCESSORS,
    PartComparison,
    ProcessorCase,
    ProcessorDifference,
    ProcessorOutcome,
    ProcessorPart,
    Role,
)
from samebits.text.numbers import number, plural

_WHOLE = "processor"
"""The part that holds the other ones."""
_MAX_CASES = 3
"""Cases of one finding that the evidence shows."""


def parts_of(case: Case) -> Iterable[PartComparison]:
    """Return what both sides' processors make of seeded inputs; nothing if one was not observed."""
    return PROCESSORS.of_both(case.reference, case.capture, comparisons)


def _other_settings(*, of_whole: bool) -> Check:
    """Return a check for settings that the checkpoint's files give alike and the releases do not.

    ``of_whole``: those of the processor that holds the parts, which are of its tokenizer.
    """

    def check(case: Case) -> Iterator[Sighting]:
        for part in parts_of(case):
            is_asked = (part.part == _WHOLE) == of_whole and not part.is_on_demand
            if part.settings and is_asked:
                lines = tuple(f"{name}: {old} → {new}" for name, old, new in part.settings)
                yield Sighting(part.part, lines)

    return check


def _other_class(case: Case) -> Iterator[Sighting]:
    for part in parts_of(case):
        if part.fields and not part.role:
            lines = tuple(f"{name}: {before} → {after}" for name, before, after in part.fields)
            yield Sighting(part.part, lines)


def _differing(outcome: ProcessorOutcome) -> Check:
    """Return a check for outputs that differ in this way."""

    def check(case: Case) -> Iterator[Sighting]:
        for part in parts_of(case):
            if part.is_aside and outcome != "rounding":
                continue
            yield from _by_side(case, part, (d for d in part.differences if d.outcome == outcome))

    return check


def _by_side(
    case: Case, part: PartComparison, differences: Iterable[ProcessorDifference]
) -> Iterator[Sighting]:
    """Yield what the candidate does otherwise, then what the reference alone refuses."""
    sides: tuple[list[ProcessorDifference], list[ProcessorDifference]] = ([], [])
    for each in differences:
        sides[each.outcome == "raised" and not each.raises_here].append(each)
    yield from (_sighting(case, part, differing) for differing in sides if differing)


def _other_results(role: Role) -> Check:
    """Return a check for what the same object gives otherwise beside its main use."""

    def check(case: Case) -> Iterator[Sighting]:
        for part in parts_of(case):
            if part.role == role:
                differing = (d for d in part.differences if d.outcome != "rounding")
                yield from _by_side(case, part, differing)

    return check


def _sighting(case: Case, part: PartComparison, differences: list[ProcessorDifference]) -> Sighting:
    names = {difference.case for difference in differences}
    candidate = PROCESSORS.in_cell(case.capture)
    of = f" of {candidate.parts[part.part].class_name}" if candidate is not None else ""
    lines = [f"{len(names)} of {plural(part.n_compared, 'input')}{of} differ in this way"]
    for difference in differences[:_MAX_CASES]:
        lines.append(_summary(difference))
        lines += side_lines(case, difference.reference, difference.candidate)
    step = next((d.step for d in differences if d.step), "")
    first = f"{part.part}: {differences[0].case}"
    where = first if not step else f"{first}, {step}"
    of_reference = all(d.outcome == "raised" and not d.raises_here for d in differences)
    return Sighting(where, tuple(lines), of_reference=of_reference)


def _summary(difference: ProcessorDifference) -> str:
    name = f"{difference.case}, {difference.output}" if difference.output else difference.case
    facts = [f"first step that differs: {difference.step}"] if difference.step else []
    if difference.size is not None:
        facts.append(f"root mean square of the difference about {number(difference.size)}")
    if difference.promoted_size is not None:
        facts.append(f"in float64 {number(difference.promoted_size)}")
    if difference.reason:
        facts.append(difference.reason)
    return f"{name}: {'; '.join(facts)}" if facts else name


def _not_loaded(case: Case) -> Iterator[Sighting]:
    """Find processors that one side loads, and for which the other raises or lacks a package."""
    sides = PROCESSORS.in_cell(case.reference), PROCESSORS.in_cell(case.capture)
    for part in parts_of(case):
        if part.load is None or part.role:
            continue
        reference, candidate = (side.parts[part.part] for side in sides if side is not None)
        # a package or a class that the reference merely lacks says nothing of its release
        is_refused = bool(reference.raised) and not missing_packages(part.load[0])
        if not candidate.class_name or is_refused:
            lines = side_lines(case, *part.load)
            yield Sighting(part.part, lines, of_reference=bool(candidate.class_name))


def _ignored_at_load(case: Case) -> Iterator[Sighting]:
    """Find options that a call takes, and that from_pretrained or the object drops or makes something else of."""
    signal = PROCESSORS.in_cell(case.capture)
    for name, part in signal.parts.items() if signal is not None else ():
        seen: set[str] = set()
        for option, given in part.cases.items():
            is_new = given.like in part.cases and given.like not in seen
            if is_new and (words := _unlike_the_call(part, option)):
                # what from_pretrained drops is an attribute that no call reads
                seen.add(given.like)
                yield Sighting(f"{name}: {option}", words)


def _shared_by_objects(case: Case) -> Iterator[Sighting]:
    """Find lists and dicts of one processor whose change in place changes what another one returns."""
    signal = PROCESSORS.in_cell(case.capture)
    for name, part in signal.parts.items() if signal is not None else ():
        shared = {
            option: f"other outputs than before the change: {', '.join(sorted(changed_outputs(part, option)))}"
            for option, given in part.cases.items()
            if given.like and given.like == given.without and effect_of(part, option)
        }
        if shared:
            lines = (f"{option}: {words}" for option, words in shared.items())
            yield Sighting(f"{name}: {next(iter(shared))}", tuple(lines))


def _unlike_the_call(part: ProcessorPart, option: str) -> tuple[str, ...]:
    like = part.cases[option].like
    if not effect_of(part, like):
        return ()
    if effect_of(part, option) is False:
        return (
            "the outputs have the same bytes as without the option, and in the call it changes them",
        )
    if effect_of(part, option, like):
        changed = ", ".join(sorted(changed_outputs(part, option, like)))
        return (f"other outputs than with the option in the call: {changed}",)
    return ()


def _miscounted(case: Case) -> Iterator[Sighting]:
    """Find sizes for which a method tells another number of tokens than the call writes."""
    signal = PROCESSORS.in_cell(case.capture)
    for name, part in signal.parts.items() if signal is not None else ():
        lines = {
            made.counted: _miscount(part.cases[made.counted], _number(made, "number"))
            for made in part.cases.values()
            if made.counted in part.cases and made.outputs
        }
        wrong = {of: line for of, line in lines.items() if line}
        if wrong:
            count = f"{len(wrong)} of {plural(len(lines), 'size')} of {part.class_name}"
            shown = [f"{of}: {line}" for of, line in wrong.items()][:_MAX_CASES]
            yield Sighting(f"{name}: {next(iter(wrong))}", (count, *shown))


def _miscount(counted: ProcessorCase, written: int | None) -> str:
    """Return how a method that is to tell the number of written tokens does not; '' if it does."""
    if counted.raised:
        return f"the method raises {counted.raised}: {counted.message}; the call writes {written}"
    key = next((k for k in counted.outputs or {} if re.fullmatch(r"num_\w+_tokens", k)), "")
    number = _number(counted, key)
    if number in (None, written):
        return ""
    return f"the method gives {number}, and the call writes {written}"


def _number(counted: ProcessorCase, output: str) -> int | None:
    facts = (counted.outputs or {}).get(output)
    return int(facts.sample[0]) if facts is not None and len(facts.sample) == 1 else None


def _needs_packages(case: Case) -> Iterator[Sighting]:
    """Find processors, and calls of them, that are not compared because a package is missing."""
    signal = PROCESSORS.in_cell(case.capture)
    if signal is None:
        return
    seen: dict[str, list[str]] = {}
    for name, part in signal.parts.items():
        for place, reason in _not_asked(name, part):
            for package in missing_packages(reason):
                seen.setdefault(package, []).append(f"{place}: {reason}")
    for package, lines in seen.items():
        yield Sighting(package, (*lines[:_MAX_CASES], "nothing of it is compared", remedy(package)))


def _not_asked(name: str, part: ProcessorPart) -> Iterator[tuple[str, str]]:
    """Yield the calls of a processor that give no output, and why."""
    if part.absent:
        yield name, part.absent
    for label, answer in part.cases.items():
        if answer.raised:
            yield f"{name}, {label}", f"{answer.raised}: {answer.message}"
        elif answer.left_out:
            yield f"{name}, {label}", answer.left_out


RULES = (
    Rule("SB830", _other_results("counts")),
    Rule("SB831", _other_settings(of_whole=False)),
    Rule("SB897", _other_settings(of_whole=True)),
    Rule("SB832", _other_class),
    Rule("SB833", _differing("other function")),
    Rule("SB834", _differing("rounding")),
    Rule("SB835", _differing("other form")),
    Rule("SB836", _differing("raised")),
    Rule("SB837", _not_loaded),
    Rule("SB838", _other_results("after")),
    Rule("SB839", _differing("undecided")),
    Rule("SB850", _differing("no effect")),
    Rule("SB859", _ignored_at_load),
    Rule("SB866", _miscounted),
    Rule("SB884", _shared_by_objects),
    Rule("SB885", _needs_packages),
)
