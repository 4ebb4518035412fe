"""The changed definitions between two releases that a model can reach: which ran, and which did not."""

from __future__ import annotations

import re
from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from samebits.questions.changes import parts
from samebits.questions.changes.files import area_of, is_of_generation, never_run
from samebits.questions.changes.reach import owner_of, reached
from samebits.questions.changes.records import Step, Unrun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from samebits.questions.changes.parts import Statement
    from samebits.questions.changes.reach import Calls, Model, Place, Reached
    from samebits.questions.changes.records import Near, Why
    from samebits.questions.changes.release import Release
    from samebits.questions.changes.source import Definition
    from samebits.records.capture import Frame

LISTED = 25
"""Definitions that a report lists at most for each step."""
FEW = 3
"""Definitions that ran and are named at most: of more, their names say little of a difference."""
_TRANSFORMERS = "transformers/"
_COMPUTES = re.compile(
    r"(models/(?!auto/)|loss/|generation/)|(modeling(?!_utils)|masking|cache|activations|tokeniz|process|image|audio|video|feature)"
)
"""Files that compute tensors, ids or inputs; others load, save, train, report."""
_ORDER: Mapping[Near, int] = {"own": 0, "ran": 1, "imported": 2}


class Side:
    """One release as one model uses it."""

    def __init__(self, stack: str, release: Release, calls: Calls, model: Model) -> None:
        self.stack = stack
        self.ran_files = frozenset(calls.compared)
        self._lines = calls.compared
        self.reached: Reached = reached(release, calls, model)
        self._release = release

    def definition(self, place: Place) -> Definition | None:
        """Return a definition; None if the release does not have it."""
        return self._release.source(place.file).definitions.get(place.name)

    def has_run(self, file: str, lines: set[int]) -> bool:
        """Return True if one of some regions of a file ran."""
        return not lines.isdisjoint(self._lines.get(file, ()))

    def statements(self, place: Place) -> tuple[Statement, ...]:
        """Return the statements of a function; none if they cannot be read."""
        return self._release.statements(place.file, place.name)

    def has_used(self, place: Place) -> bool:
        """Return True if the class of a method ran, or, of what is in no class, its file."""
        owner = owner_of(place)
        return place.file in self.ran_files if owner is None else owner in self.reached.ran


def step(reference: Side, candidate: Side, model: Model) -> Step:
    """Return the step from one release to another one."""
    sides = (reference, candidate)
    ran: list[str] = []
    unrun: list[tuple[_Rank, Unrun]] = []
    unreached: Counter[Why] = Counter()
    for place in _changed(reference, candidate):
        has_run = any(place in side.reached.ran for side in sides)
        if has_run and _ran_where_it_differs(place, sides):
            ran.append(place.name)
        elif not model.generates and is_of_generation(place.file):
            unreached["class"] += 1
        elif has_run and (why := never_run(*place)):
            unreached[why] += 1
        elif has_run:
            entry = _unrun(place, reference, candidate, 0, model)
            entry = entry.model_copy(update={"ran_elsewhere": True})
            unrun.append((_rank(place, entry, sides), entry))
        elif distances := [d for s in sides if (d := s.reached.distance.get(place)) is not None]:
            entry = _unrun(place, reference, candidate, min(distances), model)
            unrun.append((_rank(place, entry, sides), entry))
        else:
            unreached[candidate.reached.why[place]] += 1
    unrun.sort(key=itemgetter(0))
    return Step(
        reference=reference.stack,
        candidate=candidate.stack,
        ran=len(ran),
        few=tuple(ran) if len(ran) <= FEW else (),
        unrun=len(unrun),
        elsewhere=sum(entry.ran_elsewhere for _, entry in unrun),
        aside=sum(entry.aside for _, entry in unrun),
        unreached=dict(unreached.most_common()),
        unread=tuple(sorted(reference.reached.unread | candidate.reached.unread)),
        first=tuple(entry for _, entry in unrun[:LISTED]),
    )


def changed_frames(
    frames: Sequence[Frame], reference: Release, candidate: Release
) -> tuple[tuple[str, int], ...]:
    """Return file and line of those frames of a candidate's exception whose function the reference has otherwise.

    A function inside another one, such as that of a decorator, is no frame of its definition.
    """
    return tuple(
        (frame.file, frame.line)
        for frame in frames
        if frame.file.startswith(_TRANSFORMERS)
        and _has_changed(frame, frame.file.removeprefix(_TRANSFORMERS), reference, candidate)
    )


def _has_changed(frame: Frame, file: str, reference: Release, candidate: Release) -> bool:
    source = candidate.source(file)
    start = max((line for line in source.by_line if line <= frame.line), default=0)
    definition = source.definitions.get(source.by_line.get(start, ""))
    if definition is None or definition.name.rpartition(".")[2] != frame.function:
        return False
    before = reference.source(file).definitions.get(definition.name)
    return before is None or before.digest != definition.digest


def _changed(reference: Side, candidate: Side) -> Iterator[Place]:
    """Yield what both releases define, and not alike.

    What only one of them has counts by what calls it, which differs then.
    """
    for place, definition in candidate.reached.definitions.items():
        before = reference.definition(place)
        if before is not None and before.digest != definition.digest:
            yield place


def _ran_where_it_differs(place: Place, sides: tuple[Side, Side]) -> bool:
    """Return True if a region of a function that differs ran, or if no region differs.

    Defaults and decorators, for example, are in no region.
    """
    differing = parts.changed(*(side.statements(place) for side in sides))
    return not any(differing) or any(
        side.has_run(place.file, lines) for side, lines in zip(sides, differing, strict=True)
    )


def _unrun(place: Place, reference: Side, candidate: Side, distance: int, model: Model) -> Unrun:
    before, after = reference.definition(place), candidate.definition(place)
    assert before is not None
    assert after is not None
    area, questions = area_of(place.file, place.name)
    return Unrun(
        file=place.file,
        name=place.name,
        reference_line=before.line,
        candidate_line=after.line,
        near=_near(place.file, reference.ran_files | candidate.ran_files),
        distance=distance,
        aside=any(place in side.reached.aside for side in (reference, candidate)),
        area=area,
        off=tuple(name for name in questions if name in model.off),
    )


def _rank(place: Place, entry: Unrun, sides: tuple[Side, Side]) -> _Rank:
    """Return what sorts the nearest code that computes tensors, ids or inputs first.

    What belongs to a class that ran comes before classes that only a name leads to, such as other caches.
    """
    definition = sides[1].definition(place)
    is_function = definition is not None and definition.kind == "function"
    return _Rank(
        near=_ORDER[entry.near],
        aside=_COMPUTES.match(entry.file) is None,
        unused=not any(side.has_used(place) for side in sides),
        passive=not is_function,
        distance=entry.distance,
        place=place,
    )


class _Rank(NamedTuple):
    """What sorts definitions, the first ones first."""

    near: int
    aside: bool
    unused: bool
    passive: bool
    distance: int
    place: Place


def _near(file: str, ran: frozenset[str]) -> Near:
    if file not in ran:
        return "imported"
    is_model = file.startswith("models/") and not file.startswith("models/auto/")
    return "own" if is_model else "ran"
