"""The table of defaults, ``defaults.json``: what each class states, and in which releases.

A field has a row for each release in which it changes: ``[release, "=", value]``, ``[release, "~", value, others]``
for a value that the source makes of the defaults of other fields, ``[release, "?"]`` where the source does not
state the value, ``[release, "-"]`` where the class has no such field. Releases are indices.
What the base of all configs does with the fields of its classes is done as they are read.
``nox -s defaults`` adds a release (bench/stated/).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from samebits.defaults.rope import FACTOR, FIELD, OWN, completed

if TYPE_CHECKING:
    from pydantic import JsonValue

FILE: Final = "defaults.json"
_RENAMED_BASE: Final = {"PretrainedConfig": "PreTrainedConfig"}
"""The base of all configs has another name since 5.0."""
_MAX_BASES = 20
TORCH: Final = "torch>="
FIELDS = "fields."
"""Begins the keys of fields among those of a class."""


class Default(NamedTuple):
    """The default of a field in one release."""

    is_stated: bool
    value: JsonValue = None
    needs: tuple[str, ...] = ()
    """Other fields: the default is this value where they have their defaults, too; or ``torch>=2.8``."""

    @property
    def torch(self) -> str | None:
        """The oldest torch with which it is the default; None: with any."""
        bounds = (name.removeprefix(TORCH) for name in self.needs if name.startswith(TORCH))
        return next(bounds, None)


@dataclass
class History:
    """One class over all releases."""

    rows: dict[str, list[list[Any]]] = field(default_factory=dict)
    """``fields.NAME``, ``bases``, ``type``, ``parts``, ``aliases``, ``keeps`` (field that the class leaves as another
    class gave it -> fields that decide so) and ``takes`` (field -> older values of the same meaning) -> rows."""

    @property
    def fields(self) -> list[str]:
        """Its own fields in any release."""
        return [key.removeprefix(FIELDS) for key in self.rows if key.startswith(FIELDS)]

    def at(self, key: str, release: int) -> list[Any]:
        """Return the last row of a key up to a release: a mark and, where it is stated, the value."""
        last: list[Any] = ["-"]
        for index, *row in self.rows.get(key, ()):
            if index > release:
                break
            last = row
        return last


class Table:
    """Defaults of all classes in all releases, oldest release first."""

    def __init__(self, releases: list[str], classes: dict[str, History]) -> None:
        self.releases = releases
        self.classes = classes

    def of(self, name: str, release: str) -> dict[str, Default]:
        """Return field -> default of a class, those of its bases included; empty if it is not there."""
        index = self.releases.index(release)
        line = list(self._line(name, index))
        fields = dict.fromkeys(field for base in line for field in self.classes[base].fields)
        defaults = {field: self._default(line, field, index) for field in fields}
        return {field: default for field, default in defaults.items() if default is not None}

    def default(self, name: str, field: str, release: str) -> Default | None:
        """Return the default of one field of a class or of its bases; None if they have none."""
        index = self.releases.index(release)
        return self._default(self._line(name, index), field, index)

    def _default(self, line: Iterable[str], field: str, index: int) -> Default | None:
        line = list(line)
        rows = {base: self.classes[base].at(f"{FIELDS}{field}", index) for base in line}
        stated = [base for base, row in rows.items() if row[0] != "-"]
        if not stated:
            return None
        mark, *given = rows[stated[0]]
        default = Default(mark in "=~", *given)
        for base in stated[1:]:
            if rows[base][0] != "=":
                default = self._kept(base, field, default, index)
        if isinstance(default.value, list) and field in self._of_layers(line, index):
            names = self._first("renames", line, index)
            default = default._replace(value=renamed(default.value, names))
        return self._completed(line, stated[0], default, index) if field == FIELD else default

    def _kept(self, base: str, field: str, default: Default, index: int) -> Default:
        """Return the default that a class gives to a base which makes the field of others: it may change it."""
        _, *keeps = self.classes[base].at("keeps", index)
        if default.value is None or not keeps or field not in keeps[0]:
            return Default(is_stated=False)
        return default._replace(needs=tuple(dict.fromkeys([*default.needs, *keeps[0][field]])))

    def completed(self, name: str, default: Default, release: str) -> Default:
        """Return rope parameters that a class has at first as the base of all configs completes them."""
        index = self.releases.index(release)
        return self._completed([*self._line(name, index)], name, default, index)

    def _completed(self, line: Sequence[str], of: str, default: Default, index: int) -> Default:
        """Return rope parameters as the base of all configs completes them; ``of`` is the class that states them."""
        rope = {base: row[1] for base in line if (row := self.classes[base].at("rope", index))[1:]}
        factor, theta = (self._default(line, name, index) for name in (FACTOR, "rope_theta"))
        own = [base for base, settings in rope.items() if settings.get(OWN)]
        if not default.is_stated or (own and (own[0] != of or next(iter(rope)) != of)):
            return Default(is_stated=False)
        settings = {k: v for each in reversed(rope.values()) for k, v in each.items()}
        value = completed(default.value, settings, theta, factor)
        return default._replace(is_stated=value is not None, value=value)

    def has(self, name: str, release: str) -> bool:
        """Tell whether a release has a class."""
        history = self.classes.get(name)
        return history is not None and history.at("bases", self.releases.index(release)) != ["-"]

    def class_of(self, model_type: str, release: str) -> str | None:
        """Return the config class of a model type."""
        index = self.releases.index(release)
        wanted = ["=", model_type]
        names = self._by_type.get(model_type, ())
        return next(
            (name for name in names if self.classes[name].at("type", index) == wanted), None
        )

    @cached_property
    def _by_type(self) -> dict[str, list[str]]:
        """Model type -> the classes that had it in any release."""
        names: dict[str, list[str]] = {}
        for name, history in self.classes.items():
            for _, _, *value in history.rows.get("type", ()):
                for model_type in value:
                    names.setdefault(model_type, []).append(name)
        return names

    def parts(self, name: str, release: str) -> dict[str, str]:
        """Return name of a config inside -> its class."""
        return self._nearest("parts", name, release)

    def takes(self, name: str, release: str) -> dict[str, list[JsonValue]]:
        """Return field -> values of an older form that the class takes as its default."""
        return self._nearest("takes", name, release)

    def aliases(self, name: str, release: str) -> dict[str, str]:
        """Return another name that a file may have -> the field."""
        return self._nearest("aliases", name, release)

    def _nearest(self, key: str, name: str, release: str) -> dict[str, Any]:
        index = self.releases.index(release)
        return self._first(key, self._line(name, index), index)

    def _first(self, key: str, line: Iterable[str], index: int) -> dict[str, Any]:
        for base in line:
            _, *value = self.classes[base].at(key, index)
            if value:
                names: dict[str, Any] = value[0]
                return names
        return {}

    def _of_layers(self, line: Sequence[str], index: int) -> set[str]:
        """Return the fields with kinds of layers, by the names that the class gives them."""
        aliases = self._first("aliases", line, index)
        return {aliases.get(name, name) for name in ("layer_types", "mtp_layer_types")}

    def _line(self, name: str, index: int) -> Iterator[str]:
        """Yield a class and its bases, nearest first."""
        waiting, seen = [name], set[str]()
        while waiting and len(seen) < _MAX_BASES:
            name = waiting.pop(0)
            history = self.classes.get(name)
            if name in seen or history is None:
                continue
            seen.add(name)
            _, *value = history.at("bases", index)
            if not value and name in _RENAMED_BASE:
                waiting.append(_RENAMED_BASE[name])
            yield name
            waiting += value[0] if value else []


def renamed(value: JsonValue, names: Mapping[str, JsonValue]) -> JsonValue:
    """Return a list of names with the new ones in place of the old ones."""
    if not isinstance(value, list):
        return value
    return [names.get(each, each) if isinstance(each, str) else each for each in value]


def from_text(text: str) -> Table:
    """Return the table of a file's text."""
    content = json.loads(text)
    classes = {name: History(rows) for name, rows in content["classes"].items()}
    return Table(content["releases"], classes)


@cache
def table() -> Table:
    """Return the table of this samebits."""
    return from_text(files("samebits.defaults").joinpath(FILE).read_text("utf-8"))
