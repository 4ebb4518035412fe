"""Which definitions of a release a model can reach, and how far they are from what it ran.

Python binds names when it runs, so this goes by names alone: a function is reached if something that is
reached refers to its name. That is too much rather than too little. The public methods of a class that ran
are reached as well, as users call them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from samebits.questions.changes.release import Release
    from samebits.questions.changes.source import Definition

BY_USERS = 3
"""Distance of a method that only users call."""

_OPTIONAL = (
    "commands/",
    "distributed/",
    "integrations/",
    "kernels/",
    "onnx/",
    "pipelines/",
    "quantizers/",
    "sagemaker/",
    "utils/dummy_",
    "utils/quantization_config",
)
"""Starts of files that need a quantized checkpoint, a device or another package."""
_ASIDE = (
    "dependency_versions",
    "integrations/deepspeed",
    "integrations/integration_utils",
    "testing_utils",
    "utils/auto_docstring",
    "utils/args_doc",
    "utils/doc.py",
    "utils/import_utils",
    "utils/logging",
    "utils/versions",
    "utils/deprecation",
    "utils/hub",
)
"""Starts of files that import, document, log, download and report."""
_FRAMEWORKS = (
    "_tf_",
    "_flax_",
    "tf_utils",
    "flax_utils",
    "_tf.py",
    "_flax.py",
    "tf_logits",
    "flax_logits",
)


class Place(NamedTuple):
    """A definition of a file."""

    file: str
    name: str


class Reached(NamedTuple):
    """What a model ran and can reach in one release."""

    definitions: Mapping[Place, Definition]
    """Those of the files that it ran, and of all that they import."""
    unread: frozenset[str]
    """Those of these files that cannot be read."""
    ran: frozenset[Place]
    """Functions that were entered, their classes with the bases, and constants that they refer to."""
    distance: Mapping[Place, int]
    """Of what did not run: how many references lie between it and what ran."""


def reached(release: Release, calls: Mapping[str, Iterable[int]]) -> Reached:
    """Return what a model can reach, from the functions that its jobs entered."""
    entered = {
        Place(file, name)
        for file, lines in calls.items()
        for line in lines
        if (name := release.source(file).by_line.get(line))
    }
    closure = release.closure(calls)
    files = (file for file in closure if not _is_left_out(file, file in calls))
    definitions = {
        Place(file, name): definition
        for file in files
        for name, definition in release.source(file).definitions.items()
    }
    ran = _with_parts({place for place in entered if place in definitions}, definitions)
    spread = _Spread(ran, definitions)
    spread.from_what_ran()
    unread = frozenset(release.unread & closure)
    return Reached(definitions, unread, frozenset(ran), spread.distances)


def _is_left_out(file: str, has_run: bool) -> bool:
    """Return True for a file that computes nothing, or only with what the model does without."""
    if file.startswith(_ASIDE):
        return True
    return not has_run and (file.startswith(_OPTIONAL) or any(word in file for word in _FRAMEWORKS))


def _with_parts(entered: set[Place], definitions: Mapping[Place, Definition]) -> set[Place]:
    """Return functions that ran with their classes, the bases of these, and their constants."""
    classes: dict[str, list[Place]] = {}
    constants: dict[str, list[Place]] = {}
    for place, definition in definitions.items():
        if definition.kind == "class":
            classes.setdefault(_last(place.name), []).append(place)
        elif definition.kind == "constant":
            constants.setdefault(place.name, []).append(place)
    ran = set(entered)
    rest = [Place(place.file, place.name.rpartition(".")[0]) for place in entered]
    while rest:
        place = rest.pop()
        if place in ran or place not in definitions:
            continue
        ran.add(place)
        rest += [base for name in definitions[place].names for base in classes.get(name, ())]
    names = {name for place in entered for name in definitions[place].names}
    ran |= {place for name in names for place in constants.get(name, ())}
    return ran


class _Spread:
    """The definitions that are reached by names, with their distances from what ran."""

    def __init__(self, ran: set[Place], definitions: Mapping[Place, Definition]) -> None:
        self._ran = ran
        self._definitions = definitions
        self._by_name: dict[str, list[Place]] = {}
        self._methods: dict[Place, list[Place]] = {}
        for place in definitions:
            self._by_name.setdefault(_last(place.name), []).append(place)
            if owner := self._owner(place):
                self._methods.setdefault(owner, []).append(place)
        self._referred: set[str] = set()
        self.distances: dict[Place, int] = {}

    def from_what_ran(self) -> None:
        """Follow the names in what ran, then those in what users may call on the same objects."""
        self._follow(self._ran, 0)
        public = {
            method
            for owner in self._ran
            for method in self._methods.get(owner, ())
            if not _last(method.name).startswith("_") and self._is_open(method)
        }
        self.distances |= dict.fromkeys(public, BY_USERS)
        self._follow(public, BY_USERS)

    def _follow(self, frontier: set[Place], distance: int) -> None:
        while frontier:
            distance += 1
            names = {name for place in frontier for name in self._definitions[place].names}
            names -= self._referred
            self._referred |= names
            named = (place for name in names for place in self._by_name.get(name, ()))
            of_classes = (
                method
                for place in frontier
                for method in self._methods.get(place, ())
                if _last(method.name) in self._referred
            )
            frontier = {place for place in (*named, *of_classes) if self._is_open(place)}
            self.distances |= dict.fromkeys(frontier, distance)

    def _is_open(self, place: Place) -> bool:
        """Return True if a definition is not reached yet, and a method's class is."""
        if place in self.distances or place in self._ran:
            return False
        owner = self._owner(place)
        return owner is None or owner in self._ran or owner in self.distances

    def _owner(self, place: Place) -> Place | None:
        """Return the class of a method; None for what is in no class."""
        owner = place.name.rpartition(".")[0]
        return Place(place.file, owner) if owner else None


def _last(name: str) -> str:
    return name.rpartition(".")[2]
