"""Validation of matrix.yaml against its form.

Pydantic finds the mistakes. This module adds their position in the file and the advice what to
write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from samebits.base.errors import nearest, shown
from samebits.matrix.arguments import Argument, InputSetEntry
from samebits.matrix.form import Form
from samebits.matrix.spec import (
    ExpectedEntry,
    MatrixFile,
    ModelEntry,
    Prompt,
    Recipe,
    Rule,
    Settings,
    StackEntry,
)
from samebits.matrix.values import is_name
from samebits.matrix.yamltext import Keys, Problem, Yaml
from samebits.records.question import switches


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The valid part of a file, and the problems of the rest."""

    file: MatrixFile
    problems: tuple[Problem, ...] = ()
    broken: frozenset[Keys] = frozenset()
    """Top-level keys, and entries of sections, that are missing from ``file``."""

    def is_whole(self, *sections: str) -> bool:
        """Return True if nothing of the sections is broken, and no top-level key.

        A top-level key that is broken may be a misspelt section.
        """
        return not any(keys[0] in sections or len(keys) == 1 for keys in self.broken)

    def numbers(self, section: str) -> Iterator[int]:
        """Yield the indices in the file of the valid entries of a list; it does not end."""
        return (number for number in count() if (section, number) not in self.broken)


def check(yaml: Yaml, data: dict[str, object], folder: Path) -> Checked:
    """Check data, the mapping of a file in ``folder``, against the form.

    An entry with a mistake is left out of the result, so that it does not hide mistakes in others.
    """
    context = {"folder": folder}
    try:
        return Checked(file=_file_of(data, context))
    except ValidationError as error:
        # pydantic counts only the valid items of a list: one whose items are all invalid is not empty
        errors = [
            details
            for details in error.errors(include_url=False)
            if details["type"] != "too_short" or not details["input"]
        ]
    broken = frozenset(error["loc"][:2] for error in errors)
    return Checked(
        file=_file_of(_without(data, broken), context),
        problems=tuple(_problem(yaml, error) for error in errors),
        broken=broken,
    )


def _file_of(data: dict[str, object], context: dict[str, Path]) -> MatrixFile:
    return MatrixFile.model_validate(data, context=context, by_alias=True, by_name=False)


def _without(data: dict[str, object], broken: frozenset[Keys]) -> dict[str, object]:
    """Return data without the broken keys and entries, and without sections that have no other."""
    rest: dict[str, object] = {}
    for section, part in data.items():
        if isinstance(part, dict):
            rest[section] = {key: part[key] for key in part if (section, key) not in broken}
        elif isinstance(part, list):
            rest[section] = [item for n, item in enumerate(part) if (section, n) not in broken]
        else:
            rest[section] = part
    return {key: rest[key] for key in rest if rest[key] not in ({}, []) and (key,) not in broken}


_WHOLE_NUMBER = "is not a whole number: write one such as 12"
_NUMBER = "is not a number: write one such as 2.5"
_SWITCH = "is neither true nor false: write one of the two"
_MAPPING = "is not a mapping: write a key, a colon and a value"
_WRONG_KINDS = {
    "string_type": "is not a text: write one",
    "int_type": _WHOLE_NUMBER,
    "int_from_float": _WHOLE_NUMBER,
    "int_parsing": _WHOLE_NUMBER,
    "int_parsing_size": "is too large: write a smaller number",
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "finite_number": "is not finite: write a number such as 2.5",
    "bool_type": _SWITCH,
    "bool_parsing": _SWITCH,
    "tuple_type": "is not a list: write it in brackets, as in [a, b]",
    "dict_type": _MAPPING,
    "model_type": _MAPPING,
}

_MISSING = {
    "transformers": "write a version such as 4.48",
    "architecture": "write a model_type such as llama",
    "model": 'name the models, or write "*" for all',
    "environment": 'name the environments, or write "*" for all',
    "reason": "explain the difference",
    "path": "write the file, such as probes.py",
}

_BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "more than"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "less than"),
}


def _problem(yaml: Yaml, error: ErrorDetails) -> Problem:
    keys: Keys = (*error["loc"], *error.get("ctx", {}).get("keys", ()))
    if error["type"] == "extra_forbidden":
        return Problem(yaml.place_of_key(keys), _unknown_key(keys))
    if keys[-1] == "[key]":
        return Problem(yaml.place_of_key(keys[:-1]), f"{_name(keys[:-2])}: {_text(error)}")
    if error["type"] == "missing":
        return Problem(yaml.place(keys), f"{keys[-1]} is missing: {_MISSING[str(keys[-1])]}")
    return Problem(yaml.place(keys), f"{_name(keys)}: {_text(error)}")


def _name(keys: Keys) -> str:
    name = next((str(key) for key in reversed(keys) if isinstance(key, str)), "")
    return name if is_name(name) or not name else shown(name)


def _text(error: ErrorDetails) -> str:
    kind, keys, value = error["type"], error["loc"], _described(error["input"])
    context = error.get("ctx", {})
    if keys == ("models",):
        return "a model needs a name, and under it a source such as hub: org/name"
    if kind == "model_type" and keys[0] == "models" and len(keys) == 2:
        return f"{value} is not a model: write a mapping such as {{hub: org/name}}"
    if kind == "mistake":
        return str(context["text"])
    if kind in _WRONG_KINDS:
        return f"{value} {_WRONG_KINDS[kind]}"
    if kind == "literal_error":
        choices = re.findall("'([^']+)'", str(context["expected"]))
        return f"{value} is not a known value: {nearest(str(error['input']), choices)}"
    if kind in _BOUNDS:
        bound, words = _BOUNDS[kind]
        return f"{value} is out of range: write {words} {context[bound]:g}"
    return "nothing is written here: write at least one, or remove the key"


def _described(value: object) -> str:
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    return shown(str(value))


def _unknown_key(keys: Keys) -> str:
    key, parent = str(keys[-1]), _name(keys[:-1])
    position = f"in {parent}" if parent else "at the top"
    known_keys = _known_keys(keys[:-1])
    if not parent and key not in known_keys and key in Settings.model_fields:
        return f"unknown key {shown(key)} {position}: write it under defaults:"
    return f"unknown key {shown(key)} {position}: {nearest(key, known_keys)}"


def _known_keys(keys: Keys) -> list[str]:
    fields = _form(keys).model_fields
    own_first = sorted(fields, key=lambda name: name in Settings.model_fields)
    names = (
        ["questions", *switches()] if name == "questions" else [fields[name].alias or name]
        for name in own_first
    )
    return [name for of_field in names for name in of_field]


def _form(keys: Keys) -> type[Form]:
    match keys:
        case ():
            return MatrixFile
        case ("defaults",):
            return Settings
        case ("environments", _):
            return StackEntry
        case ("models", _):
            return ModelEntry
        case ("models", _, "build"):
            return Recipe
        case ("models", _, "inputs", _) | ("defaults", "inputs", _):
            return InputSetEntry
        case ("models", _, "inputs", _, "arguments", _) | ("defaults", "inputs", _, "arguments", _):
            return Argument
        case ("expected", _):
            return ExpectedEntry
        case ("include" | "exclude", _):
            return Rule
        case _:
            return Prompt
