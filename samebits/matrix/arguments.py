"""The form of ``inputs:`` in matrix.yaml: arguments of forward that the user gives.

An input set has named arrays in a file, a Python function that returns the arguments, or the
arguments themselves by shape and dtype. probes/samebits_probe/model/declared.py makes tensors of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema

from samebits.base.errors import nearest, shown
from samebits.matrix.form import Form
from samebits.matrix.sources import bad_arrays, bad_function
from samebits.matrix.values import DTYPE_NICKNAMES, FilePath, OneOrMore, ShortForm, fits, mistake

FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
ARGUMENT_DTYPES = (*FLOATS, *INTEGERS, "bool")
_NICKNAMES = {
    **DTYPE_NICKNAMES,
    "int": "int64",
    "long": "int64",
    "byte": "uint8",
    "boolean": "bool",
}
_ARGUMENT = r"^[A-Za-z_][A-Za-z0-9_]*$"
_FIELD = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$"
_MASK = r"^(ones|zeros|(left|right) [0-9]{1,6})$"
_MAX_SIZE = 1 << 28
_MAX_DEPTH = 8


def _argument_name(name: str) -> str:
    if fits(_ARGUMENT, name):
        return name
    raise mistake(f"{shown(name)} is no name of an argument: use letters, digits and underscores")


def _size(value: object) -> object:
    if isinstance(value, str) and fits(_FIELD, value):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_SIZE:
        return value
    raise mistake(
        f"{shown(str(value))} is not a size: write a number from 1 to {_MAX_SIZE:,}, or a field of "
        "the config such as hidden_size or text_config.hidden_size"
    )


def _bound(value: object) -> object:
    if isinstance(value, str) and fits(_FIELD, value):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**62:
        return value
    msg = f"{shown(str(value))} is not a bound: write a number, or a field of the config such as vocab_size"
    raise mistake(msg)


def _dtype(value: object) -> object:
    text = str(value)
    plain = text.casefold().removeprefix("torch.")
    if plain in ARGUMENT_DTYPES:
        return plain
    likely = nearest(_NICKNAMES.get(plain, plain), ARGUMENT_DTYPES)
    raise mistake(f"{shown(text)} is not a dtype of an argument: {likely}")


def _mask(value: object) -> object:
    if isinstance(value, str) and fits(_MASK, value):
        return value
    raise mistake(
        f"{shown(str(value))} is not a mask: write ones, zeros, or a side and the number of "
        "positions of padding, such as left 3 or right 3"
    )


def _value(value: object) -> object:
    _check_value(value)
    return value


def _check_value(value: object, depth: int = 0) -> None:
    if isinstance(value, list) and value and depth < _MAX_DEPTH:
        for item in value:
            _check_value(item, depth + 1)
        return
    if isinstance(value, (bool, int, float)) or (isinstance(value, str) and not depth):
        return
    raise mistake("this is no constant: write a number, true, false, a text, or a list of numbers")


def _field(**schema: Any) -> Any:  # noqa: ANN401  any JSON
    return Field(json_schema_extra=schema)


ArgumentName = Annotated[str, BeforeValidator(_argument_name)]
Size = Annotated[int | str, BeforeValidator(_size), _field(pattern=_FIELD)]
"""A number, or the name of a field of the model's config, dotted for a nested config."""
Bound = Annotated[int | float | str, BeforeValidator(_bound), _field(pattern=_FIELD)]
ArgumentDtype = Annotated[
    Literal[
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
    ],
    BeforeValidator(_dtype),
]
Mask = Annotated[str, BeforeValidator(_mask), _field(pattern=_MASK)]
Constant = Annotated[Any, BeforeValidator(_value)]


class Argument(Form):
    """One argument of forward: seeded numbers, a mask, or a constant.

    A constant is short for {value: constant}.
    """

    shape: tuple[Size, ...] | None = None
    """Sizes; each a number or a field of the config, such as [1, 12, hidden_size]."""
    dtype: ArgumentDtype | None = None
    """Floats are converted to the dtype of the cell."""
    low: Bound | None = None
    """Smallest value; default: 0 for integers, -1 for floats."""
    high: Bound | None = None
    """All values are below it; needed for integers; default for floats: 1."""
    mask: OneOrMore[Mask] | None = None
    """ones, zeros, or padding at one end of the last dimension, such as left 3; a list has one for
    each row of the first dimension."""
    value: Constant | None = None
    """A number, true, false or a text as it is, or a list of numbers as a tensor."""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if self.value is not None:
            self._refuse(("shape", "low", "high", "mask"), "value")
            return self
        if self.shape is None:
            raise mistake(
                "shape is missing: write one such as {shape: [1, 12, hidden_size], dtype: float32}"
            )
        if self.mask is not None:
            self._refuse(("low", "high"), "mask")
            return self
        return self._is_seeded()

    def _refuse(self, keys: tuple[str, ...], beside: str) -> None:
        wrong = next((key for key in keys if key in self.model_fields_set), None)
        if wrong is not None:
            raise mistake(f"{wrong} beside {beside}: remove one of the two", wrong)

    def _is_seeded(self) -> Self:
        sizes = f"[{', '.join(map(str, self.shape or ()))}]"
        if self.dtype is None:
            raise mistake(f"dtype is missing: write {{shape: {sizes}, dtype: float32}}")
        if self.dtype in INTEGERS and self.high is None:
            raise mistake(
                f"{self.dtype} needs high, which all numbers are below: write {{shape: {sizes}, "
                f"dtype: {self.dtype}, high: vocab_size}}"
            )
        if self.dtype == "bool":
            self._refuse(("low", "high"), "dtype: bool")
        low: float | str = 0 if self.dtype in INTEGERS else -1
        low = low if self.low is None else self.low
        high = 1 if self.high is None else self.high
        if not isinstance(low, str) and not isinstance(high, str) and low >= high:
            msg = f"low is {low:g} and high is {high:g}: write a high above low"
            raise mistake(msg, "high" if self.high is not None else "low")
        return self


class _OrConstant(ShortForm):
    """A constant is short for a mapping with the one key value."""

    def whole(self, value: object) -> object:
        return value if isinstance(value, (dict, Argument)) else {"value": value}

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [handler(core), {"type": ["string", "number", "boolean", "array"]}]}


Arguments = Annotated[dict[ArgumentName, Annotated[Argument, _OrConstant()]], Field(min_length=1)]


class InputSetEntry(Form):
    """Arguments of forward, from a file, from a function, or declared.

    A text is short for {file: …}.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [key]} for key in ("file", "function", "arguments")]
        }
    )

    file: FilePath | None = None
    """A .npz or .safetensors file, relative to the matrix file; its arrays have the names of
    forward's arguments."""
    function: str | None = None
    """A Python file and a function in it, inputs.py:make, which gets (config, seed, torch) and
    returns the arguments of forward by name."""
    trust: bool = False
    """Whether the code of the function may run."""
    arguments: Arguments | None = None
    """Argument of forward -> how to make it, also beside a file."""

    @model_validator(mode="after")
    def _is_whole(self, info: ValidationInfo) -> Self:
        folder: Path | None = info.context["folder"] if info.context else None
        if self.file is None and self.function is None and not self.arguments:
            raise mistake("the set is empty: write file, function or arguments")
        if self.function is not None:
            self._check_function(folder)
        elif self.trust:
            raise mistake("trust is for the code of a function: remove the key", "trust")
        if self.file is None or folder is None:
            return self
        if fault := bad_arrays(folder, self.file, tuple(self.arguments or ())):
            raise mistake(fault, "file")
        return self

    def _check_function(self, folder: Path | None) -> None:
        assert self.function is not None
        for key in ("file", "arguments"):
            if key in self.model_fields_set:
                msg = f"{key} beside function, which returns all arguments: remove one of the two"
                raise mistake(msg, key)
        if folder is not None and (fault := bad_function(folder, self.function)):
            raise mistake(fault, "function")
        if not self.trust:
            msg = (
                f"the function runs Python code of {shown(self.function.rpartition(':')[0])}: "
                f"read it, then write {{function: {self.function}, trust: true}}"
            )
            raise mistake(msg, "function")


class InputSet(InputSetEntry):
    """An input set, and where matrix.yaml has it."""

    places: Annotated[dict[str, str], Field(exclude=True)] = Field(default_factory=dict)
    """Argument -> file:line:column; '' -> that of the set. A result does not depend on it."""
    folder: Annotated[str, Field(exclude=True)] = ""
    """Folder of the matrix file, which paths are relative to."""
