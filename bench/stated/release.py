"""What the classes of one release state together: configs inside others, and what bases set after their classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import JsonValue

from bench.stated import written
from bench.stated.sources import Stated
from bench.stated.values import Held, Part, UnstatedError
from samebits.defaults.table import Default, Table

_RELEASE = "this"


class Release:
    """Knows what the files of one release state together."""

    def __init__(self, found: Mapping[str, Stated]) -> None:
        self._table = Table([], {})
        written.add(self._table, _RELEASE, found)

    def default(self, part: Part, name: str) -> JsonValue:
        """Return the default of a field of a config inside."""
        cls = self._table.class_of(part.type, _RELEASE) if part.type else part.of
        if part.given is None or cls is None:
            raise UnstatedError
        if name in part.given:
            return part.given[name]
        default = self._table.default(cls, name, _RELEASE)
        if default is None or not default.is_stated or part.given.keys() & {*default.needs}:
            raise UnstatedError
        return default.value

    def completed(self, cls: str, held: Held) -> Default:
        """Return ``rope_parameters`` of a class as the base of all configs completes them."""
        default = self._table.completed(cls, Default(is_stated=True, value=held.of), _RELEASE)
        if not default.is_stated:
            raise UnstatedError
        return default


def joined(found: Mapping[str, Stated]) -> dict[str, Stated]:
    """Return the classes without the fields that a base sets again, and without what no class asks its base."""
    bases = {base for stated in found.values() for base in stated.bases}
    return {
        name: replace(_without(stated, found), keeps=stated.keeps if name in bases else {})
        for name, stated in found.items()
    }


def _without(stated: Stated, found: Mapping[str, Stated]) -> Stated:
    given = {name for name in stated.before_base if stated.fields.get(name) is not None}
    resets = {name for base in _bases(stated, found) for name in base.resets}
    set_again = stated.overwritten & set(_fields_of_bases(stated, found)) | given & resets
    if stated.kind != "config" or not set_again:
        return stated
    return replace(
        stated,
        fields={name: value for name, value in stated.fields.items() if name not in set_again},
        computed=stated.computed - set_again,
    )


def _fields_of_bases(stated: Stated, found: Mapping[str, Stated]) -> Iterator[str]:
    for base in _bases(stated, found):
        yield from base.fields
        yield from base.computed


def _bases(stated: Stated, found: Mapping[str, Stated]) -> Iterator[Stated]:
    for base in stated.bases:
        if base in found and base not in ("", stated.type):
            yield found[base]
            yield from _bases(found[base], found)
