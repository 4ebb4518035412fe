"""Programs of the same model and prompt in two environments."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.questions.exports.records import ExportsReport, ExportsSignal, ProgramDifference

_WORKS = frozenset({"the same numbers", "rounding", "undecided"})


def differences(reference: ExportsSignal, candidate: ExportsSignal) -> Iterator[ProgramDifference]:
    """Yield the programs that work on one side only, or do not work in another way; rounding is no difference."""
    for way in reference.programs.keys() & candidate.programs.keys():
        first, second = reference.programs[way], candidate.programs[way]
        for prompt in first.keys() & second.keys():
            pair = first[prompt], second[prompt]
            outcomes = {each.outcome for each in pair}
            is_compared = not any(each.left_out for each in pair)
            if is_compared and len(outcomes) > 1 and not outcomes <= _WORKS:
                yield ProgramDifference(
                    way=way, prompt=prompt, reference=pair[0], candidate=pair[1]
                )


def report(stack: str, reference: ExportsSignal, candidate: ExportsSignal) -> ExportsReport:
    """Return the programs of a candidate compared with those of a reference."""
    differing = sorted(differences(reference, candidate), key=lambda each: (each.way, each.prompt))
    return ExportsReport(reference=stack, differences=tuple(differing))
