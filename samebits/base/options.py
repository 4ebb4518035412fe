"""Options of a command line that follow from the fields of a record.

A field gives an option its name, type, default and description. ``Option`` adds what a field does not say.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Union, get_args, get_origin

from samebits.base.field_texts import text_of
from samebits.base.homes import expanded

if TYPE_CHECKING:
    from pydantic import BaseModel

    R = TypeVar("R", bound=BaseModel)


class Option:
    """Marks a field as an option.

    ``name`` is given if it is not that of the field, and '' for an operand, which has none. ``words``
    gives each value an option of its own, with its help: ``--deep`` for the level ``deep``. Of the options
    with the same word as ``apart``, one may be given. The rest is for ``add_argument``.
    """

    def __init__(
        self,
        metavar: str | None = None,
        name: str | None = None,
        *,
        words: Mapping[str, str] | None = None,
        apart: str | None = None,
        **settings: Any,  # noqa: ANN401  as argparse takes them
    ) -> None:
        self.name = name
        self.words = words or {}
        self.apart = apart
        self.settings = settings | ({"metavar": metavar} if metavar else {})


def option_of(record: type[BaseModel], name: str) -> Option | None:
    """Return the option of a field; None if it has none."""
    marks = record.model_fields[name].metadata
    return next((mark for mark in marks if isinstance(mark, Option)), None)


def name_of(record: type[BaseModel], name: str) -> str:
    """Return the name of a field's option, such as ``--from``."""
    option = option_of(record, name)
    return (option and option.name) or f"--{name.replace('_', '-')}"


def add_options(
    parser: argparse._ActionsContainer, record: type[BaseModel], *names: str, **defaults: str
) -> None:
    """Add the options of a record's fields: of those named, or of all.

    ``defaults`` are words for the help, where the default depends on the command.
    """
    groups: dict[str, Any] = defaultdict(parser.add_mutually_exclusive_group)
    for name in names or record.model_fields:
        option = option_of(record, name)
        if option is None:
            continue
        apart = name if option.words else option.apart
        for flag, settings in _arguments(record, name, option):
            if name in defaults:
                settings["help"] += f" (default: {defaults[name]})"
            (groups[apart] if apart else parser).add_argument(flag, **settings)


def record_of(record: type[R], options: argparse.Namespace, **derived: Any) -> R:  # noqa: ANN401
    """Return the record whose fields the options fill, apart from those that follow from several."""
    values = vars(options) | derived
    return record(**{name: values[name] for name in record.model_fields if name in values})


def positive(text: str) -> int:
    """Return a count. Raises ArgumentTypeError."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def _arguments(
    record: type[BaseModel], name: str, option: Option
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the name of each argument that a field is, and what argparse gets of it."""
    field = record.model_fields[name]
    target = {"dest": name, "default": field.get_default(call_default_factory=True)}
    for word, help in option.words.items():
        yield f"--{word}", target | {"action": "store_const", "const": word, "help": help}
    settings = (
        _of_type(field.annotation) | {"help": _phrase(text_of(record, name))} | option.settings
    )
    if option.name == "":
        several = {"nargs": "*", "action": "store"} if field.annotation == tuple[str, ...] else {}
        yield name, settings | several
    elif not option.words:
        yield name_of(record, name), target | settings


def _of_type(kind: Any) -> dict[str, Any]:  # noqa: ANN401  a type, or what a union is
    """Return how a value of a type is given."""
    if kind == tuple[str, ...]:
        return {"action": "append", "default": []}
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    choices = [word for part in kinds if get_origin(part) is Literal for word in get_args(part)]
    if choices:
        alone: dict[str, Any] = {"nargs": "?", "const": True} if bool in kinds else {}
        return alone | {"choices": tuple(choices)}
    if bool in kinds:
        is_open = NoneType in kinds
        return {"action": argparse.BooleanOptionalAction if is_open else "store_true"}
    return {"type": expanded} if Path in kinds else {}


def _phrase(sentences: str) -> str:
    """Return a description as argparse shows it."""
    text = " ".join(sentences.split())
    return f"{text[:1].lower()}{text[1:].removesuffix('.')}"
