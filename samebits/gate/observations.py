"""The observations of a run as hashes, and what of them is not as recorded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from samebits.base.digests import digest_of
from samebits.compare.registry import units
from samebits.records.lock import SHORT
from samebits.records.verification import Mismatch

if TYPE_CHECKING:
    from samebits.compare.unit import Observation
    from samebits.records.capture import Capture
    from samebits.records.ids import Signal

    Hashes = Mapping[Signal, Mapping[str, str]]


def hashes(capture: Capture) -> dict[Signal, dict[str, str]]:
    """Return everything that bears on a verdict: signal -> subject -> hash, in the flow of data."""
    observed: dict[Signal, dict[str, str]] = {}
    for unit in units():
        for observation in unit.observations(capture):
            subjects = observed.setdefault(unit.name, {})
            subjects[str(observation.subject)] = short(observation.identity)
    return observed


def short(identity: object) -> str:
    """Return a short hash of what must be equal: that of a tensor, or facts about it."""
    text = identity if isinstance(identity, str) else digest_of(identity)
    return text[:SHORT]


def mismatches(recorded: Hashes, capture: Capture) -> list[Mismatch]:
    """Return what is not as recorded, in the order of the flow of data.

    A signal that the record lacks, or that was not observed at all, is not listed. What only this
    side has comes last: a new buffer, such as one that nothing reads, changes no recorded number.
    """
    observed = hashes(capture)
    listed = [
        mismatch
        for unit in units()
        if unit.name in recorded and unit.name in observed
        for mismatch in _of_signal(
            unit.name,
            recorded[unit.name],
            {str(o.subject): o for o in unit.observations(capture)},
        )
    ]
    return sorted(listed, key=lambda mismatch: mismatch.kind == "only here")


def _of_signal(
    signal: Signal, recorded: Mapping[str, str], observed: Mapping[str, Observation]
) -> Iterator[Mismatch]:
    for name in dict.fromkeys((*recorded, *observed)):
        observation = observed.get(name)
        if observation is None:
            yield Mismatch(signal=signal, name=name, kind="only recorded")
        elif name not in recorded:
            subject = observation.subject
            yield Mismatch(signal=signal, name=name, subject=subject, kind="only here")
        elif recorded[name] != short(observation.identity):
            subject = observation.subject
            yield Mismatch(signal=signal, name=name, subject=subject, kind="differs")


def unobserved(recorded: Hashes, capture: Capture) -> list[Signal]:
    """Return the signals that were recorded, and of which this run has nothing."""
    observed = hashes(capture)
    return [unit.name for unit in units() if unit.name in recorded and unit.name not in observed]


def count(recorded: Hashes) -> int:
    """Return the number of recorded observations."""
    return sum(map(len, recorded.values()))
