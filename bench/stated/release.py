"""What the classes of one release state together: configs inside others, and what bases set after their classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from pydantic import JsonValue

from bench.stated import written
from bench.stated.sources import Stated
from bench.stated.values import Inside, Part, UnstatedError
from samebits.defaults.table import Table

_RELEASE = "this"


def of_inside(found: Mapping[str, Stated]) -> Inside:
    """Return what knows the defaults of configs inside, of the classes of a release."""
    table = Table([], {})
    written.add(table, _RELEASE, found)

    def default_of(part: Part, name: str) -> JsonValue:
        cls = table.class_of(part.type, _RELEASE) if part.type else part.of
        if part.given is None or cls is None:
            raise UnstatedError
        if name in part.given:
            return part.given[name]
        default = table.default(cls, name, _RELEASE)
        if default is None or not default.is_stated or part.given.keys() & {*default.needs}:
            raise UnstatedError
        return default.value

    return default_of


def without_overwritten(found: Mapping[str, Stated]) -> dict[str, Stated]:
    """Return the classes without the fields that ``__init__`` of a base sets again, to its own default."""
    return {name: _without(stated, found) for name, stated in found.items()}


def _without(stated: Stated, found: Mapping[str, Stated]) -> Stated:
    set_again = stated.overwritten & set(_fields_of_bases(stated, found))
    if stated.kind != "config" or not set_again:
        return stated
    return replace(
        stated,
        fields={name: value for name, value in stated.fields.items() if name not in set_again},
        computed=stated.computed - set_again,
    )


def _fields_of_bases(stated: Stated, found: Mapping[str, Stated]) -> Iterator[str]:
    for base in stated.bases:
        if base in found and base not in ("", stated.type):
            yield from found[base].fields
            yield from found[base].computed
            yield from _fields_of_bases(found[base], found)
