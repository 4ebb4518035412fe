"""What two releases make of the same images, sounds and outputs: same bytes, rounding, or more.

Two outputs that differ are compared once more as both releases compute them in float64. Rounding
almost vanishes there, and another kernel, size, order or mean does not (the limits of
:mod:`samebits.compare.standing`). Where a side could not compute in float64, it stays undecided.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from samebits.compare.standing import judged
from samebits.questions.processors.records import (
    ArrayFacts,
    PartComparison,
    ProcessorCase,
    ProcessorDifference,
    ProcessorOutcome,
    ProcessorPart,
    ProcessorsReport,
    ProcessorsSignal,
    ProcessorStep,
)

_NEAR_FLOAT32 = 2.0**-21
"""Relative size of a difference that a step in float32 could leave in the float64 run."""
_NO_ROUNDING = 2.0**-8
"""Relative size of a difference that no rounding of an image or a sound leaves, also not one to 8 bits."""
_EFFECT = "other outputs than without it"
_NO_EFFECT = "the same bytes as without it"
_IS_FLOAT64 = "float64"
_NO_RATIO = "the difference shrinks in float64, but not as rounding does"


def report(
    stack: str, reference: ProcessorsSignal, candidate: ProcessorsSignal
) -> ProcessorsReport:
    """Compare the processors of two environments; ``stack`` is the reference's."""
    return ProcessorsReport(reference=stack, parts=comparisons(reference, candidate))


def comparisons(
    reference: ProcessorsSignal, candidate: ProcessorsSignal
) -> tuple[PartComparison, ...]:
    """Compare all parts that both sides were asked for."""
    return tuple(
        _part(name, part, candidate.parts[name])
        for name, part in reference.parts.items()
        if name in candidate.parts
    )


def _part(name: str, reference: ProcessorPart, candidate: ProcessorPart) -> PartComparison:
    loads = load_of(reference), load_of(candidate)
    if not reference.class_name or not candidate.class_name:
        is_other = bool(reference.class_name) != bool(candidate.class_name)
        return PartComparison(part=name, role=reference.role, load=loads if is_other else None)
    # what a call writes is compared with what the same release tells, and between releases as the call's outputs
    cases = [c for c, own in reference.cases.items() if c in candidate.cases and not own.counted]
    ran = [c for c in cases if not reference.cases[c].left_out and not candidate.cases[c].left_out]
    n_both_raise = sum(bool(reference.cases[c].raised and candidate.cases[c].raised) for c in ran)
    return PartComparison(
        part=name,
        role=reference.role,
        fields=tuple(_changed_fields(reference, candidate)),
        settings=tuple(_changed_settings(reference.settings, candidate.settings)),
        n_compared=len(ran) - n_both_raise,
        n_both_raise=n_both_raise,
        differences=tuple(
            difference for case in cases for difference in _case(name, case, reference, candidate)
        ),
    )


def load_of(part: ProcessorPart) -> str:
    """Return the class that a load gave, or why it gave none."""
    return part.class_name or part.absent or f"{part.raised}: {part.message}"


def _changed_fields(
    reference: ProcessorPart, candidate: ProcessorPart
) -> Iterator[tuple[str, str, str]]:
    for name in ("class_name", "backend"):
        before, after = getattr(reference, name), getattr(candidate, name)
        if before != after:
            yield name.partition("_")[0], before, after


def _changed_settings(
    reference: Mapping[str, str], candidate: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    """Yield settings that both sides have; a name of one side alone is the release's own affair."""
    for name, before in reference.items():
        after = candidate.get(name, before)
        if before != after:
            yield name, before, after


def _case(
    part: str, name: str, reference: ProcessorPart, candidate: ProcessorPart
) -> Iterator[ProcessorDifference]:
    """Yield what differs in a case; of an option only what does not differ without it."""
    sides = reference.cases[name], candidate.cases[name]
    if reference.role != "options":
        yield from _outputs(part, name, *sides)
        return
    without = sides[0].without
    if not without or without not in candidate.cases:
        return
    differences = list(_outputs(part, name, *sides))
    if (ignored := _without_effect(part, name, reference, candidate, differences)) is not None:
        yield ignored
        return
    bases = reference.cases[without], candidate.cases[without]
    bare = {(d.output, d.outcome) for d in _outputs(part, without, *bases)}
    # an option that makes both of one form again does not make them equal
    bare |= {(output, "other function") for output, outcome in bare if outcome == "other form"}
    for difference in differences:
        if (difference.output, difference.outcome) not in bare and (
            not sides[0].is_loaded or difference.outcome == "raised"
        ):
            yield difference


def _without_effect(
    part: str,
    name: str,
    reference: ProcessorPart,
    candidate: ProcessorPart,
    differences: Sequence[ProcessorDifference],
) -> ProcessorDifference | None:
    """Return that one side alone returns the same with the option; None if it is not so.

    An option that names what is one side's default has an effect on the other side alone, and then both
    return the same with it. What from_pretrained makes of an option of the call is a rule of its own.
    """
    if reference.cases[name].like:
        return None
    effects = effect_of(reference, name), effect_of(candidate, name)
    if None in effects or (effects[0] is True) == (effects[1] is True):
        return None
    keys = {d.output for d in differences}
    changed = changed_outputs(reference if effects[0] else candidate, name)
    if not changed & keys:
        return None
    words = [_EFFECT if effect else _NO_EFFECT for effect in effects]
    return ProcessorDifference(
        part=part,
        case=name,
        output=min(changed & keys),
        outcome="no effect",
        raises_here=False,
        reference=words[0],
        candidate=words[1],
    )


def effect_of(part: ProcessorPart, name: str, than: str = "") -> bool | None:
    """Return whether a case returns something else than without its option, or than the case ``than``.

    None: it cannot be told, as one of them returned nothing, or they differ no more than rounding may.
    """
    case = part.cases[name]
    base = part.cases.get(than or case.without)
    if base is None or base.outputs is None or case.outputs is None:
        return None
    if changed_outputs(part, name, than):
        return True
    return False if case.outputs == base.outputs else None


def changed_outputs(part: ProcessorPart, name: str, than: str = "") -> set[str]:
    """Return the outputs that an option adds, removes or changes by more than rounding may."""
    case = part.cases[name]
    first, second = part.cases[than or case.without].outputs or {}, case.outputs or {}
    return {
        key for key in first.keys() | second.keys() if _is_changed(first.get(key), second.get(key))
    }


def _is_changed(first: ArrayFacts | None, second: ArrayFacts | None) -> bool:
    if first is None or second is None or form(first) != form(second):
        return True
    if first.hash == second.hash:
        return False
    size = distance(first, second)
    if size is None or not first.dtype.startswith("float"):
        return True
    return size > max(_scale(first), _scale(second)) * _NO_ROUNDING


def _outputs(
    part: str, name: str, reference: ProcessorCase, candidate: ProcessorCase
) -> Iterator[ProcessorDifference]:
    if reference.left_out or candidate.left_out:
        return
    if reference.outputs is None or candidate.outputs is None:
        if bool(reference.raised) != bool(candidate.raised):
            yield ProcessorDifference(
                part=part,
                case=name,
                output="",
                outcome="raised",
                raises_here=bool(candidate.raised),
                reference=_shown_case(reference),
                candidate=_shown_case(candidate),
            )
        return
    for key in dict.fromkeys([*reference.outputs, *candidate.outputs]):
        pair = reference.outputs.get(key), candidate.outputs.get(key)
        if pair[0] is None or pair[1] is None or form(pair[0]) != form(pair[1]):
            yield ProcessorDifference(
                part=part,
                case=name,
                output=key,
                outcome="other form",
                step=_first_step(reference, candidate, _differs_in_form),
                reference=_shown_form(pair[0]),
                candidate=_shown_form(pair[1]),
            )
        elif pair[0].hash != pair[1].hash:
            yield _values_differ(part, name, key, reference, candidate)


def form(facts: ArrayFacts) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """Return dtype and shapes."""
    return facts.dtype, facts.shapes


def _values_differ(
    part: str, case: str, key: str, reference: ProcessorCase, candidate: ProcessorCase
) -> ProcessorDifference:
    assert reference.outputs is not None
    assert candidate.outputs is not None
    pair = reference.outputs[key], candidate.outputs[key]
    promoted = _promoted(reference, key), _promoted(candidate, key)
    outcome, reason = _decide(pair, promoted, reference.not_promoted or candidate.not_promoted)
    differs = _differs_in_float64 if outcome == "other function" else _differs_in_bytes
    return ProcessorDifference(
        part=part,
        case=case,
        output=key,
        outcome=outcome,
        step=_first_step(reference, candidate, differs),
        size=distance(*pair),
        promoted_size=distance(*promoted) if promoted[0] and promoted[1] else None,
        reference=shown_values(pair[0]),
        candidate=shown_values(pair[1]),
        reason=reason,
    )


def _promoted(case: ProcessorCase, key: str) -> ArrayFacts | None:
    return None if case.promoted is None else case.promoted.get(key)


Pair = tuple[ArrayFacts, ArrayFacts]
Promoted = tuple[ArrayFacts | None, ArrayFacts | None]


def _decide(own: Pair, promoted: Promoted, reason: str) -> tuple[ProcessorOutcome, str]:
    """Return whether a difference is rounding, and why that is undecided."""
    if not own[0].dtype.startswith("float"):
        # masks, grids and ids are not rounded, but a label can follow from a number that is
        if not reason and promoted[0] and promoted[1] and promoted[0].hash == promoted[1].hash:
            return "rounding", ""
        return "other function", ""
    if own[0].n_special != own[1].n_special:
        return "other function", ""
    reference, candidate = promoted
    if reason or reference is None or candidate is None:
        return "undecided", reason or "it did not run in float64"
    if reference.shapes != candidate.shapes:
        return "other function", ""
    if {reference.dtype, candidate.dtype} != {_IS_FLOAT64}:
        return "undecided", "a step of the processor stays in a smaller float"
    before, after = distance(*own), distance(*promoted)
    if before is None or after is None:
        return "undecided", "it cannot be measured"
    judgement = judged(before, after)
    if judgement != "diverged":
        return judgement, _NO_RATIO if judgement == "undecided" else ""
    if after <= _scale(reference) * _NEAR_FLOAT32:
        return "undecided", "it is as small as float32's rounding, and float64 does not remove it"
    return "other function", ""


def distance(reference: ArrayFacts | None, candidate: ArrayFacts | None) -> float | None:
    """Return the root mean square of the difference of two arrays, by their projections.

    The weights are uniform in -1..1, so the mean square of a projection is a third of the sum of
    squares.
    """
    if reference is None or candidate is None or not reference.n or reference.n != candidate.n:
        return None
    pairs = list(zip(reference.projections, candidate.projections, strict=False))
    if not pairs:
        return None
    square = sum((a - b) ** 2 for a, b in pairs) / len(pairs)
    return math.sqrt(3.0 * square / reference.n)


def _scale(facts: ArrayFacts) -> float:
    """Return the root mean square of an array."""
    if not facts.n or not facts.projections:
        return 0.0
    square = sum(p * p for p in facts.projections) / len(facts.projections)
    return math.sqrt(3.0 * square / facts.n)


class _Step(NamedTuple):
    """One step on both sides, with what both made of it in float64."""

    pair: tuple[ProcessorStep, ProcessorStep]
    promoted: tuple[ProcessorStep, ProcessorStep] | None


def _differs_in_form(step: _Step) -> bool:
    first, second = (side.output for side in step.pair)
    return first is not None and second is not None and first.shapes != second.shapes


def _differs_in_bytes(step: _Step) -> bool:
    first, second = (side.output for side in step.pair)
    return first is not None and second is not None and first.hash != second.hash


def _differs_in_float64(step: _Step) -> bool:
    if _differs_in_form(step):
        return True
    if step.promoted is None or not _differs_in_bytes(step):
        return False
    own = step.pair[0].output, step.pair[1].output
    promoted = step.promoted[0].output, step.promoted[1].output
    before, after = distance(*own), distance(*promoted)
    return before is not None and after is not None and judged(before, after) == "diverged"


def _first_step(
    reference: ProcessorCase, candidate: ProcessorCase, differs: Callable[[_Step], bool]
) -> str:
    """Return the first step that differs; '' if the steps do not show it."""
    names = [_names(case.steps) for case in (reference, candidate)]
    common = [name for name in names[0] if name in names[1]]
    order = [name for name in names[1] if name in names[0]]
    if names[0] and names[1] and common != order:
        return f"the order of the steps: {_listed(common)} → {_listed(order)}"
    previous = ""
    for name in order:
        step = _Step(
            (_step(reference.steps, name), _step(candidate.steps, name)),
            _promoted_steps(reference, candidate, name),
        )
        if differs(step):
            return _described(step, previous)
        previous = name
    added = [name for name in names[1] if name not in names[0]]
    removed = [name for name in names[0] if name not in names[1]]
    if names[0] and names[1] and (added or removed):
        return f"the steps: {_listed(names[0])} → {_listed(names[1])}"
    return ""


def _described(step: _Step, previous: str) -> str:
    """Return the step's name, with the settings that differ, or that its input differs already.

    ``previous`` is the step before it that both sides have and that does not differ.
    """
    first, second = step.pair
    if first.input != second.input:
        place = f"between {previous} and" if previous else "before"
        return f"{place} {first.name}, in how the image or sound is converted"
    before, after = _settings(first), _settings(second)
    changed = [
        f"{name} {json.dumps(before[name])} → {json.dumps(after[name])}"
        for name in before
        if name in after and before[name] != after[name]
    ]
    return f"{first.name} ({', '.join(changed)})" if changed else first.name


def _settings(step: ProcessorStep) -> dict[str, object]:
    try:
        settings = json.loads(step.settings)
    except ValueError:  # it was cut
        return {}
    return settings if isinstance(settings, dict) else {}


def _names(steps: Sequence[ProcessorStep]) -> list[str]:
    return list(dict.fromkeys(step.name for step in steps if step.output is not None))


def _step(steps: Sequence[ProcessorStep], name: str) -> ProcessorStep:
    """Return the first call of a step, which is of the first image."""
    return next(step for step in steps if step.name == name and step.output is not None)


def _promoted_steps(
    reference: ProcessorCase, candidate: ProcessorCase, name: str
) -> tuple[ProcessorStep, ProcessorStep] | None:
    sides = (reference.promoted_steps, candidate.promoted_steps)
    if all(name in _names(steps) for steps in sides):
        return _step(sides[0], name), _step(sides[1], name)
    return None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _shown_case(case: ProcessorCase) -> str:
    if case.raised:
        return f"raises {case.raised}: {case.message}"
    return "; ".join(f"{key} {_shown_form(facts)}" for key, facts in (case.outputs or {}).items())


def _shown_form(facts: ArrayFacts | None) -> str:
    if facts is None:
        return "no such output"
    shapes = ", ".join(" x ".join(map(str, shape)) or "scalar" for shape in facts.shapes[:3])
    more = ", …" if len(facts.shapes) > 3 else ""
    return f"{facts.dtype} {shapes}{more}"


def shown_values(facts: ArrayFacts) -> str:
    """Return some values of an array as a short text."""
    numbers = ", ".join(f"{value:.9g}" for value in facts.sample)
    return facts.text or numbers or _shown_form(facts)
