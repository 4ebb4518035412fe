"""The kinds of values in matrix.yaml: versions, names, dtypes, patterns, and their short forms.

Each kind is a type for a field of samebits/matrix/spec.py. It checks a value, says in a message what to
write instead, and describes itself in matrix.schema.json.
"""

from __future__ import annotations

import difflib
import re
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from samebits.base.errors import nearest, shown
from samebits.compare.registry import signal_names
from samebits.records.ids import DTYPES

ATTENTION = (
    "default",
    "eager",
    "sdpa",
    "flash_attention_2",
    "flash_attention_3",
    "flex_attention",
)
DEVICES = ("cpu", "cuda", "mps", "xpu")

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
NAME_LENGTH = 80
VERSION = r"^\d+(\.\d+)*(\.x)?$"
_SOURCE = r"^([.~/].*|.*\.whl|.+@[0-9a-f]{40})$"
_PYTHON = r"^3\.\d+(\.\d+)?$"
_ATTENTION = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)?(@[A-Za-z0-9_.-]+)?(:\w+)?$"
_DEVICE = rf"^(cpu|({'|'.join(DEVICES[1:])})(:\d+)?)$"
_HUB = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?$"
_MOMENT = r"^\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))?$"
_MODULE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"
_CLASS = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
_OUTPUT = r"^(\d+|[A-Za-z_]\w*)(\.\w+|\[\d+\])*$"
_MAX_LENGTH = 1_000_000
_COMMIT = re.compile(r"@[0-9a-f]{40}(#.*)?$")
_PINNED = re.compile(r"(.+)@([0-9a-f]{40})")
_FILES_OF_PACKAGES = (".whl", ".tar.gz")
"""Endings of files that pip can install."""

DTYPE_NICKNAMES = {
    "fp64": "float64",
    "double": "float64",
    "fp32": "float32",
    "float": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
}

T = TypeVar("T")


def mistake(text: str, *keys: str | int) -> PydanticCustomError:
    """Return a validation error with a message that the user sees unchanged.

    ``keys`` lead from the validated value to the part of it that has the mistake.
    """
    return PydanticCustomError("mistake", "{text}", {"text": text, "keys": keys})


def is_name(text: str) -> bool:
    """Return True if text is safe in a path, in a table and in a command."""
    return len(text) <= NAME_LENGTH and fits(NAME, text)


def fits(pattern: str, text: str) -> bool:
    """Return True if all of text matches a pattern of a schema, in ASCII."""
    # "$" also matches before a final line feed, and \d matches digits that are not ASCII
    return re.fullmatch(pattern.strip("^$"), text, re.ASCII) is not None


def _name(text: str) -> str:
    if is_name(text):
        return text
    raise mistake(
        f"{shown(text)} is not a valid name: use up to {NAME_LENGTH} letters, digits, dots, "
        "underscores and dashes, and start with a letter or a digit"
    )


def _version(text: str) -> str:
    if fits(VERSION, text) and len(text) <= 40:
        return text
    match = re.search(r"\d+(\.\d+)*", text, re.ASCII)
    example = match.group() if match and len(match.group()) < 20 else "4.48.0"
    raise mistake(
        f"{shown(text)} is not a version: write a release such as {example}, "
        "or a family such as 4.48 or 5.x"
    )


def is_source(text: str) -> bool:
    """Return True if a release of transformers is named by a folder, a commit of a clone, or a wheel."""
    return is_path_of_package(text) or (_PINNED.fullmatch(text) is not None and "://" not in text)


def split_source(text: str) -> tuple[str, str]:
    """Return the path that names a source of transformers, and the commit behind it; '' for none."""
    match = _PINNED.fullmatch(text)
    return (match[1], match[2]) if match else (text, "")


def id_of_release(text: str) -> str:
    """Return the id of an environment that has none: its release, its commit or the name of its folder."""
    if not is_source(text):
        return text
    path, commit = split_source(text)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(path).resolve().name).strip("-._")
    return commit[:10] or name[:NAME_LENGTH] or "checkout"


def _release(text: str) -> str:
    return _expand_home(_line(text)) if is_source(text) else _version(text)


def _torch(text: str) -> str:
    return text if text == "system" else _version(text)


def _python(text: str) -> str:
    if fits(_PYTHON, text):
        return text
    raise mistake(f"{shown(text)} is not a version of Python 3: write one such as 3.11")


def _dtype(value: object) -> object:
    if value in DTYPES:
        return value
    text = str(value)
    plain = text.casefold().removeprefix("torch.")
    msg = f"{shown(text)} is not a dtype: {nearest(DTYPE_NICKNAMES.get(plain, plain), DTYPES)}"
    raise mistake(msg)


def _attention(text: str) -> str:
    if not fits(_ATTENTION, text) or _is_typo(text):
        msg = f"{shown(text)} is not an attention implementation: {nearest(text, ATTENTION)}"
        raise mistake(msg)
    return text


def _is_typo(text: str) -> bool:
    """Return True if text nearly equals a known name; flash_attention_4 is a new name, no typo."""
    if _without_digits(text) in map(_without_digits, ATTENTION):
        return False
    candidates = [name for name in ATTENTION if abs(len(name) - len(text)) <= 2]
    is_swapped = any(sorted(name) == sorted(text) for name in candidates)
    return is_swapped or bool(difflib.get_close_matches(text.casefold(), candidates, cutoff=0.8))


def _without_digits(text: str) -> str:
    return re.sub(r"\d", "", text)


def _device(text: str) -> str:
    if fits(_DEVICE, text):
        return text
    meant = "cuda" if text.casefold().startswith("gpu") else text
    msg = f"{shown(text)} is not a device: {nearest(meant, DEVICES)} (the second GPU is cuda:1)"
    raise mistake(msg)


def _hub(text: str) -> str:
    if text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise mistake(f"{shown(text)} looks like a folder: write path: instead of hub:")
    if "@" in text:
        name, _, revision = text.partition("@")
        raise mistake(f"{shown(text)}: write hub: {shown(name)} and revision: {shown(revision)}")
    if not fits(_HUB, text):
        raise mistake(f"{shown(text)} is not a hub id: write one such as org/name")
    return text


def _moment(text: str) -> str:
    try:
        datetime.fromisoformat(text)
        if fits(_MOMENT, text):
            return text
    except ValueError:
        pass
    msg = f"{shown(text)} is not a date: write one such as 2026-11-20 or 2026-11-20T12:00:00Z"
    raise mistake(msg)


def _line(text: str) -> str:
    if text.strip() and text.isprintable():
        return text
    if not text.strip():
        raise mistake("the text is empty: write one, or remove the key")
    raise mistake(f"{shown(text)} has line breaks or control characters: remove them")


def _expand_home(path: str) -> str:
    try:
        return str(Path(path).expanduser()) if path.startswith("~") else path
    except RuntimeError:
        msg = f"{shown(path)}: the home folder is not known: write the path without ~"
        raise mistake(msg) from None


def _paragraph(text: str) -> str:
    if text.strip():
        return text.strip()
    raise mistake("the text is empty: write a sentence")


def _requirement(text: str) -> str:
    requirement = _parsed_requirement(text, "accelerate>=1")
    if requirement.url is not None:
        raise mistake(
            f"{shown(text)} is a URL, whose content can change, so it cannot be locked: write a "
            f"version such as {requirement.name}==1.2"
        )
    if (name := requirement.name.lower()) in ("transformers", "torch"):
        msg = f"{shown(text)}: the version of {name} has a key of its own: write it after {name}:"
        raise mistake(msg)
    return text


def _parsed_requirement(text: str, example: str) -> Requirement:
    _line(text)  # packaging takes line breaks in addresses and markers, and uv would read two lines
    if "\\" in text or "${" in text:
        msg = f"{shown(text)} has a backslash or a variable, which no requirement needs: remove it"
        raise mistake(msg)
    try:
        return Requirement(text)
    except InvalidRequirement:
        raise mistake(f"{shown(text)} is not a requirement: write one such as {example}") from None


def is_path_of_package(text: str) -> bool:
    """Return True if a package is named by its folder or file, and not by a requirement."""
    if text.startswith((".", "/", "~")):
        return True
    return text.endswith(_FILES_OF_PACKAGES) and "://" not in text


def _model_package(text: str) -> str:
    if is_path_of_package(text):
        return _expand_home(_line(text))
    requirement = _parsed_requirement(text, "my-models>=1.2, or a folder such as ./my-models")
    if (name := requirement.name.lower()) in ("transformers", "torch"):
        raise mistake(
            f"{shown(text)}: every environment has its own {name}, which packages of a model never "
            "change: remove this line, or change the environments"
        )
    url = requirement.url
    if url is not None and not (url.startswith("git+") and _COMMIT.search(url)):
        raise mistake(
            f"{shown(text)} is a URL, whose content can change: write a version such as "
            f"{requirement.name}==1.2, a folder such as ./{requirement.name}, or git+https://… and @ "
            "and the 40 digits of a commit"
        )
    return text


def _module(text: str) -> str:
    if fits(_MODULE, text):
        return text
    meant = text.removesuffix(".py").replace("/", ".").replace("-", "_")
    example = meant if fits(_MODULE, meant) else "my_models"
    raise mistake(
        f"{shown(text)} is not the name of a module: write it as after import in Python, such as "
        f"{example}"
    )


def _output_name(text: str) -> str:
    if fits(_OUTPUT, text):
        return text
    raise mistake(
        f"{shown(text)} is not the name of an output: write a name such as pooler_output, "
        "encoder.last_hidden_state, or 2[0] in a tuple"
    )


def _class_path(text: str) -> str:
    if fits(_CLASS, text):
        return text
    module, _, name = text.replace(":", ".").rpartition(".")
    meant = f"{module}:{name}"
    example = meant if fits(_CLASS, meant) else "my_models.modeling:MyModel"
    raise mistake(f"{shown(text)} does not name a class in a module: write {example}")


def _expected_verdict(value: object) -> object:
    if value == "not finished":
        raise mistake(
            "a cell that does not finish lacks time or memory, which is not a known difference: "
            "remove this entry, and raise the model's timeout or give it more memory"
        )
    if value != "rounding":
        return value
    raise mistake(
        "rounding passes without an entry, and whether a cell rounds depends on the CPU: remove "
        "this entry, or write the verdict that makes the run fail: differs, diverged, unstable, failed "
        'or "not observed"'
    )


def _format_version(value: object) -> object:
    if str(value) == "1":
        return 1
    raise mistake(f"{shown(str(value))} is not a known version of this form: write version: 1")


def _length(value: object) -> object:
    if value == "past-window":
        return value
    text = str(value)
    if fits(r"\d{1,7}", text) and 1 <= int(text) <= _MAX_LENGTH:
        return int(text)
    raise mistake(f"write a number of tokens from 1 to {_MAX_LENGTH}, or past-window")


def _unique(items: tuple[T, ...]) -> tuple[T, ...]:
    for index, item in enumerate(items):
        if item in items[:index]:
            raise mistake(f"{shown(str(item))} is listed twice: remove one of the two")
    return items


# Without quotes 4.50 is a text to samebits and a number to an editor, so the schema allows both.
_BARE = ["string", "number"]


class _OrNull:
    """An empty value is also accepted by the schema; the form has to drop such a key."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [handler(core), {"type": "null"}]}


class ShortForm:
    """Some values are short for others, which :meth:`whole` returns."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.whole, handler(source))

    def whole(self, value: object) -> object:
        """Return what a value is short for; others as they are."""
        raise NotImplementedError


class _TextAsItem(ShortForm):
    """A text is short for a list of one item."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        return {"anyOf": [schema["items"], schema]}

    def whole(self, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class TextAs(ShortForm):
    """A text is short for a mapping with the one key ``key``; ``schema`` describes the text."""

    def __init__(self, key: str, **schema: object) -> None:
        self._key = key
        self._schema = {"type": _BARE, **schema}

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [self._schema, handler(core)]}

    def whole(self, value: object) -> object:
        """Return the mapping that a text is short for."""
        return {self._key: value} if isinstance(value, str) else value


def _described(**schema: Any) -> Any:  # noqa: ANN401  any JSON
    return Field(json_schema_extra=schema)


Name = Annotated[
    str, AfterValidator(_name), _described(type=_BARE, pattern=NAME, maxLength=NAME_LENGTH)
]
"""A name that is safe in a path, in a table and in a command."""
Version = Annotated[str, AfterValidator(_version), _described(type=_BARE, pattern=VERSION)]
"""A version such as ``4.48.0``, or a family such as ``4.48`` or ``5.x``: its newest version."""
Release = Annotated[
    str,
    AfterValidator(_release),
    _described(type=_BARE, anyOf=[{"pattern": VERSION}, {"pattern": _SOURCE}]),
]
"""A version, or a source of transformers: a folder with a checkout or a clone, ``./CLONE@COMMIT``, or a wheel."""
Torch = Annotated[
    str,
    AfterValidator(_torch),
    _described(type=_BARE, anyOf=[{"pattern": VERSION}, {"const": "system"}]),
]
"""A version of torch, or ``system``: the torch that the machine has."""
Python = Annotated[str, AfterValidator(_python), _described(type=_BARE, pattern=_PYTHON)]
"""A version of Python."""
Pattern = Annotated[str, _described(type=_BARE)]
"""A name, or a shell pattern such as ``llama*``."""
SignalPattern = Annotated[str, _described(examples=["*", *signal_names()])]
Dtype = Annotated[Literal["float64", "float32", "float16", "bfloat16"], BeforeValidator(_dtype)]
Attention = Annotated[
    str, AfterValidator(_attention), _described(pattern=_ATTENTION, examples=list(ATTENTION))
]
Device = Annotated[str, AfterValidator(_device), _described(pattern=_DEVICE)]
Hub = Annotated[str, AfterValidator(_hub), _described(pattern=_HUB)]
Moment = Annotated[str, AfterValidator(_moment), _described(pattern=_MOMENT)]
Line = Annotated[str, AfterValidator(_line), _described(type=_BARE, pattern=r"\S")]
"""One line of printable text."""
Text = Annotated[str, Field(min_length=1), _described(type=_BARE)]
FilePath = Annotated[
    str, AfterValidator(_line), AfterValidator(_expand_home), _described(pattern=r"\S")
]
"""A path relative to matrix.yaml; ``~`` is replaced by the home folder."""
Paragraph = Annotated[str, AfterValidator(_paragraph), _described(pattern=r"\S")]
Package = Annotated[str, AfterValidator(_requirement)]
"""A requirement as for pip, without a URL."""
ModelPackage = Annotated[str, AfterValidator(_model_package), _described(pattern=r"\S")]
"""A package of a model: a requirement as for pip, a folder or wheel, or git with a commit."""
Module = Annotated[str, AfterValidator(_module), _described(pattern=_MODULE)]
"""The dotted name of a Python module."""
ClassPath = Annotated[str, AfterValidator(_class_path), _described(pattern=_CLASS)]
"""A class as ``package.module:Name``."""
OutputName = Annotated[str, AfterValidator(_output_name), _described(pattern=_OUTPUT)]
"""The name of a tensor that forward returns, as the report has it."""
Length = Annotated[
    Annotated[int, Field(ge=1, le=_MAX_LENGTH)] | Literal["past-window"], BeforeValidator(_length)
]
Verdict = Annotated[
    Literal["differs", "diverged", "unstable", "failed", "not observed"],
    BeforeValidator(_expected_verdict),
]
FormatVersion = Annotated[Literal[1], BeforeValidator(_format_version)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]

OrNull = Annotated[T, _OrNull()]
"""A value that the file may leave empty, so that all its entries can be commented out."""
OneOrMore = Annotated[tuple[T, ...], Field(min_length=1), _TextAsItem()]
Distinct = Annotated[
    tuple[T, ...],
    Field(min_length=1, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_unique),
    _TextAsItem(),
]
