"""The changed definitions between two releases that a model can reach: which ran, and which did not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samebits.questions.changes.reach import reached
from samebits.questions.changes.records import Step, Unrun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from samebits.questions.changes.reach import Place, Reached
    from samebits.questions.changes.records import Near
    from samebits.questions.changes.release import Release
    from samebits.questions.changes.source import Definition

LISTED = 25
"""Definitions that a report lists at most for each step."""
_COMPUTES = re.compile(
    r"(models|loss|generation)/|(modeling|masking|cache|activations|tokeniz|process|image|audio|video|feature)"
)
"""Files that compute tensors, ids or inputs; others load, save, train, report."""
_ORDER: Mapping[Near, int] = {"own": 0, "ran": 1, "imported": 2}


class Side:
    """One release as one model uses it."""

    def __init__(self, stack: str, release: Release, calls: Mapping[str, Iterable[int]]) -> None:
        self.stack = stack
        self.ran_files = frozenset(calls)
        self.reached: Reached = reached(release, calls)
        self._release = release

    def definition(self, place: Place) -> Definition | None:
        """Return a definition; None if the release does not have it."""
        return self._release.source(place.file).definitions.get(place.name)


def step(reference: Side, candidate: Side) -> Step:
    """Return the step from one release to another one."""
    ran, unreached = 0, 0
    unrun: list[Unrun] = []
    for place in _changed(reference, candidate):
        sides = (reference, candidate)
        if any(place in side.reached.ran for side in sides):
            ran += 1
        elif distances := [d for s in sides if (d := s.reached.distance.get(place)) is not None]:
            unrun.append(_unrun(place, reference, candidate, min(distances)))
        else:
            unreached += 1
    unrun.sort(key=_rank)
    return Step(
        reference=reference.stack,
        candidate=candidate.stack,
        ran=ran,
        unrun=len(unrun),
        unreached=unreached,
        unread=tuple(sorted(reference.reached.unread | candidate.reached.unread)),
        first=tuple(unrun[:LISTED]),
    )


def _changed(reference: Side, candidate: Side) -> Iterator[Place]:
    """Yield what both releases define, and not alike.

    What only one of them has counts by what calls it, which differs then.
    """
    for place, definition in candidate.reached.definitions.items():
        before = reference.definition(place)
        if before is not None and before.digest != definition.digest:
            yield place


def _unrun(place: Place, reference: Side, candidate: Side, distance: int) -> Unrun:
    before, after = reference.definition(place), candidate.definition(place)
    assert before is not None
    assert after is not None
    return Unrun(
        file=place.file,
        name=place.name,
        reference_line=before.line,
        candidate_line=after.line,
        near=_near(place.file, reference.ran_files | candidate.ran_files),
        distance=distance,
    )


def _rank(entry: Unrun) -> tuple[int, bool, int, str, str]:
    """Return what sorts the nearest code that computes tensors, ids or inputs first."""
    computes = _COMPUTES.match(entry.file) is not None
    return _ORDER[entry.near], not computes, entry.distance, entry.file, entry.name


def _near(file: str, ran: frozenset[str]) -> Near:
    if file not in ran:
        return "imported"
    is_model = file.startswith("models/") and not file.startswith("models/auto/")
    return "own" if is_model else "ran"
