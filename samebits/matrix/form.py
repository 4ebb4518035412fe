"""What may be written in matrix.yaml: the file's form, short forms and all.

samebits/matrix/load.py turns it into the records of samebits/matrix/spec.py, and matrix.schema.json is
generated from it, so an editor completes and refuses what the reader does. Its own words for a
mistake are raised as errors of type ``said``; the rest is put into words by config.
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
from samebits.matrix.spec import Dtype
from samebits.records.ids import DTYPES, SIGNALS

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


def said(text: str) -> PydanticCustomError:
    """Return an error whose words are meant for the user as they are."""
    return PydanticCustomError("said", "{said}", {"said": text})


def is_name(text: str) -> bool:
    """Return True if text is safe in a path, in a table and in a command."""
    return len(text) <= NAME_LENGTH and _fits(NAME, text)


def _fits(pattern: str, text: str) -> bool:
    # "$" alone also fits before a line break at the end, and \d other digits than ours.
    return re.fullmatch(pattern.strip("^$"), text, re.ASCII) is not None


def _name(text: str) -> str:
    if is_name(text):
        return text
    msg = f"{shown(text)} is no name: {NAME_RULE}"
    raise said(msg)


def _version(text: str) -> str:
    if _fits(_VERSION, text) and len(text) <= 40:
        return text
    number = re.search(r"\d+(\.\d+)*", text, re.ASCII)
    such_as = f'"{number.group()}"' if number and len(number.group()) < 20 else '"4.48.0"'
    msg = (
        f"{shown(text)} is no version: write one release such as {such_as}, "
        f'or a family such as "4.48" or "5.x"'
    )
    raise said(msg)


def _python(text: str) -> str:
    if _fits(r"3\.\d+(\.\d+)?", text):
        return text
    msg = f'{shown(text)} is no Python version: write one such as "3.11"'
    raise said(msg)


def _dtype(value: object) -> object:
    if value in DTYPES:
        return value
    text = str(value)
    plain = text.casefold().removeprefix("torch.")
    msg = f"{shown(text)} is no dtype: {nearest(_DTYPE_NICKNAMES.get(plain, plain), DTYPES)}"
    raise said(msg)


def _attention(text: str) -> str:
    if not _fits(_ATTENTION, text):
        msg = f"{shown(text)} is no attention implementation: {nearest(text, ATTENTION)}"
        raise said(msg)
    if _is_typo(text):
        msg = f"{shown(text)} is no known attention implementation: {nearest(text, ATTENTION)}"
        raise said(msg)
    return text


def _is_typo(text: str) -> bool:
    """Return True if text is nearly a known name; flash_attention_4 is another one, no typo."""
    if _without_digits(text) in map(_without_digits, ATTENTION):
        return False
    known = [name for name in ATTENTION if abs(len(name) - len(text)) <= 2]
    swapped = any(sorted(name) == sorted(text) for name in known)
    return swapped or bool(difflib.get_close_matches(text.casefold(), known, cutoff=0.8))


def _without_digits(text: str) -> str:
    return re.sub(r"\d", "", text)


def _device(text: str) -> str:
    if _fits(_DEVICE, text):
        return text
    meant = "cuda" if text.casefold().startswith("gpu") else text
    msg = f'{shown(text)} is no device: {nearest(meant, DEVICES)} (or one by number, "cuda:1")'
    raise said(msg)


def _hub(text: str) -> str:
    if text.startswith((".", "/", "~")) or text.count("/") > 1:
        msg = f"{shown(text)} looks like a folder: write path: instead of hub:"
        raise said(msg)
    if "@" in text:
        name, _, revision = text.partition("@")
        msg = f"{shown(text)}: write hub: {shown(name)} and revision: {shown(revision)}"
        raise said(msg)
    if not _fits(_HUB, text):
        msg = f'{shown(text)} is no hub id: write one such as "org/name"'
        raise said(msg)
    return text


def _moment(text: str) -> str:
    try:
        datetime.fromisoformat(text)
        if _fits(_MOMENT, text):
            return text
    except ValueError:
        pass
    msg = f'{shown(text)} is no date: write "2026-11-20", or "2026-11-20T12:00:00Z"'
    raise said(msg)


def _line(text: str) -> str:
    if text.strip() and text.isprintable():
        return text
    msg = f"{shown(text)} is not a line of text: write one line with something in it"
    raise said(msg)


def _words(text: str) -> str:
    if text.strip():
        return text.strip()
    msg = "the text is empty: write a sentence"
    raise said(msg)


def _requirement(text: str) -> str:
    try:
        asked = Requirement(text)
    except InvalidRequirement:
        msg = f'{shown(text)} is no requirement: write one such as "accelerate>=1"'
        raise said(msg) from None
    if asked.url is not None:
        msg = f"{shown(text)}: what lies at an address can change, and no lock says so: write a version"
        raise said(msg)
    if (name := asked.name.lower()) in ("transformers", "torch"):
        msg = f"{shown(text)}: the version of {name} has its own key, {name}:"
        raise said(msg)
    return text


def _fails_a_run(value: object) -> object:
    if value == "not finished":
        msg = (
            "that a cell does not finish is of the machine and no known difference: remove this entry, "
            "and raise the model's timeout or give it more memory"
        )
        raise said(msg)
    if value != "rounding":
        return value
    msg = (
        "rounding passes without an entry, and whether a cell rounds depends on the CPU: remove "
        "this entry, or write the verdict that makes the run fail: differs, diverged, unstable, failed "
        'or "not observed"'
    )
    raise said(msg)


def _length(value: object) -> object:
    is_number = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000_000
    if value == "past-window" or is_number:
        return value
    msg = 'write a number of tokens from 1 to 1000000, or "past-window"'
    raise said(msg)


def _given(value: object) -> object:
    if value is None:
        msg = "no value stands here: write one, or remove the key"
        raise said(msg)
    return value


def _unique(items: list[T]) -> list[T]:
    for index, item in enumerate(items):
        if item in items[:index]:
            msg = f"{shown(str(item))} is listed twice: remove one"
            raise said(msg)
    return items


class _NotNull:
    """A key may be left out, but not be left empty; the schema says so too."""

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
        return kinds[0] if len(kinds) == 1 else schema


_SCALARS = (str, int, float)


class _OneOrMany:
    """One item stands for a list of one."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._listed, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        return {"anyOf": [schema["items"], schema]}

    @staticmethod
    def _listed(value: object) -> object:
        return [value] if isinstance(value, _SCALARS) else value


class _MayBeEmpty:
    """A key whose entries are all commented out is a key left out."""

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
class _OrShort:
    """A scalar stands for a mapping with that one key."""

    key: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._long, handler(source))

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        schema = handler(core)
        field = dict(handler.resolve_ref_schema(schema)["properties"][self.key])
        short = {key: field[key] for key in ("type", "pattern", "minLength") if key in field}
        return {"anyOf": [short, schema]}

    def _long(self, value: object) -> object:
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
WordsText = Annotated[str, AfterValidator(_words), Field(json_schema_extra={"pattern": r"\S"})]
Requirements = Annotated[str, AfterValidator(_requirement)]
SignalPattern = Annotated[str, Field(json_schema_extra={"examples": ["*", *SIGNALS]})]
Length = Annotated[
    Annotated[int, Field(ge=1, le=1_000_000)] | Literal["past-window"], BeforeValidator(_length)
]

ExpectedVerdict = Annotated[
    Literal["differs", "diverged", "unstable", "failed", "not observed"],
    BeforeValidator(_fails_a_run),
]

Given = Annotated[T | None, BeforeValidator(_given), _NotNull()]
Several = Annotated[list[T], Field(min_length=1), _OneOrMany()]
Different = Annotated[
    list[T],
    Field(min_length=1, json_schema_extra={"uniqueItems": True}),
    AfterValidator(_unique),
    _OneOrMany(),
]


class Form(BaseModel):
    """A mapping of matrix.yaml: no unknown key, and no guess at what a value means."""

    model_config = ConfigDict(
        strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )


class StackEntry(Form):
    """One pinned environment; a version alone is short for {transformers: version}."""

    transformers: VersionText
    """A release such as "4.48.0", or a family such as "4.48" or "5.x": its newest release."""
    id: Given[NameText] = None
    """The name in cells and reports; the version, if left out."""
    torch: Given[VersionText] = None
    """Version of torch; the matrix's, if left out."""
    python: Given[PythonText] = None
    """Version of Python; the matrix's, if left out."""
    packages: Several[Requirements] = Field(default_factory=list)
    """More requirements for this stack alone, such as "accelerate>=1"."""


class InputEntry(Form):
    """One input: text where the model has a tokenizer, else ids, else length seeded ids."""

    model_config = ConfigDict(
        json_schema_extra={"anyOf": [{"required": [key]} for key in ("text", "ids", "length")]}
    )

    text: Given[Annotated[str, Field(min_length=1)]] = None
    """What a model with a tokenizer reads."""
    ids: Given[Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]] = None
    """Token ids, for a model without a tokenizer."""
    length: Given[Length] = None
    """Number of seeded ids; past-window is eight more than the model's sliding window."""

    @model_validator(mode="after")
    def _holds_something(self) -> Self:
        if not self.model_fields_set:
            msg = "the prompt holds nothing: write text, ids, length or batch"
            raise said(msg)
        return self


class PromptEntry(InputEntry):
    """One input, or a batch of them padded on the left; a text is short for {text: …}."""

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [key]} for key in ("text", "ids", "length", "batch")],
            "dependentSchemas": {"batch": {"maxProperties": 1}},
        }
    )

    batch: Given[Annotated[list[Annotated[InputEntry, _OrShort("text")]], Field(min_length=1)]] = (
        None
    )
    """Several inputs as one batch."""

    @model_validator(mode="after")
    def _is_one_or_many(self) -> Self:
        mixed = sorted(self.model_fields_set - {"batch"})
        if self.batch is not None and mixed:
            msg = f"{' and '.join(mixed)} beside batch: write each input inside of the batch"
            raise said(msg)
        return self


class BuildEntry(Form):
    """How to make a tiny checkpoint: an architecture, its config and a seed."""

    architecture: LineText
    """transformers' model_type, such as llama."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the config class."""
    head: Literal["causal-lm", "masked-lm", "seq2seq-lm", "image-classification", "ctc", "base"] = (
        "causal-lm"
    )
    """Which model class is built on the architecture."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the weights."""
    stack: Given[str] = None
    """Id of the stack that makes it; the oldest that knows the architecture, if left out."""
    gain: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Scale of the matrices, for architectures that flatten or blow up the default."""


Prompts = Annotated[
    dict[str, Annotated[PromptEntry, _OrShort("text")]],
    Field(min_length=1, json_schema_extra={"propertyNames": {"pattern": NAME}}),
]
Greedy = Annotated[int, Field(ge=0, le=10_000)]
Samples = Annotated[int, Field(ge=0, le=100_000)]
Seconds = Annotated[float, Field(gt=0, le=86_400, allow_inf_nan=False)]
Build = Annotated[BuildEntry, _OrShort("architecture")]


class DefaultsEntry(Form):
    """What holds for every model that does not say otherwise."""

    dtypes: Different[DtypeText] = ["float32"]
    """The dtypes a model is loaded in."""
    attention: Different[AttentionText] = ["default"]
    """Attention implementations; default is what transformers chooses."""
    devices: Different[DeviceText] = ["cpu"]
    """Where the model runs."""
    prompts: Prompts = Field(
        default_factory=lambda: {
            "short": PromptEntry(text=_SHORT, length=9),
            "long": PromptEntry(text=_LONG, length="past-window"),
            "padded": PromptEntry(
                batch=[InputEntry(text=_SHORT, length=5), InputEntry(text=_LONG, length=13)]
            ),
        }
    )
    """Inputs by name; short, long and padded, if left out."""
    greedy: Greedy = 12
    """Number of tokens to generate; 0 for none."""
    invariants: bool = True
    """Whether to try the relations that must hold inside one cell, such as prefill + decode; of a model
    above 1 GiB they are tried only if its own entry says so."""
    crossings: bool = True
    """Whether each stack saves the model and every stack loads that."""
    usage: bool = True
    """Whether to try what users do around the model: attention maps, packed rows, generate() …"""
    samples: Samples = 0
    """Prompts over which each layer's cache error is averaged; 0 for none."""
    timeout: Seconds = 120
    """Seconds without progress after which a job is ended."""
    budget: Seconds = 600
    """Seconds of one run of a cell beyond which nothing is begun that makes no verdict."""


_SHORT = "The capital of France is"
_LONG = "Once upon a time, there was a cat named Whiskers."


class ModelEntry(Form):
    """One model: exactly one of hub, path and build, and what to run it with."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [{"required": [source]} for source in ("hub", "path", "build")],
            "dependentRequired": {"revision": ["hub"], "patch": ["path"]},
        }
    )

    hub: Given[HubText] = None
    """Id on the Hugging Face hub, such as org/name."""
    revision: Given[LineText] = None
    """Branch, tag or commit on the hub."""
    path: Given[LineText] = None
    """A folder with config.json, relative to the matrix file."""
    patch: Given[Different[LineText]] = None
    """Unified diffs, relative to the matrix file, applied in order to a copy of path."""
    build: Given[Build] = None
    """A tiny checkpoint made from a config; an architecture alone is short for it."""
    trust_remote_code: bool = False
    """Whether Python code that comes with the checkpoint may run."""
    group: Given[LineText] = None
    """A heading in the report."""
    dtypes: Given[Different[DtypeText]] = None
    """The dtypes it is loaded in; those of defaults, if left out."""
    attention: Given[Different[AttentionText]] = None
    """Attention implementations; those of defaults, if left out."""
    devices: Given[Different[DeviceText]] = None
    """Where it runs; where defaults say, if left out."""
    prompts: Given[Prompts] = None
    """Inputs by name, instead of those of defaults."""
    greedy: Given[Greedy] = None
    """Number of tokens to generate; 0 for none."""
    invariants: Given[bool] = None
    """Whether to try the relations that must hold inside one cell, such as prefill + decode."""
    crossings: Given[bool] = None
    """Whether each stack saves the model and every stack loads that."""
    usage: Given[bool] = None
    """Whether to try what users do around the model: attention maps, packed rows, generate() …"""
    samples: Given[Samples] = None
    """Prompts over which each layer's cache error is averaged; 0 for none."""
    timeout: Given[Seconds] = None
    """Seconds without progress after which a job is ended."""
    budget: Given[Seconds] = None
    """Seconds of one run of a cell beyond which nothing is begun that makes no verdict."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = [key for key in ("hub", "path", "build") if getattr(self, key) is not None]
        if not sources:
            msg = "the model has no source: write one of hub, path and build"
            raise said(msg)
        if len(sources) > 1:
            msg = f"the model has {len(sources)} sources, {', '.join(sources)}: keep one"
            raise said(msg)
        return self


class RuleEntry(Form):
    """Cells by pattern; a field left out matches everything."""

    model: Several[str] = ["*"]
    """Names of models, or shell patterns such as "llama*"."""
    variant: Several[str] = ["*"]
    """Variants, such as "float32-sdpa" or "bfloat16-*"."""
    stack: Several[str] = ["*"]
    """Ids of stacks, or patterns such as "5.*"."""
    reason: Given[WordsText] = None
    """Why."""


class ExpectedEntry(Form):
    """A known difference: where it shows, why it is there, and who says so."""

    model: Several[str]
    """Names of models, or shell patterns such as "llama*"."""
    variant: Several[str] = ["*"]
    """Variants, such as "float32-sdpa" or "bfloat16-*"."""
    stack: Several[str]
    """Ids of stacks, or patterns such as "5.*"."""
    signal: Several[SignalPattern] = ["*"]
    """Signals that may differ; a difference in any other one is not covered."""
    verdict: ExpectedVerdict = "differs"
    """What is known to happen: something that keeps a run from passing."""
    reason: WordsText
    """Why the difference is there."""
    reference: Given[WordsText] = None
    """An issue, a pull request, or a file of the release."""
    title: Given[WordsText] = None
    """Heading of the explanation."""
    explanation: Given[WordsText] = None
    """What a reader of the report should know of it: a paragraph near its top."""


class MatrixFile(Form):
    """Which models run under which releases of transformers, and what is known to differ."""

    model_config = ConfigDict(title="matrix.yaml", json_schema_extra={"required": ["models"]})

    version: Literal[1] = 1
    """Version of this form."""
    stacks: Annotated[
        list[Annotated[StackEntry, _OrShort("transformers")]], Field(min_length=1)
    ] = Field(default_factory=lambda: [StackEntry(transformers=version) for version in STACKS])
    """The environments to compare; "4.48", "4.57", "5.2" and "5.x", if left out."""
    torch: VersionText = "2.13.0"
    """Version of torch in every stack that does not say otherwise."""
    python: PythonText = "3.11"
    """Version of Python in every stack that does not say otherwise."""
    reference: Given[str] = None
    """Id of the stack that the others are compared with; the oldest, if left out."""
    exclude_newer: Annotated[Given[MomentText], Field(alias="exclude-newer")] = None
    """Packages uploaded after this date or moment do not exist."""
    defaults: Annotated[DefaultsEntry, _MayBeEmpty()] = Field(default_factory=DefaultsEntry)
    """What holds for every model that does not say otherwise."""
    models: Annotated[
        dict[str, ModelEntry],
        Field(
            min_length=1,
            json_schema_extra={"propertyNames": {"pattern": NAME, "maxLength": NAME_LENGTH}},
        ),
    ] = Field(default_factory=dict)
    """The models, by the name that they have in reports."""
    include: Annotated[list[RuleEntry], _MayBeEmpty()] = Field(default_factory=list)
    """If there are any rules, only cells that match one are run."""
    exclude: Annotated[list[RuleEntry], _MayBeEmpty()] = Field(default_factory=list)
    """Cells that match one of these rules are not run."""
    expected: Annotated[list[ExpectedEntry], _MayBeEmpty()] = Field(default_factory=list)
    """Differences that are known; one that no longer occurs fails the run until it is removed."""
