"""Effects of the same argument in two environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from samebits.questions.arguments.records import ArgumentDifference, ArgumentsReport

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.questions.arguments.records import (
        ArgumentEffect,
        ArgumentsSignal,
        Kind,
        Method,
    )

METHODS: tuple[Method, ...] = ("forward", "generate")
_UNDECIDED = frozenset({"rounding"})
_UNREAD: Mapping[str, Kind] = {"none": "ignored", "raises": "refused"}


def differences(
    reference: ArgumentsSignal, candidate: ArgumentsSignal
) -> Iterator[ArgumentDifference]:
    """Yield the arguments that the reference reads, and the candidate ignores or refuses.

    Nothing is said of an argument that no side names: there is no promise that ``**kwargs`` has an effect.
    """
    for method in METHODS:
        first, second = reference.of(method), candidate.of(method)
        for name in first.keys() & second.keys():
            before, after = first[name], second[name]
            if not (before.named or after.named):
                continue
            if kind := _kind(method, before, after):
                yield ArgumentDifference(
                    argument=name, method=method, kind=kind, reference=before, candidate=after
                )


class OtherStates(NamedTuple):
    """What the entries of a field hold on two sides, for one prompt."""

    prompt: str
    field: str
    reference: tuple[str, ...]
    candidate: tuple[str, ...]


def other_states(reference: ArgumentsSignal, candidate: ArgumentsSignal) -> Iterator[OtherStates]:
    """Yield the fields of hidden states whose entries hold something else.

    A side whose hooks see none of a field's entries says nothing: its layers are in no list.
    """
    for prompt, fields in reference.states.items():
        others = candidate.states.get(prompt, {})
        for field, before in fields.items():
            after = others.get(field, ())
            if before != after and any(before) and any(after):
                yield OtherStates(prompt, field, before, after)


def report(stack: str, reference: ArgumentsSignal, candidate: ArgumentsSignal) -> ArgumentsReport:
    """Compare the effects of two environments; ``stack`` is the reference's."""
    return ArgumentsReport(reference=stack, differences=tuple(differences(reference, candidate)))


def _kind(method: Method, before: ArgumentEffect, after: ArgumentEffect) -> Kind | None:
    """Return what became of an argument that the reference reads; None if it is read still.

    A release that reads an argument more has nothing to answer for. An argument of generate() may
    choose another way to the same tokens, so that it has no effect to lose, and may be refused still.
    """
    if method == "generate" and before.effect == "none" and after.effect == "raises":
        return "refused"
    if before.effect in _UNREAD or _UNDECIDED & {before.effect, after.effect}:
        return None
    return _UNREAD.get(after.effect)
