"""The form of matrix.yaml as pydantic models, including its short forms.

samebits/matrix/load.py converts it to the records of samebits/matrix/spec.py. matrix.schema.json is
generated from it, so that an editor accepts and rejects the same files. Validators here raise their
messages as errors of type ``mistake``. samebits/matrix/problems.py words all other errors.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeVar, get_origin

from packaging.requirements import InvalidRequirement, Requirement
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from samebits.base.errors import nearest, shown
from samebits.compare.registry import signal_names
from samebits.matrix.spec import Dtype
from samebits.records.ids import DTYPES

STACKS = ("4.48", "4.57", "5.2", "5.x")
ATTENTION = (
    "default",
    "eager",
    "sdpa",
    "flash_attention_2",
    "flash_attention_3",
    "flex_attention",
)
DEVICES = ("cpu", "cuda", "mps", "xpu", "npu", "hpu")

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
NAME_LENGTH = 80
NAME_RULE = (
    "write letters, digits, dots, underscores and dashes, a letter or a digit first, "
    f"{NAME_LENGTH} at most"
)
_VERSION = r"^\d+(\.\d+)*(\.x)?$"
_ATTENTION = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)?(@[A-Za-z0-9_.-]+)?(:\w+)?$"
_DEVICE = rf"^(cpu|({'|'.join(DEVICES[1:])})(:\d+)?)$"
_HUB = r"^[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)?$"
_MOMENT = r"^\d{4}-\d\d-\d\d(T\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d))?$"

_DTYPE_NICKNAMES = {
    "fp64": "float64",
    "double": "float64",
    "fp32": "float32",
    "float": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
}

T = TypeVar("T")


def _mistake(text: str) -> PydanticCustomError:
    """Return a validation error with a message that the user sees unchanged."""
    return PydanticCustomError("mistake", "{text}", {"text": text})


def is_name(text: str) -> bool:
    """Return True if text is safe in a path, in a table and in a command."""
    return len(text) <= NAME_LENGTH and _fits(NAME, text)


def _fits(pattern: str, text: str) -> bool:
    # "$" also matches before a final line feed, and \d matches digits that are not ASCII
    return re.fullmatch(pattern.strip("^$"), text, re.ASCII) is not None


def _name(text: str) -> str:
    if is_name(text):
        return text
    msg = f"{shown(text)} is no name: {NAME_RULE}"
    raise _mistake(msg)


def _version(text: str) -> str:
    if _fits(_VERSION, text) and len(text) <= 40:
        return text
    match = re.search(r"\d+(\.\d+)*", text, re.ASCII)
    example = f'"{match.group()}"' if match and len(match.group()) < 20 else '"4.48.0"'
    msg = (
        f"{shown(text)} is no version: write one release such as {example}, "
        f'or a family such as "4.48" or "5.x"'
    )
    raise _mistake(msg)


def _python(text: str) -> str:
    if _fits(r"3\.\d+(\.\d+)?", text):
        return text
    msg = f'{shown(text)} is no Python version: write one such as "3.11"'
    raise _mistake(msg)


def _dtype(value: object) -> object:
    if value in DTYPES:
        return value
    text = str(value)
    plain = text.casefold().removeprefix("torch.")
    msg = f"{shown(text)} is no dtype: {nearest(_DTYPE_NICKNAMES.get(plain, plain), DTYPES)}"
    raise _mistake(msg)


def _attention(text: str) -> str:
    if not _fits(_ATTENTION, text):
        msg = f"{shown(text)} is no attention implementation: {nearest(text, ATTENTION)}"
        raise _mistake(msg)
    if _is_typo(text):
        msg = f"{shown(text)} is no known attention implementation: {nearest(text, ATTENTION)}"
        raise _mistake(msg)
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
    if _fits(_DEVICE, text):
        return text
    meant = "cuda" if text.casefold().startswith("gpu") else text
    msg = f'{shown(text)} is no device: {nearest(meant, DEVICES)} (or one by number, "cuda:1")'
    raise _mistake(msg)


def _hub(text: str) -> str:
    if text.startswith((".", "/", "~")) or text.count("/") > 1:
        msg = f"{shown(text)} looks like a folder: write path: instead of hub:"
        raise _mistake(msg)
    if "@" in text:
        name, _, revision = text.partition("@")
        msg = f"{shown(text)}: write hub: {shown(name)} and revision: {shown(revision)}"
        raise _mistake(msg)
    if not _fits(_HUB, text):
        msg = f'{shown(text)} is no hub id: write one such as "org/name"'
        raise _mistake(msg)
    return text


def _moment(text: str) -> str:
    try:
        datetime.fromisoformat(text)
        if _fits(_MOMENT, text):
            return text
    except ValueError:
        pass
    msg = f'{shown(text)} is no date: write "2026-11-20", or "2026-11-20T12:00:00Z"'
    raise _mistake(msg)


def _line(text: str) -> str:
    if text.strip() and text.isprintable():
        return text
    msg = f"{shown(text)} is not a line of text: write one line with something in it"
    raise _mistake(msg)


def _paragraph(text: str) -> str:
    if text.strip():
        return text.strip()
    msg = "the text is empty: write a sentence"
    raise _mistake(msg)


def _requirement(text: str) -> str:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        msg = f'{shown(text)} is no requirement: write one such as "accelerate>=1"'
        raise _mistake(msg) from None
    if requirement.url is not None:
        msg = f"{shown(text)}: what lies at an address can change, and no lock says so: write a version"
        raise _mistake(msg)
    if (name := requirement.name.lower()) in ("transformers", "torch"):
        msg = f"{shown(text)}: the version of {name} has its own key, {name}:"
        raise _mistake(msg)
    return text


def _expected_verdict(value: object) -> object:
    if value == "not finished":
        msg = (
            "that a cell does not finish is of the machine and no known difference: remove this entry, "
            "and raise the model's timeout or give it more memory"
        )
        raise _mistake(msg)
    if value != "rounding":
        return value
    msg = (
        "rounding passes without an entry, and whether a cell rounds depends on the CPU: remove "
        "this entry, or write the verdict that makes the run fail: differs, diverged, unstable, failed "
        'or "not observed"'
    )
    raise _mistake(msg)


def _length(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000_000
    if value == "past-window" or is_number:
        return value
    msg = 'write a number of tokens from 1 to 1000000, or "past-window"'
    raise _mistake(msg)


def _not_null(value: object) -> object:
    if value is None:
        msg = "no value stands here: write one, or remove the key"
        raise _mistake(msg)
    return value


def _unique(items: list[T]) -> list[T]:
    for index, item in enumerate(items):
        if item in items[:index]:
            msg = f"{shown(str(item))} is listed twice: remove one"
            raise _mistake(msg)
    return items


class _NotNull:
    """A key may be omitted, but its value may not be null; also in the schema."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
        return kinds[0] if len(kinds) == 1 else schema


_SCALARS = (str, int, float)


class _ItemAsList:
    """A scalar is read as a list of one item."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._as_list, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        return {"anyOf": [schema["items"], schema]}

    @staticmethod
    def _as_list(value: object) -> object:
        return [value] if isinstance(value, _SCALARS) else value


class _NullAsEmpty:
    """A null value is read as an empty list or mapping, as where all entries are commented out."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        empty = list if get_origin(source) is list else dict
        return core_schema.no_info_before_validator_function(
            lambda value: empty() if value is None else value, handler(source)
        )

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [handler(core), {"type": "null"}]}


@dataclass(frozen=True)
class _ScalarAsKey:
    """A scalar is read as a mapping with the one key ``key``."""

    key: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._as_mapping, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        field = dict(handler.resolve_ref_schema(schema)["properties"][self.key])
        short = {key: field[key] for key in ("type", "pattern", "minLength") if key in field}
        return {"anyOf": [short, schema]}

    def _as_mapping(self, value: object) -> object:
        return {self.key: value} if isinstance(value, _SCALARS) else value


NameText = Annotated[
    str,
    AfterValidator(_name),
    Field(json_schema_extra={"pattern": NAME, "maxLength": NAME_LENGTH}),
]
VersionText = Annotated[
    str, AfterValidator(_version), Field(json_schema_extra={"pattern": _VERSION})
]
PythonText = Annotated[
    str, AfterValidator(_python), Field(json_schema_extra={"pattern": r"^3\.\d+(\.\d+)?$"})
]
DtypeText = Annotated[Dtype, BeforeValidator(_dtype)]
AttentionText = Annotated[
    str,
    AfterValidator(_attention),
    Field(json_schema_extra={"pattern": _ATTENTION, "examples": list(ATTENTION)}),
]
DeviceText = Annotated[str, AfterValidator(_device), Field(json_schema_extra={"pattern": _DEVICE})]
HubText = Annotated[str, AfterValidator(_hub), Field(json_schema_extra={"pattern": _HUB})]
MomentText = Annotated[str, AfterValidator(_moment), Field(json_schema_extra={"pattern": _MOMENT})]
LineText = Annotated[str, AfterValidator(_line), Field(json_schema_extra={"pattern": r"\S"})]
WordsText = Annotated[str, AfterValidator(_paragraph), Field(json_schema_extra={"pattern": r"\S"})]
Requirements = Annotated[str, AfterValidator(_requirement)]
SignalPattern = Annotated[str, Field(json_schema_extra={"examples": ["*", *signal_names()]})]
Length = Annotated[
    Annotated[int, Field(ge=1, le=1_000_000)] | Literal["past-window"], BeforeValidator(_length)
]

ExpectedVerdict = Annotated[
    Literal["differs", "diverged", "unstable", "failed", "not observed"],
    BeforeValidator(_expected_verdict),
]

Omittable = Annotated[T | None, BeforeValidator(_not_null), _NotNull()]
OneOrMore = Annotated[list[T], Field(min_length=1), _ItemAsList()]
Distinct = Annotated[
    list[T],
    Field(min_length=1, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_unique),
    _ItemAsList(),
]


class Form(BaseModel):
    """A mapping of matrix.yaml: unknown keys are rejected, and types are not converted."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class StackEntry(Form):
    """One pinned environment; a version is short for {transformers: version}."""

    transformers: VersionText
    """A release such as "4.48.0", or a family such as "4.48" or "5.x": its newest release."""
    id: Omittable[NameText] = None
    """The name in cells and reports; default: the version."""
    torch: Omittable[VersionText] = None
    """Version of torch; default: that of the matrix."""
    python: Omittable[PythonText] = None
    """Version of Python; default: that of the matrix."""
    packages: OneOrMore[Requirements] = Field(default_factory=list)
    """Additional requirements for this stack only, such as "accelerate>=1"."""


class InputEntry(Form):
    """One input: text if the model has a tokenizer, else ids, else length seeded random ids."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": [key]} for key in ("text", "ids", "length")]}
    )

    text: Omittable[Annotated[str, Field(min_length=1)]] = None
    """The text for a model with a tokenizer."""
    ids: Omittable[Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]] = (
        None
    )
    """Token ids, for a model without a tokenizer."""
    length: Omittable[Length] = None
    """Number of seeded random ids; past-window is the model's sliding window plus eight."""

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.model_fields_set:
            msg = "the prompt holds nothing: write text, ids, length or batch"
            raise _mistake(msg)
        return self


class PromptEntry(InputEntry):
    """One input, or a batch of inputs padded on the left; a text is short for {text: …}."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [key]} for key in ("text", "ids", "length", "batch")],
            "dependentSchemas": {"batch": {"maxProperties": 1}},
        }
    )

    batch: Omittable[
        Annotated[list[Annotated[InputEntry, _ScalarAsKey("text")]], Field(min_length=1)]
    ] = None
    """Several inputs as one batch."""

    @model_validator(mode="after")
    def _is_not_mixed(self) -> Self:
        mixed = sorted(self.model_fields_set - {"batch"})
        if self.batch is not None and mixed:
            msg = f"{' and '.join(mixed)} beside batch: write each input inside of the batch"
            raise _mistake(msg)
        return self


class BuildEntry(Form):
    """How to build a tiny checkpoint: an architecture, its config and a seed."""

    architecture: LineText
    """The model_type in transformers, such as llama."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the config class."""
    head: Literal["causal-lm", "masked-lm", "seq2seq-lm", "image-classification", "ctc", "base"] = (
        "causal-lm"
    )
    """The kind of model class, such as causal-lm for AutoModelForCausalLM."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the weights."""
    stack: Omittable[str] = None
    """Id of the stack that builds it; default: the oldest that knows the architecture."""
    gain: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Scale of the weight matrices, for architectures whose outputs vanish or explode at 1."""


Prompts = Annotated[
    dict[str, Annotated[PromptEntry, _ScalarAsKey("text")]],
    Field(min_length=1, json_schema_extra={"propertyNames": {"pattern": NAME}}),
]
Greedy = Annotated[int, Field(ge=0, le=10_000)]
Samples = Annotated[int, Field(ge=0, le=100_000)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Build = Annotated[BuildEntry, _ScalarAsKey("architecture")]


class DefaultsEntry(Form):
    """Settings of every model whose own entry does not set them."""

    dtypes: Distinct[DtypeText] = ["float32"]
    """The dtypes that a model is loaded in."""
    attention: Distinct[AttentionText] = ["default"]
    """Attention implementations; default lets transformers choose."""
    devices: Distinct[DeviceText] = ["cpu"]
    """The devices that the model runs on."""
    prompts: Prompts = Field(
        default_factory=lambda: {
            "short": PromptEntry(text=_SHORT, length=9),
            "long": PromptEntry(text=_LONG, length="past-window"),
            "padded": PromptEntry(
                batch=[InputEntry(text=_SHORT, length=5), InputEntry(text=_LONG, length=13)]
            ),
        }
    )
    """Inputs by name; default: short, long and padded."""
    greedy: Greedy = 12
    """Number of tokens to generate; 0 for none."""
    invariants: bool = True
    """Whether to test relations that must hold inside one cell, such as full forward = prefill +
    decode. For a model above 1 GiB they are tested only if its own entry asks for them."""
    crossings: bool = True
    """Whether each stack saves the model and every stack loads what was saved."""
    usage: bool = True
    """Whether to try common uses of the model: attention maps, packed rows, generate() …"""
    samples: Samples = 0
    """Number of prompts over which each layer's cache error is averaged; 0 for none."""
    timeout: Seconds = 120
    """Seconds without progress after which a job is stopped."""
    budget: Seconds = 600
    """Seconds of one run of a cell after which no further optional observation is started, that is,
    none that does not affect the verdict."""


_SHORT = "The capital of France is"
_LONG = "Once upon a time, there was a cat named Whiskers."


class ModelEntry(Form):
    """One model: exactly one of hub, path and build, and the settings to run it with."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": [source]} for source in ("hub", "path", "build")],
            "dependentRequired": {"revision": ["hub"], "patch": ["path"]},
        }
    )

    hub: Omittable[HubText] = None
    """Id on the Hugging Face hub, such as org/name."""
    revision: Omittable[LineText] = None
    """Branch, tag or commit on the hub."""
    path: Omittable[LineText] = None
    """A folder with config.json, relative to the matrix file."""
    patch: Omittable[Distinct[LineText]] = None
    """Unified diffs, relative to the matrix file, applied in order to a copy of path."""
    build: Omittable[Build] = None
    """A tiny checkpoint built from a config; an architecture is short for {architecture: …}."""
    trust_remote_code: bool = False
    """Whether Python code that is part of the checkpoint may run."""
    group: Omittable[LineText] = None
    """The heading under which the report lists the model."""
    dtypes: Omittable[Distinct[DtypeText]] = None
    """The dtypes that it is loaded in; default: those of defaults."""
    attention: Omittable[Distinct[AttentionText]] = None
    """Attention implementations; default: those of defaults."""
    devices: Omittable[Distinct[DeviceText]] = None
    """The devices that it runs on; default: those of defaults."""
    prompts: Omittable[Prompts] = None
    """Inputs by name, instead of those of defaults."""
    greedy: Omittable[Greedy] = None
    """Number of tokens to generate; 0 for none."""
    invariants: Omittable[bool] = None
    """Whether to test relations that must hold inside one cell, such as full forward = prefill +
    decode."""
    crossings: Omittable[bool] = None
    """Whether each stack saves the model and every stack loads what was saved."""
    usage: Omittable[bool] = None
    """Whether to try common uses of the model: attention maps, packed rows, generate() …"""
    samples: Omittable[Samples] = None
    """Number of prompts over which each layer's cache error is averaged; 0 for none."""
    timeout: Omittable[Seconds] = None
    """Seconds without progress after which a job is stopped."""
    budget: Omittable[Seconds] = None
    """Seconds of one run of a cell after which no further optional observation is started, that is,
    none that does not affect the verdict."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = [key for key in ("hub", "path", "build") if getattr(self, key) is not None]
        if not sources:
            msg = "the model has no source: write one of hub, path and build"
            raise _mistake(msg)
        if len(sources) > 1:
            msg = f"the model has {len(sources)} sources, {', '.join(sources)}: keep one"
            raise _mistake(msg)
        return self


class RuleEntry(Form):
    """A pattern of cells; an omitted field matches everything."""

    model: OneOrMore[str] = ["*"]
    """Names of models, or shell patterns such as "llama*"."""
    variant: OneOrMore[str] = ["*"]
    """Variants, such as "float32-sdpa" or "bfloat16-*"."""
    stack: OneOrMore[str] = ["*"]
    """Ids of stacks, or patterns such as "5.*"."""
    reason: Omittable[WordsText] = None
    """Why these cells are included or excluded."""


class ExpectedEntry(Form):
    """A known difference: where it occurs, its reason, and a reference for it."""

    model: OneOrMore[str]
    """Names of models, or shell patterns such as "llama*"."""
    variant: OneOrMore[str] = ["*"]
    """Variants, such as "float32-sdpa" or "bfloat16-*"."""
    stack: OneOrMore[str]
    """Ids of stacks, or patterns such as "5.*"."""
    signal: OneOrMore[SignalPattern] = ["*"]
    """Signals that may differ; a difference in any other signal is not covered."""
    verdict: ExpectedVerdict = "differs"
    """The verdict that is known to occur; one that would make the run fail."""
    reason: WordsText
    """Why the difference occurs."""
    reference: Omittable[WordsText] = None
    """An issue, a pull request, or a source file of the release."""
    title: Omittable[WordsText] = None
    """Heading of the explanation."""
    explanation: Omittable[WordsText] = None
    """A paragraph about it for the top of the report."""


class MatrixFile(Form):
    """Models, the releases of transformers to run them under, and known differences."""

    model_config = ConfigDict(title="matrix.yaml", json_schema_extra={"required": ["models"]})

    version: Literal[1] = 1
    """Version of this form."""
    stacks: Annotated[
        list[Annotated[StackEntry, _ScalarAsKey("transformers")]], Field(min_length=1)
    ] = Field(default_factory=lambda: [StackEntry(transformers=version) for version in STACKS])
    """The environments to compare; default: "4.48", "4.57", "5.2" and "5.x"."""
    torch: VersionText = "2.13.0"
    """Version of torch in every stack whose entry does not set it."""
    python: PythonText = "3.11"
    """Version of Python in every stack whose entry does not set it."""
    reference: Omittable[str] = None
    """Id of the stack that the others are compared with; default: the oldest."""
    exclude_newer: Annotated[Omittable[MomentText], Field(alias="exclude-newer")] = None
    """Packages uploaded after this date or time are ignored."""
    defaults: Annotated[DefaultsEntry, _NullAsEmpty()] = Field(default_factory=DefaultsEntry)
    """Settings of every model whose own entry does not set them."""
    models: Annotated[
        dict[str, ModelEntry],
        Field(
            min_length=1,
            json_schema_extra={"propertyNames": {"pattern": NAME, "maxLength": NAME_LENGTH}},
        ),
    ] = Field(default_factory=dict)
    """The models, by their name in reports."""
    include: Annotated[list[RuleEntry], _NullAsEmpty()] = Field(default_factory=list)
    """If there are such rules, only cells that match one of them are run."""
    exclude: Annotated[list[RuleEntry], _NullAsEmpty()] = Field(default_factory=list)
    """Cells that match one of these rules are not run."""
    expected: Annotated[list[ExpectedEntry], _NullAsEmpty()] = Field(default_factory=list)
    """Known differences; an entry that no longer occurs fails the run until it is removed."""
