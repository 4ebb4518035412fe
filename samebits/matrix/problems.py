"""Which parts of matrix.yaml have its form, and what is there to say of the others?

Pydantic finds the mistakes; here they get a place in the file and words that say what to write.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from samebits.base.errors import nearest, shown
from samebits.matrix.form import (
    BuildEntry,
    DefaultsEntry,
    ExpectedEntry,
    InputEntry,
    MatrixFile,
    ModelEntry,
    PromptEntry,
    RuleEntry,
    StackEntry,
    is_name,
)
from samebits.matrix.yamltext import Problem

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

    from samebits.matrix.form import Form
    from samebits.matrix.yamltext import Keys, Yaml


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The part of a file that has the form, and the problems of all that was cut from it."""

    file: MatrixFile
    problems: tuple[Problem, ...]
    cuts: frozenset[Keys]
    numbers: dict[str, list[int]]
    """Where the entries of each list that are left stand in the file."""

    def is_whole(self, *sections: str) -> bool:
        """Return True if nothing was cut from the sections, and no key may be a typo of them."""
        return not any(keys[0] in sections or len(keys) == 1 for keys in self.cuts)


def check(yaml: Yaml, data: dict[str, object]) -> Checked:
    """Check data, the mapping of a file, against the form.

    What is wrong is cut out, in ever larger parts, until the rest can be read: so a mistake in
    one entry does not hide those in the others.
    """
    draft = _Draft(data)
    first: list[ErrorDetails] = []
    for depth in (3, 2, 1):
        errors = draft.errors()
        first = first or errors
        for error in errors:
            keys = error["loc"]
            draft.cut(keys if error["type"] == "extra_forbidden" else keys[:depth])
    return Checked(
        file=MatrixFile.model_validate(draft.sound()),
        problems=tuple(_problem(yaml, error) for error in first),
        cuts=frozenset(draft.cuts),
        numbers={section: draft.numbers(section) for section in MatrixFile.model_fields},
    )


_CUT = object()
"""Stands where an entry of a list was taken out, so that the others keep their numbers."""


class _Draft:
    """The data of a file, from which parts are cut."""

    def __init__(self, data: dict[str, object]) -> None:
        self._data: dict[str, Any] = deepcopy(data)
        self.cuts: set[Keys] = set()

    def sound(self) -> dict[str, object]:
        """Return what was not cut."""
        return {
            section: [item for item in part if item is not _CUT] if isinstance(part, list) else part
            for section, part in self._data.items()
        }

    def errors(self) -> list[ErrorDetails]:
        """Return what is wrong with what was not cut, by its keys in the file."""
        try:
            MatrixFile.model_validate(self.sound())
        except ValidationError as error:
            return [self._in_file(details) for details in error.errors(include_url=False)]
        return []

    def numbers(self, section: str) -> list[int]:
        """Return where the entries of a list that are left stand in the file."""
        items = self._data.get(section)
        if not isinstance(items, list):
            return []
        return [index for index, item in enumerate(items) if item is not _CUT]

    def cut(self, keys: Keys) -> None:
        """Take a part out, if it is there."""
        self.cuts.add(keys)
        around = self._at(keys[:-1])
        if isinstance(around, dict):
            around.pop(keys[-1], None)
        elif isinstance(around, list) and len(keys) == 2:
            around[int(keys[1])] = _CUT
        elif isinstance(around, list):
            self.cut(keys[:-1])

    def _in_file(self, details: ErrorDetails) -> ErrorDetails:
        match details["loc"]:
            case (str(section), int(number), *rest) if isinstance(self._data.get(section), list):
                keys = (section, self.numbers(section)[number], *rest)
                return {**details, "loc": keys}
        return details

    def _at(self, keys: Keys) -> object:
        part: Any = self._data
        for key in keys:
            is_there = isinstance(part, list) or (isinstance(part, dict) and key in part)
            part = part[key] if is_there else None
        return part


_KINDS = {
    "string_type": "a text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping (key: value)",
    "model_type": "a mapping (key: value)",
}

_MISSING = {
    "transformers": 'write a version such as "4.48"',
    "architecture": "write a model_type such as llama",
    "model": 'name the models, "*" for all',
    "stack": 'name the stacks, "*" for all',
    "reason": "say why the difference is there",
}

_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def _problem(yaml: Yaml, error: ErrorDetails) -> Problem:
    keys = error["loc"]
    if error["type"] == "extra_forbidden":
        return Problem(yaml.keys[keys], _unknown_key(keys))
    name = _name(keys)
    text = _text(yaml, error)
    colon = " " if text.startswith("is ") else ": "
    return Problem(yaml.place(keys), f"{name}{colon}{text}" if name else text)


def _name(keys: Keys) -> str:
    name = next((str(key) for key in reversed(keys) if isinstance(key, str)), "")
    return name if is_name(name) or not name else shown(name)


def _text(yaml: Yaml, error: ErrorDetails) -> str:
    kind = error["type"]
    context = error.get("ctx", {})
    if kind == "said":
        return str(context["said"])
    if kind == "missing":
        return f"is missing: {_MISSING[str(error['loc'][-1])]}"
    if kind in _KINDS:
        return _wrong_kind(yaml, error)
    if kind == "literal_error":
        return _not_among(error)
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"{_found(error['input'])} is out of range: write {words} {context[bound]:g}"
    if kind in ("too_short", "string_too_short"):
        remedy = "" if error["loc"] == ("models",) else ", or remove the key"
        return f"is empty: write at least one{remedy}"
    return f"{_found(error['input'])} is not possible here"


def _wrong_kind(yaml: Yaml, error: ErrorDetails) -> str:
    expected = _KINDS[error["type"]]
    value = error["input"]
    if error["loc"] == ("models",):
        return "write a name and under it its source, such as {hub: org/name}"
    if value is None:
        return f"no value stands here: write {expected}, or remove the key"
    if error["type"] == "string_type" and isinstance(value, bool | int | float):
        raw = _raw(yaml, error["loc"])
        return f'unquoted, {raw} is {_found(value)} to YAML: quote it: "{raw}"'
    if error["loc"][:1] == ("models",) and len(error["loc"]) == 2:
        return f"write a mapping such as {{hub: org/name}} instead of {_found(value)}"
    return f"write {expected} instead of {_found(value)}"


def _raw(yaml: Yaml, keys: Keys) -> str:
    while keys not in yaml.raw:
        keys = keys[:-1]
    return yaml.raw[keys]


def _found(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            text = shown(repr(value))
            return f"the number {text[1:-1]}"
        case str():
            return f"the text {shown(value)}"
        case list():
            return "a list"
        case dict():
            return "a mapping"
        case _:
            return "nothing"


def _not_among(error: ErrorDetails) -> str:
    value = error["input"]
    if error["loc"] == ("version",):
        return f"{_found(value)} is no version of this file that is known: write version: 1"
    known = re.findall("'([^']+)'", str(error.get("ctx", {})["expected"]))
    if isinstance(value, str):
        return f"{shown(value)} is not known: {nearest(value, known)}"
    return f"{_found(value)} is not known: {nearest('', known)}"


def _unknown_key(keys: Keys) -> str:
    key, around = str(keys[-1]), _name(keys[:-1])
    where = f"in {around}" if around else "at the top"
    if key == "batch" and "batch" in keys[:-1]:
        return "a batch inside of a batch: write its inputs into the outer one"
    known = _known_keys(keys[:-1])
    if not around and key not in known and key in DefaultsEntry.model_fields:
        return f"unknown key {shown(key)} {where}: write it under defaults:"
    return f"unknown key {shown(key)} {where}: {nearest(key, known)}"


def _known_keys(keys: Keys) -> list[str]:
    fields = _form(keys).model_fields
    return [field.alias or name for name, field in fields.items()]


def _form(keys: Keys) -> type[Form]:
    match keys:
        case ():
            return MatrixFile
        case ("defaults",):
            return DefaultsEntry
        case ("stacks", _):
            return StackEntry
        case ("models", _):
            return ModelEntry
        case ("models", _, "build"):
            return BuildEntry
        case ("expected", _):
            return ExpectedEntry
        case ("include" | "exclude", _):
            return RuleEntry
        case (*_, "batch", int()):
            return InputEntry
        case _:
            return PromptEntry
