"""Programs of the same model and prompt in two environments."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.questions.exports.records import ExportsSignal, ProgramDifference

_WORKS = frozenset({"the same numbers", "rounding", "undecided"})


def differences(reference: ExportsSignal, candidate: ExportsSignal) -> Iterator[ProgramDifference]:
    """Yield the programs that work on one side only, or do not work in another way; rounding is no difference."""
    for way in sorted(reference.programs.keys() & candidate.programs.keys()):
        first, second = reference.programs[way], candidate.programs[way]
        for prompt in sorted(first.keys() & second.keys()):
            pair = first[prompt], second[prompt]
            outcomes = {each.outcome for each in pair}
            is_compared = not any(each.left_out for each in pair)
            if is_compared and len(outcomes) > 1 and not outcomes <= _WORKS:
                yield ProgramDifference(
                    way=way, prompt=prompt, reference=pair[0], candidate=pair[1]
                )
