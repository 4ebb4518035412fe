"""Effects of the same argument in two environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from samebits.questions.arguments.records import ArgumentDifference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.questions.arguments.records import ArgumentEffect, ArgumentsSignal, Kind

_UNDECIDED = frozenset({"rounding"})
_UNREAD: Mapping[str, Kind] = {"none": "ignored", "raises": "refused"}


def differences(
    reference: ArgumentsSignal, candidate: ArgumentsSignal
) -> Iterator[ArgumentDifference]:
    """Yield the arguments that the reference reads, and the candidate ignores or refuses.

    Nothing is said of an argument that no side names: there is no promise that ``**kwargs`` has an effect.
    """
    for name in reference.effects.keys() & candidate.effects.keys():
        before, after = reference.effects[name], candidate.effects[name]
        if not (before.named or after.named) or _UNDECIDED & {before.effect, after.effect}:
            continue
        if kind := _kind(before, after):
            yield ArgumentDifference(argument=name, kind=kind, reference=before, candidate=after)


def _kind(before: ArgumentEffect, after: ArgumentEffect) -> Kind | None:
    """Return what became of an argument that the reference reads; None if it is read still.

    A release that reads an argument more has nothing to answer for.
    """
    if before.effect in _UNREAD:
        return None
    return _UNREAD.get(after.effect)
