"""Which definitions of a release a model can reach, and how far they are from what it ran.

Python binds names when it runs, so this goes by names alone: a function is reached if something that is
reached refers to its name. That is too much rather than too little. The public methods of a class that ran
are reached as well, as users call them. What stands in a table, such as the functions of rope types, is
reached if the model's config names its key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from samebits.questions.changes.files import (
    is_of_generation,
    is_run_by,
    makes_modules,
    never_run,
    reasons,
)

if TYPE_CHECKING:
    from samebits.questions.changes.records import Why
    from samebits.questions.changes.release import Release
    from samebits.questions.changes.source import Definition

BY_USERS = 3
"""Distance of a method that only users call."""
_BY_ARGUMENTS = ("generation/", "cache_utils")
"""Starts of files whose tables have keys that users pass as arguments."""
_MIN_ENDING = 4
"""Characters of a key that may be the end of a word, such as ``ForCausalLM``."""


class Place(NamedTuple):
    """A definition of a file."""

    file: str
    name: str


class Calls(NamedTuple):
    """What the jobs of a model entered in one release: file -> first lines of functions."""

    compared: Mapping[str, Iterable[int]]
    aside: Mapping[str, Iterable[int]] = {}
    """By jobs that ended with an exception, so that nothing was compared."""


class Model(NamedTuple):
    """What decides what a model can reach, beside what it ran."""

    words: frozenset[str] = frozenset()
    """Strings of its config and the name of its class."""
    off: frozenset[str] = frozenset()
    """Questions that it is not asked."""
    generates: bool = True
    """Whether its class has a generate() that continues a text."""
    unset: frozenset[str] = frozenset()
    """Fields that are false or empty in its config and all parts of it."""

    def opens(self, key: str) -> bool:
        """Return True if the config names the key of a table."""
        return key in self.words or (
            len(key) >= _MIN_ENDING and any(word.endswith(key) for word in self.words)
        )


class Reached(NamedTuple):
    """What a model ran and can reach in one release."""

    definitions: Mapping[Place, Definition]
    """Those of the files that it ran, and of all that they import."""
    unread: frozenset[str]
    """Those of these files that cannot be read."""
    ran: frozenset[Place]
    """Functions that were entered, their classes with the bases, and constants that they refer to."""
    aside: frozenset[Place]
    """Those that only jobs entered which compared nothing."""
    distance: Mapping[Place, int]
    """Of what did not run: how many references lie between it and what ran."""
    why: Mapping[Place, Why]
    """Why the others cannot be reached."""


def reached(release: Release, calls: Calls, model: Model) -> Reached:
    """Return what a model can reach, from the functions that its jobs entered."""
    closure = release.closure([*calls.compared, *calls.aside])
    definitions = {
        Place(file, name): definition
        for file in closure
        for name, definition in release.source(file).definitions.items()
    }
    left_out = reasons(release, closure, calls.compared, model.off)
    within = {place: d for place, d in definitions.items() if place.file not in left_out}
    entered = _entered(release, calls.compared) & within.keys()
    others = _not_made(entered, within) | _not_used(entered, within, model)
    never = {place: cause for place in within.keys() - entered if (cause := never_run(*place))}
    never |= dict.fromkeys(_at_import(release, closure) - entered, "message")
    within = {p: d for p, d in within.items() if p not in others and p not in never}
    ran = _with_parts(entered, within, model)
    spread = _Spread(ran, within, _followed(within, model))
    spread.from_what_ran(model.off)
    gated = _Spread(ran, within, lambda place: _all_names(within[place]))
    gated.from_what_ran(model.off)
    why: dict[Place, Why] = {
        place: left_out.get(place.file)
        or never.get(place)
        or ("class" if place in others else "config" if place in gated.distances else "name")
        for place in definitions
        if place not in ran and place not in spread.distances
    }
    aside = _entered(release, calls.aside) & within.keys() - ran
    unread = frozenset(release.unread & closure)
    return Reached(definitions, unread, frozenset(ran), frozenset(aside), spread.distances, why)


def _entered(release: Release, calls: Mapping[str, Iterable[int]]) -> set[Place]:
    return {
        Place(file, name)
        for file, lines in calls.items()
        for line in lines
        if (name := release.source(file).by_line.get(line))
    }


def _at_import(release: Release, files: Iterable[str]) -> set[Place]:
    """Return the functions that imports of these files call."""
    sources = {file: release.source(file) for file in files}
    called = frozenset[str]().union(*(source.at_import for source in sources.values()))
    return {
        Place(file, name)
        for file, source in sources.items()
        for name in called & source.definitions.keys()
        if source.definitions[name].kind == "function"
    }


def _not_made(entered: set[Place], definitions: Mapping[Place, Definition]) -> set[Place]:
    """Return the classes of models' files that were never made, with their methods.

    A load makes all parts of a model, so these are other heads or parts of another model.
    """
    classes = {
        owner
        for place in definitions
        if last(place.name) == "__init__" and makes_modules(place.file) and place not in entered
        if (owner := owner_of(place))
    }
    return {place for place in definitions if place in classes or owner_of(place) in classes}


def _not_used(entered: set[Place], definitions: Iterable[Place], model: Model) -> set[Place]:
    """Return what only generate() runs, of a model that has none."""
    if model.generates:
        return set()
    return {place for place in definitions if is_of_generation(place.file)} - entered


def _all_names(definition: Definition) -> frozenset[str]:
    return definition.names.union(*definition.table.values())


def _followed(
    definitions: Mapping[Place, Definition], model: Model
) -> Callable[[Place], Collection[str]]:
    """Return what gives the names that a definition refers to in this model."""

    def names(place: Place) -> Collection[str]:
        definition = definitions[place]
        if not definition.table:
            return definition.names
        if definition.kind == "function":
            asked = (names for field, names in definition.table.items() if field not in model.unset)
            return definition.names.union(*asked)
        if place.file.startswith(_BY_ARGUMENTS):
            return _all_names(definition)
        opened = (listed for key, listed in definition.table.items() if model.opens(key))
        return definition.names.union(*opened)

    return names


def _with_parts(
    entered: set[Place], definitions: Mapping[Place, Definition], model: Model
) -> set[Place]:
    """Return functions that ran with their classes, the bases of these, and their constants.

    A class without functions, as of an output, counts as a constant: nothing shows whether it ran.
    """
    owners = {owner for place in definitions if (owner := owner_of(place))}
    classes: dict[str, list[Place]] = {}
    constants: dict[str, list[Place]] = {}
    for place, definition in definitions.items():
        is_plain = definition.kind == "class" and place not in owners
        if definition.kind == "class":
            classes.setdefault(last(place.name), []).append(place)
        if definition.kind == "constant" or is_plain:
            constants.setdefault(place.name, []).append(place)
    ran = set(entered)
    rest = [owner for place in entered if (owner := owner_of(place))]
    while rest:
        place = rest.pop()
        if place in ran or place not in definitions:
            continue
        ran.add(place)
        rest += [base for name in definitions[place].names for base in classes.get(name, ())]
    followed, new = _followed(definitions, model), set(entered)
    while new:
        names = {name for place in new for name in followed(place)}
        new = {place for name in names for place in constants.get(name, ())} - ran
        ran |= new
    return ran


class _Spread:
    """The definitions that are reached by names, with their distances from what ran."""

    def __init__(
        self,
        ran: set[Place],
        definitions: Iterable[Place],
        names: Callable[[Place], Collection[str]],
    ) -> None:
        self._ran = ran
        self._names = names
        self._by_name: dict[str, list[Place]] = {}
        self._methods: dict[Place, list[Place]] = {}
        for place in definitions:
            self._by_name.setdefault(last(place.name), []).append(place)
            if owner := owner_of(place):
                self._methods.setdefault(owner, []).append(place)
        self._referred: set[str] = set()
        self.distances: dict[Place, int] = {}

    def from_what_ran(self, off: Collection[str]) -> None:
        """Follow the names in what ran, then those in what users may call on the same objects.

        Classes that a question would use which is ``off`` are such objects as well.
        """
        self._follow(self._ran, 0)
        self._follow_public(self._ran)
        self._follow_public({place for place in self.distances if is_run_by(place.file, off)})

    def _follow_public(self, classes: set[Place]) -> None:
        public = {
            method
            for owner in classes
            for method in self._methods.get(owner, ())
            if not last(method.name).startswith("_") and self._is_open(method)
        }
        self.distances |= dict.fromkeys(public, BY_USERS)
        self._follow(public, BY_USERS)

    def _follow(self, frontier: set[Place], distance: int) -> None:
        while frontier:
            distance += 1
            names = {name for place in frontier for name in self._names(place)}
            names -= self._referred
            self._referred |= names
            frontier = {p for p in (*self._named(names), *self._of(frontier)) if self._is_open(p)}
            self.distances |= dict.fromkeys(frontier, distance)

    def _named(self, names: Iterable[str]) -> Iterator[Place]:
        for name in names:
            yield from self._by_name.get(name, ())

    def _of(self, classes: Iterable[Place]) -> Iterator[Place]:
        """Yield the methods of classes that something refers to."""
        for place in classes:
            for method in self._methods.get(place, ()):
                if last(method.name) in self._referred:
                    yield method

    def _is_open(self, place: Place) -> bool:
        """Return True if a definition is not reached yet, and a method's class is."""
        if place in self.distances or place in self._ran:
            return False
        owner = owner_of(place)
        return owner is None or owner in self._ran or owner in self.distances


def owner_of(place: Place) -> Place | None:
    """Return the class of a method; None for what is in no class."""
    owner = place.name.rpartition(".")[0]
    return Place(place.file, owner) if owner else None


def last(name: str) -> str:
    """Return the last part of a qualified name."""
    return name.rpartition(".")[2]
