"""The options of ``samebits check`` that a run of a matrix does not have."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError

from samebits.base.errors import OptionError
from samebits.base.options import Option, name_of
from samebits.check.releases import NEWEST
from samebits.matrix.plan import shown_path
from samebits.matrix.spec import ModelEntry, Settings, StackEntry
from samebits.matrix.values import is_path_of_package
from samebits.records.record import Record
from samebits.text.lists import comma_list

_VARIANTS = ("dtypes", "attention", "devices")
_CODE = ("packages", "environment_packages", "imports", "model_class")
CODE_KEYS = {"packages": "packages", "imports": "import", "model_class": "class"}
"""Option about code in packages -> key of a model in matrix.yaml."""


class Options(Record):
    """The options that a run of a matrix does not have."""

    model: Annotated[str, Option("MODEL", "")]
    """A folder with config.json, or with a tokenizer or processors alone; a hub id, org/name@revision; or type:NAME, a
    tiny model of a model_type, and type:NAME#2, one with other values of its config's switches."""
    first: Annotated[str | None, Option("RELEASE", "--from")] = None
    """The reference, such as 4.57 or 4.57.1 (default: the release that saved the model)."""
    last: Annotated[str | None, Option("RELEASE", "--to")] = None
    """The release to judge (default: the newest)."""
    trust_remote_code: Annotated[bool | None, Option()] = None
    """Run the code that comes with the model, inside the environments; --no-trust-remote-code: run
    transformers' own class instead."""
    packages: Annotated[tuple[str, ...], Option("WHAT", "--package")] = ()
    """A package with the model's code, such as my-models==1.2 or ./my-models; may be repeated."""
    environment_packages: Annotated[tuple[str, ...], Option("WHAT", "--environment-package")] = ()
    """A requirement for every environment, such as 'numpy<2' or pillow; may be repeated."""
    imports: Annotated[tuple[str, ...], Option("MODULE", "--import")] = ()
    """A module that registers the model with the Auto classes; may be repeated."""
    model_class: Annotated[str | None, Option("MODULE:NAME", "--class")] = None
    """The model's class, where no Auto class has it."""
    inputs: Annotated[Path | None, Option("FILE", type=Path)] = None
    """What to give forward: a file with inputs: as matrix.yaml has it, or arrays, .npz or .safetensors."""
    dtypes: Annotated[str, Option("NAMES")] = ""
    """Default: float32, behind bfloat16 or float16 if config.json names it."""
    attention: Annotated[str, Option("NAMES")] = ""
    """Such as eager,sdpa (default: default)."""
    devices: Annotated[str, Option("NAMES")] = ""
    """Such as cpu,cuda (default: cpu)."""


def code_of(options: Options) -> dict[str, Any]:
    """Return the options about code in packages. Raises OptionError for one with a mistake."""
    code = {field: getattr(options, field) for field in _CODE}
    for field, value in code.items():
        try:
            if value and field == "environment_packages":
                StackEntry.model_validate({"transformers": NEWEST, "packages": value})
            elif value:
                # any source does, as only this key is looked at
                entry = {"hub": "a/b", CODE_KEYS[field]: value}
                ModelEntry.model_validate(entry, context={"folder": Path.cwd()})
        except ValidationError as error:
            raise OptionError(f"{name_of(Options, field)}: {error.errors()[0]['msg']}") from error
    return code


def code_words(code: dict[str, Any]) -> Iterator[str]:
    """Yield the options about code in packages as words of a command."""
    for field in _CODE:
        option = name_of(Options, field)
        values = code[field] if isinstance(code[field], tuple) else [code[field]]
        for value in filter(None, values):
            is_path = field == "packages" and is_path_of_package(value)
            yield from (option, shown_path(Path(value)) if is_path else value)


def variants_of(options: Options) -> dict[str, tuple[str, ...]]:
    """Return the values of each option that is an axis of variants. Raises OptionError."""
    return {name: option_values(name, getattr(options, name)) for name in _VARIANTS}


def option_values(name: str, text: str) -> tuple[str, ...]:
    """Return the values of an option that is a list. Raises OptionError."""
    values = comma_list(text)
    try:
        Settings.model_validate({name: values} if values else {})
    except ValidationError as error:
        raise OptionError(f"--{name}: {error.errors()[0]['msg']}") from error
    return values
