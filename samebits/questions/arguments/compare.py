"""Effects of the same argument in two environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.questions.arguments.records import ArgumentDifference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.questions.arguments.records import ArgumentEffect, ArgumentsSignal, Kind

_UNDECIDED = frozenset({"rounding"})


def differences(
    reference: ArgumentsSignal, candidate: ArgumentsSignal
) -> Iterator[ArgumentDifference]:
    """Yield the arguments that one side reads, and the other one ignores or refuses.

    Nothing is said of an argument that no side names: there is no promise that ``**kwargs`` has an effect.
    """
    for name in reference.effects.keys() & candidate.effects.keys():
        before, after = reference.effects[name], candidate.effects[name]
        if not (before.named or after.named) or _UNDECIDED & {before.effect, after.effect}:
            continue
        if kind := _kind(before, after):
            yield ArgumentDifference(argument=name, kind=kind, reference=before, candidate=after)


def _kind(before: ArgumentEffect, after: ArgumentEffect) -> Kind | None:
    """Return how the effects differ; None where both sides read the argument, or neither does."""
    effects = {before.effect, after.effect}
    if effects <= {"none", "raises"} or len(effects) == 1:
        return None
    if "raises" in effects:
        return "refused"
    return "ignored" if "none" in effects else None
