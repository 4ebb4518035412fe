"""Validation of matrix.yaml against its form.

Pydantic finds the mistakes. This module adds their position in the file and the advice what to
write instead.
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
    """The valid part of a file, and the problems of the parts that were cut from it."""

    file: MatrixFile
    problems: tuple[Problem, ...]
    cuts: frozenset[Keys]
    numbers: dict[str, list[int]]
    """Section -> indices in the file of those entries of its list that were not cut."""

    def is_whole(self, *sections: str) -> bool:
        """Return True if nothing was cut from the sections, and no top-level key was cut.

        A top-level key that was cut may be a misspelt section.
        """
        return not any(keys[0] in sections or len(keys) == 1 for keys in self.cuts)


def check(yaml: Yaml, data: dict[str, object]) -> Checked:
    """Check data, the mapping of a file, against the form.

    Invalid parts are cut out, in ever larger pieces, until the rest is valid. So a mistake in one
    entry does not hide the mistakes in others.
    """
    cuttable = _CuttableData(data)
    first_errors: list[ErrorDetails] = []
    for depth in (3, 2, 1):
        errors = cuttable.errors()
        first_errors = first_errors or errors
        for error in errors:
            keys = error["loc"]
            cuttable.cut(keys if error["type"] == "extra_forbidden" else keys[:depth])
    return Checked(
        file=MatrixFile.model_validate(cuttable.remaining()),
        problems=tuple(_problem(yaml, error) for error in first_errors),
        cuts=frozenset(cuttable.cuts),
        numbers={section: cuttable.numbers(section) for section in MatrixFile.model_fields},
    )


_CUT = object()
"""Replaces an entry that was cut from a list, so that the other entries keep their index."""


class _CuttableData:
    """The data of a file, from which invalid parts can be cut."""

    def __init__(self, data: dict[str, object]) -> None:
        self._data: dict[str, Any] = deepcopy(data)
        self.cuts: set[Keys] = set()

    def remaining(self) -> dict[str, object]:
        """Return the data without the parts that were cut."""
        return {
            section: [item for item in part if item is not _CUT] if isinstance(part, list) else part
            for section, part in self._data.items()
        }

    def errors(self) -> list[ErrorDetails]:
        """Return the errors of the remaining data, with their keys in the file."""
        try:
            MatrixFile.model_validate(self.remaining())
        except ValidationError as error:
            return [self._in_file(details) for details in error.errors(include_url=False)]
        return []

    def numbers(self, section: str) -> list[int]:
        """Return the indices in the file of those entries of a list that were not cut."""
        items = self._data.get(section)
        if not isinstance(items, list):
            return []
        return [index for index, item in enumerate(items) if item is not _CUT]

    def cut(self, keys: Keys) -> None:
        """Remove a part if it exists."""
        self.cuts.add(keys)
        parent = self._at(keys[:-1])
        if isinstance(parent, dict):
            parent.pop(keys[-1], None)
        elif isinstance(parent, list) and len(keys) == 2:
            parent[int(keys[1])] = _CUT
        elif isinstance(parent, list):
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
            exists = isinstance(part, list) or (isinstance(part, dict) and key in part)
            part = part[key] if exists else None
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
    if kind == "mistake":
        return str(context["text"])
    if kind == "missing":
        return f"is missing: {_MISSING[str(error['loc'][-1])]}"
    if kind in _KINDS:
        return _wrong_kind(yaml, error)
    if kind == "literal_error":
        return _unknown_value(error)
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"{_described(error['input'])} is out of range: write {words} {context[bound]:g}"
    if kind in ("too_short", "string_too_short"):
        remedy = "" if error["loc"] == ("models",) else ", or remove the key"
        return f"is empty: write at least one{remedy}"
    return f"{_described(error['input'])} is not possible here"


def _wrong_kind(yaml: Yaml, error: ErrorDetails) -> str:
    expected = _KINDS[error["type"]]
    value = error["input"]
    if error["loc"] == ("models",):
        return "write a name and under it its source, such as {hub: org/name}"
    if value is None:
        return f"no value stands here: write {expected}, or remove the key"
    if error["type"] == "string_type" and isinstance(value, bool | int | float):
        raw = _raw(yaml, error["loc"])
        return f'unquoted, {raw} is {_described(value)} to YAML: quote it: "{raw}"'
    if error["loc"][:1] == ("models",) and len(error["loc"]) == 2:
        return f"write a mapping such as {{hub: org/name}} instead of {_described(value)}"
    return f"write {expected} instead of {_described(value)}"


def _raw(yaml: Yaml, keys: Keys) -> str:
    while keys not in yaml.raw:
        keys = keys[:-1]
    return yaml.raw[keys]


def _described(value: object) -> str:
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


def _unknown_value(error: ErrorDetails) -> str:
    value = error["input"]
    if error["loc"] == ("version",):
        return f"{_described(value)} is no version of this file that is known: write version: 1"
    choices = re.findall("'([^']+)'", str(error.get("ctx", {})["expected"]))
    if isinstance(value, str):
        return f"{shown(value)} is not known: {nearest(value, choices)}"
    return f"{_described(value)} is not known: {nearest('', choices)}"


def _unknown_key(keys: Keys) -> str:
    key, parent = str(keys[-1]), _name(keys[:-1])
    position = f"in {parent}" if parent else "at the top"
    if key == "batch" and "batch" in keys[:-1]:
        return "a batch inside of a batch: write its inputs into the outer one"
    known_keys = _known_keys(keys[:-1])
    if not parent and key not in known_keys and key in DefaultsEntry.model_fields:
        return f"unknown key {shown(key)} {position}: write it under defaults:"
    return f"unknown key {shown(key)} {position}: {nearest(key, known_keys)}"


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
