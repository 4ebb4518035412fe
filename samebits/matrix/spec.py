"""The form of matrix.yaml, and its content as frozen records.

Each key of the file is one field of one class. samebits/matrix/load.py reads a :class:`MatrixFile` and
makes a :class:`Matrix` of it. matrix.schema.json is generated from MatrixFile, for editors. A class
whose name ends in ``Entry`` is what the file has; the class that extends it adds what the file does
not say, such as the name of a model, which is its key in the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from samebits.base.errors import nearest, shown
from samebits.matrix.arguments import InputSetEntry
from samebits.matrix.form import Form
from samebits.matrix.load_arguments import bad_argument
from samebits.matrix.probefile import ProbeFile, bad_probe
from samebits.matrix.sources import bad_folder, bad_package, bad_patch
from samebits.matrix.values import (
    NAME,
    NAME_LENGTH,
    VERSION,
    Attention,
    ClassPath,
    Device,
    Distinct,
    Dtype,
    FilePath,
    FormatVersion,
    Hub,
    Length,
    Line,
    ModelPackage,
    Module,
    Moment,
    Name,
    OneOrMore,
    OrNull,
    OutputName,
    Package,
    Paragraph,
    Pattern,
    Python,
    Release,
    Seconds,
    SignalPattern,
    Text,
    TextAs,
    TokenId,
    Torch,
    Verdict,
    Version,
    is_path_of_package,
    is_source,
    mistake,
)
from samebits.records.ids import Variant, answering
from samebits.records.question import switches
from samebits.records.record import Record

ALL = "all"
"""The value of ``questions`` that stands for each question."""
_NAMES = {"propertyNames": {"pattern": NAME, "maxLength": NAME_LENGTH}}


def _without_defaults(schema: dict[str, Any]) -> None:
    """Drop defaults from a schema: another part of the file may set other ones."""
    _with_switches(schema)
    for field in schema["properties"].values():
        field.pop("default", None)


def _with_switches(schema: dict[str, Any]) -> None:
    """Put the switches of questions into a schema, which are keys of their own in the file."""
    fields = schema["properties"]
    if fields.pop("questions", None) is None:
        return
    word = {"enum": [ALL, *switches()], "type": "string"}
    listed = {
        "description": "Which questions are asked: all, some, or [] for none. Without it each one is asked "
        "whose key below has not false; a key below counts more.",
        "anyOf": [word, {"items": word, "type": "array"}],
        "title": "Questions",
    }
    added = {"questions": listed} | {
        name: {
            "description": key.switch,
            "type": "boolean",
            "default": True,
            "title": name.title(),
        }
        for name, key in switches().items()
    }
    names, place = [*fields], [*fields].index("samples")
    ordered = (*names[:place], *added, *names[place:])
    schema["properties"] = {name: (added | fields)[name] for name in ordered}


_NAMED = ConfigDict(populate_by_name=True)
"""Of what is also made in code, by the names of its fields; a file has the aliases alone."""


def _sources_and_no_defaults(schema: dict[str, Any]) -> None:
    _without_defaults(schema)
    schema["oneOf"] = [{"required": [source]} for source in ("hub", "path", "build")]
    schema["dependentRequired"] = {"revision": ["hub"], "patch": ["path"]}


class StackEntry(Form):
    """One pinned environment; a version is short for {transformers: version}."""

    model_config = ConfigDict(json_schema_extra=_without_defaults)

    id: Name = ""
    """The name in cells and reports; default: the version."""
    transformers: Release
    """A release such as 4.48.0, or a family such as 4.48 or 5.x: its newest release. Or a source: a folder with
    a checkout, a clone and a commit such as ../transformers@0123…, all 40 digits, or a wheel."""
    base: Version | None = None
    """The release in whose environment a source runs; default: the release that it descends from."""
    torch: Torch = "2.13.0"
    """Version of torch, or system for the torch that the machine has; default: that of the matrix."""
    python: Python = "3.11"
    """Version of Python; default: that of the matrix."""
    packages: OneOrMore[Package] = ()
    """Additional requirements for this environment only, such as accelerate>=1."""

    @model_validator(mode="after")
    def _is_on_a_source(self) -> Self:
        if self.base is not None and not is_source(self.transformers):
            msg = f"base is for a folder, a commit or a wheel of transformers, and {self.transformers} is a release"
            raise mistake(msg, "base")
        return self


class StackSpec(StackEntry):
    """One pinned environment, before it is resolved."""

    between: bool = False
    """Whether samebits/matrix/releases.py added it as a release between two stacks of the file."""
    commit: str = ""
    """A clone of a user's package and a commit, FOLDER@COMMIT, whose code comes first; '' for none."""


class Prompt(Form):
    """One input, or a batch of inputs padded on the left; a text is short for {text: …}.

    text is used if the model has a tokenizer, else ids, else length seeded random ids.
    Image and audio models get seeded random values of the shape that their config requires.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "anyOf": [{"required": [key]} for key in ("text", "ids", "length", "batch")],
            "dependentSchemas": {"batch": {"maxProperties": 1}},
        }
    )

    text: Text | None = None
    """The text for a model with a tokenizer."""
    ids: Annotated[tuple[TokenId, ...], Field(min_length=1)] | None = None
    """Token ids, for a model without a tokenizer."""
    length: Length | None = None
    """Number of seeded random ids; past-window is the model's sliding window plus eight."""
    batch: (
        Annotated[
            tuple[
                Annotated[
                    Prompt,
                    TextAs("text", minLength=1),
                    Field(json_schema_extra={"properties": {"batch": False}}),
                ],
                ...,
            ],
            Field(min_length=1),
        ]
        | None
    ) = None
    """Several inputs as one batch."""

    @model_validator(mode="after")
    def _is_one_input_or_a_batch(self) -> Self:
        keys = sorted(self.model_fields_set - {"batch"})
        if self.batch is None and not keys:
            raise mistake("the prompt is empty: write text, ids, length or batch")
        if self.batch is not None and keys:
            raise mistake(f"{' and '.join(keys)} beside batch: write it in each input of the batch")
        for number, item in enumerate(self.batch or ()):
            if item.batch is not None:
                msg = "a batch cannot contain a batch: write its inputs in the outer one"
                raise mistake(msg, "batch", number, "batch")
        return self


class TokenizerRecipe(Form):
    """How to make a small tokenizer, without network."""

    kind: Literal[
        "byte-level", "word-ends", "metaspace", "unigram", "wordpiece", "characters", "bytes"
    ]
    """byte-level: BPE of GPT-2, Llama 3, Qwen and DeepSeek, 380 tokens. metaspace: BPE on words that
    begin with ▁, with byte fallback, as of Llama 2, 427 tokens. unigram: as of T5 and XLM-R, 96 tokens.
    wordpiece: as of BERT, 141 tokens. word-ends: BPE whose words end with </w>, as of CLIP, 632 tokens.
    characters: for a class in Python with a vocabulary of letters, such as Wav2Vec2CTCTokenizer, 32 tokens.
    bytes: for a class in Python without a vocabulary, such as ByT5Tokenizer."""
    tokenizer_class: Line = "PreTrainedTokenizerFast"
    """The class that tokenizer_config.json names."""
    slow_files: bool = False
    """Whether the files of the class in Python are there, too; not for unigram."""
    unused: Annotated[int, Field(ge=0, le=300_000)] = 0
    """Tokens that no text has, added to the vocabulary: releases treat large ones otherwise. Not for unigram."""
    parts: dict[str, Any] = Field(default_factory=dict)
    """Parts of tokenizer.json that replace those of the kind, such as normalizer."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Further keys of tokenizer_config.json, such as chat_template; null leaves one out."""


class Recipe(Form):
    """How to build a tiny checkpoint: an architecture, its config and a seed.

    It is built once, and every environment loads the same files.
    """

    model_config = _NAMED

    architecture: Line
    """The model_type in transformers, such as llama."""
    auto: bool = False
    """Whether the sizes of the config class's defaults are made small, as far as the class still runs
    with them; what config has stays as it is written. Then head is by default what most users load."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the config class."""
    config_variant: Annotated[int, Field(ge=0, le=99)] = 0
    """0: the config as it is. 1, 2, …: other values of its switches, such as biases, windows, kinds of rope and
    key-value heads. Few variants have every pair of values. Needs auto."""
    head: Literal[
        "auto",
        "causal-lm",
        "masked-lm",
        "seq2seq-lm",
        "sequence-classification",
        "token-classification",
        "question-answering",
        "multiple-choice",
        "next-sentence",
        "pretraining",
        "text-encoding",
        "image-classification",
        "masked-image",
        "semantic-segmentation",
        "depth-estimation",
        "object-detection",
        "zero-shot-object-detection",
        "image-segmentation",
        "instance-segmentation",
        "universal-segmentation",
        "mask-generation",
        "backbone",
        "audio-classification",
        "audio-frame-classification",
        "audio-xvector",
        "ctc",
        "speech-seq2seq",
        "image-text-to-text",
        "base",
    ] = "causal-lm"
    """The kind of model class, such as causal-lm for AutoModelForCausalLM; auto: needs auto."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the weights."""
    stack: Annotated[Pattern | None, Field(alias="environment")] = None
    """Id of the environment that builds it; default: the oldest that knows the architecture."""
    gain: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    """Scale of the weight matrices, for architectures whose outputs vanish or explode at 1."""
    tokenizer: TokenizerRecipe | None = None
    """Its tokenizer, so that prompts are texts; the config's vocab_size must have room for it."""
    processor: dict[str, Any] | None = None
    """Settings of preprocessor_config.json, with {} for the defaults of the architecture's class; it
    names that class, unless image_processor_type or feature_extractor_type does. processor_config
    are the settings of processor_config.json, such as {processor_class: LlavaProcessor}."""

    @model_validator(mode="before")
    @classmethod
    def _has_a_head(cls, data: object) -> object:
        """Leave the head open for a config that is made small."""
        if isinstance(data, dict) and str(data.get("auto", "")).casefold() == "true":
            return {"head": "auto", **data}
        return data

    @model_validator(mode="after")
    def _is_made_small(self) -> Self:
        if self.head == "auto" and not self.auto:
            raise mistake("auto is for a recipe with auto: true", "head")
        if self.config_variant and not self.auto:
            raise mistake("it is for a recipe with auto: true", "config_variant")
        return self


class ProbeEntry(Form):
    """A Python file of one's own with probes; a path is short for {path: …}.

    Its public functions observe the loaded model. Each names what it needs: model, tokenizer,
    processor, inputs (a dict from each prompt to the arguments of forward), config, torch. It
    returns tensors, numbers, texts, or dicts and lists of them. The code runs in every environment.
    """

    path: FilePath
    """The file, relative to the matrix file; its name without .py is the name of the signal."""
    verdict: bool = False
    """Whether a difference counts towards the verdict; else it only informs."""

    @field_validator("path")
    @classmethod
    def _is_a_probe(cls, path: str, info: ValidationInfo) -> str:
        if info.context and (fault := bad_probe(info.context["folder"], path)):
            raise mistake(fault)
        return path


_SHORT = "The capital of France is"
_LONG = "Once upon a time, there was a cat named Whiskers."


class Settings(Form):
    """How a model is run. Those under defaults hold for every model that does not set its own."""

    model_config = ConfigDict(json_schema_extra=_with_switches)

    dtypes: Distinct[Dtype] = ("float32",)
    """The dtypes that a model is loaded in."""
    attention: Distinct[Attention] = ("default",)
    """Attention implementations; default lets transformers choose."""
    devices: Distinct[Device] = ("cpu",)
    """The devices that a model runs on."""
    prompts: Annotated[
        dict[Name, Annotated[Prompt, TextAs("text", minLength=1)]],
        Field(min_length=1, json_schema_extra=_NAMES),
    ] = Field(
        default_factory=lambda: {
            "short": Prompt(text=_SHORT, length=9),
            "long": Prompt(text=_LONG, length="past-window"),
            "padded": Prompt(batch=(Prompt(text=_SHORT, length=5), Prompt(text=_LONG, length=13))),
        }
    )
    """Inputs by name; default: short, long and padded, and none beside inputs:."""
    greedy: Annotated[int, Field(ge=0, le=10_000)] = 12
    """Number of tokens to generate; 0 for none."""
    inputs: Annotated[
        dict[Name, Annotated[InputSetEntry, TextAs("file", minLength=1)]],
        Field(min_length=1, json_schema_extra=_NAMES),
    ] = Field(default_factory=dict)
    """Arguments of forward by name of the set, for a model that takes something else than token ids,
    pixel values and audio; or to give them yourself."""
    questions: dict[str, bool] = Field(default_factory=dict)
    """Question -> whether it is asked, of those that are switched; each is a key of the file."""
    samples: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Number of prompts over which each layer's cache error is averaged; 0 for none."""
    probes: tuple[Annotated[ProbeEntry, TextAs("path", pattern=r"\S")], ...] = ()
    """Probes of one's own: Python files whose functions run in every cell."""
    threads: Annotated[int, Field(ge=1, le=64)] | None = None
    """Threads of each job of a cell, on any machine, as their number decides bits; default: 1, and 4
    for a model on the CPU whose files have 4 GiB or more (1 for one on the hub)."""
    timeout: Seconds = 120.0
    """Seconds without progress after which a job is stopped."""
    budget: Seconds = 600.0
    """Seconds of one run of a cell after which no further optional observation is started, that is,
    none that does not affect the verdict."""
    packages: OneOrMore[ModelPackage] = ()
    """Packages with the model's code, beside what every environment has: requirements such as
    my-models>=1.2, and folders or wheels, relative to the matrix file."""
    imports: Annotated[OneOrMore[Module], Field(alias="import")] = ()
    """Modules to import before the model is loaded, which register it with the Auto classes."""
    load: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of from_pretrained, such as variant: fp16."""

    @field_validator("probes")
    @classmethod
    def _are_distinct(cls, probes: tuple[ProbeEntry, ...]) -> tuple[ProbeEntry, ...]:
        names = [PurePath(probe.path).stem for probe in probes]
        for number, name in enumerate(names):
            if name in names[:number]:
                msg = f"two files of probes have the name {shown(name)}: rename one of them"
                raise mistake(msg, number, "path")
        return probes

    @field_validator("packages")
    @classmethod
    def _are_there(cls, packages: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if not info.context:
            return packages
        for number, package in enumerate(packages):
            if not is_path_of_package(package):
                continue
            if fault := bad_package(info.context["folder"], package):
                raise mistake(fault, number)
        return packages

    @field_validator("load")
    @classmethod
    def _is_for_from_pretrained(cls, load: dict[str, Any]) -> dict[str, Any]:
        for name, value in load.items():
            if fault := bad_argument(name, value):
                raise mistake(fault, name)
        return load

    @model_validator(mode="before")
    @classmethod
    def _has_switches(cls, data: object, info: ValidationInfo) -> object:
        """Put the switches of questions together."""
        if not isinstance(data, dict):
            return data
        keys = switches()
        rest = {name: value for name, value in data.items() if name not in keys}
        values = _listed(rest.pop("questions")) if info.context and "questions" in rest else {}
        values |= {keys[name].name: _switched(name, data[name]) for name in data if name in keys}
        return rest | {"questions": rest.get("questions", {}) | values} if values else rest


def _listed(value: object) -> dict[str, bool]:
    """Return each question, and whether it is one of those that the file lists."""
    keys = switches()
    asked = [value] if isinstance(value, str) else value
    if not isinstance(asked, list):
        msg = "write all, or a list of questions such as [training, save_load]"
        raise mistake(msg, "questions")
    for number, name in enumerate(asked):
        if not isinstance(name, str) or name not in (ALL, *keys):
            place = () if isinstance(value, str) else (number,)
            msg = f"no question has the name {shown(str(name))}: {nearest(str(name), keys)}"
            raise mistake(msg, "questions", *place)
    return {key.name: ALL in asked or name in asked for name, key in keys.items()}


def _switched(name: str, value: object) -> bool:
    """Return the value of a switch of the file, which reads all values as texts."""
    if value is None:
        raise mistake("the value is missing: write one, or remove the key", name)
    try:
        return _SWITCH.validate_python(value)
    except ValidationError:
        msg = f"{shown(str(value))} is neither true nor false: write one of the two"
        raise mistake(msg, name) from None


_SWITCH = TypeAdapter(bool)


class ModelEntry(Settings):
    """One model: exactly one of hub, path and build, and the settings to run it with."""

    model_config = ConfigDict(json_schema_extra=_sources_and_no_defaults)

    hub: Hub | None = None
    """Id on the Hugging Face hub, such as org/name."""
    revision: Line | None = None
    """Branch, tag or commit on the hub."""
    path: FilePath | None = None
    """A folder with config.json, relative to the matrix file."""
    patch: Distinct[FilePath] = ()
    """Unified diffs, relative to the matrix file, applied in order to a copy of path."""
    build: Annotated[Recipe, TextAs("architecture", pattern=r"\S")] | None = None
    """A tiny checkpoint built from a config; an architecture is short for {architecture: …}."""
    model_class: Annotated[ClassPath | None, Field(alias="class")] = None
    """The model's class as package.module:Name, where no Auto class of transformers has it."""
    logits: OutputName | None = None
    """The output of forward that plays the part of the logits, such as pooler_output; default: that
    of the name logits, else the first."""
    trust_remote_code: bool = False
    """Whether Python code that is part of the checkpoint may run."""
    group: Line | None = None
    """The heading under which the report lists the model."""

    @field_validator("revision")
    @classmethod
    def _is_of_the_hub(cls, revision: str, info: ValidationInfo) -> str:
        if info.data.get("hub", "invalid") is None:
            raise mistake("only a model with hub: has a revision: remove the key")
        return revision

    @field_validator("path")
    @classmethod
    def _is_a_checkpoint(cls, path: str, info: ValidationInfo) -> str:
        if info.context and (fault := bad_folder(info.context["folder"], path)):
            raise mistake(fault)
        return path

    @field_validator("patch")
    @classmethod
    def _applies(cls, patch: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        path = info.data.get("path", "invalid")
        if path is None:
            raise mistake("only a folder, path:, can be patched: remove the key")
        if info.context and "path" in info.data:
            folder: Path = info.context["folder"]
            for number in range(len(patch)):
                if fault := bad_patch(folder, folder / path, patch[: number + 1]):
                    raise mistake(fault, number)
        return patch

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        sources = [key for key in ("hub", "path", "build") if getattr(self, key) is not None]
        if not sources:
            raise mistake("the model has no source: write one of hub, path and build")
        if len(sources) > 1:
            raise mistake(f"the model has {len(sources)} sources, {', '.join(sources)}: keep one")
        return self


class ModelSpec(ModelEntry):
    """One model of matrix.yaml with the defaults applied."""

    model_config = _NAMED

    name: Name
    line: int = 0
    """Line of its entry in matrix.yaml."""
    prompts: dict[Name, Prompt | InputSetEntry] = Field(default_factory=dict)  # type: ignore[assignment]
    """Everything that forward is run with, by name: the prompts, then the sets of inputs:."""
    own: tuple[str, ...] = ()
    """The settings that the model's own entry switches on, sorted: shards compare the digest."""
    reloads: bool = True
    """Whether stacks load it again for what only explains. This field and the next two follow from
    the level of a run."""
    large: bool = False
    """Whether its size keeps nothing from being tried."""
    second_in_full: bool = False
    """Whether the second run of a cell is always a full one."""
    added: tuple[str, ...] = ()
    """Those of ``packages`` that the user did not list and its files need."""
    probe_files: tuple[ProbeFile, ...] = ()
    """The files of ``probes`` with their content."""

    def asks(self, question: str) -> bool:
        """Return True if a question is asked of the model."""
        return self.questions.get(question, True)

    def without(self, questions: Iterable[str]) -> ModelSpec:
        """Return the model without some questions."""
        switched_off = dict.fromkeys(questions, False)
        return self.model_copy(update={"questions": self.questions | switched_off})

    @property
    def has_own_code(self) -> bool:
        """True if imported packages bring its class."""
        return bool(self.imports) or self.model_class is not None

    @property
    def variants(self) -> tuple[Variant, ...]:
        """All combinations of dtype, attention implementation and device."""
        return tuple(
            Variant(dtype=dtype, attention=attention, device=device)
            for device in self.devices
            for dtype in self.dtypes
            for attention in self.attention
        )

    @property
    def first_on_cpu(self) -> Variant | None:
        """The variant on the CPU that is asked what no variant decides."""
        return answering(self.variants)


class Rule(Form):
    """A pattern of cells; an omitted field matches everything."""

    model_config = _NAMED

    model: OneOrMore[Pattern] = ("*",)
    """Names of models, or shell patterns such as "llama*"."""
    variant: OneOrMore[Pattern] = ("*",)
    """Variants, such as "float32-sdpa" or "bfloat16-*"."""
    stack: Annotated[OneOrMore[Pattern], Field(alias="environment")] = ("*",)
    """Ids of environments, or patterns such as "5.*"."""
    reason: Paragraph = ""
    """Why these cells are included or excluded."""


class ExpectedEntry(Form):
    """A known difference: where it occurs, its reason, and a reference for it."""

    model_config = _NAMED

    model: OneOrMore[Pattern]
    """Names of models, or shell patterns such as "llama*"."""
    variant: OneOrMore[Pattern] = ("*",)
    """Variants, such as "float32-sdpa" or "bfloat16-*"."""
    stack: Annotated[OneOrMore[Pattern], Field(alias="environment")]
    """Ids of environments, or patterns such as "5.*"."""
    signal: OneOrMore[SignalPattern] = ("*",)
    """Signals that may differ, or that an exception leaves out; no other signal is covered."""
    verdict: Verdict = "differs"
    """The verdict that is known to occur; one that would make the run fail."""
    reason: Paragraph
    """Why the difference occurs."""
    reference: Paragraph = ""
    """An issue, a pull request, or a source file of the release."""
    title: Paragraph = ""
    """Heading of the explanation."""
    explanation: Paragraph = ""
    """A paragraph about it for the top of the report."""


class Expected(ExpectedEntry):
    """A known difference, and where matrix.yaml has it."""

    line: int = 0
    """Line in matrix.yaml."""


class MatrixFile(Form):
    """Models, the releases of transformers to run them under, and known differences."""

    model_config = ConfigDict(title="matrix.yaml", json_schema_extra={"required": ["models"]})

    version: FormatVersion = 1
    """Version of this form."""
    stacks: Annotated[
        tuple[Annotated[StackEntry, TextAs("transformers", pattern=VERSION)], ...],
        Field(min_length=1, alias="environments"),
    ] = Field(
        default_factory=lambda: tuple(
            StackEntry(transformers=version) for version in ("4.48", "4.57", "5.2", "5.x")
        )
    )
    """The environments to compare; default: 4.48, 4.57, 5.2 and 5.x."""
    torch: Torch = "2.13.0"
    """Version of torch, or system, in every environment whose entry does not set it."""
    python: Python = "3.11"
    """Version of Python in every environment whose entry does not set it."""
    reference: Pattern | None = None
    """Id of the environment that the others are compared with; default: the oldest."""
    exclude_newer: Annotated[Moment | None, Field(alias="exclude-newer")] = None
    """Packages uploaded after this date or time are ignored."""
    defaults: OrNull[Settings] = Field(default_factory=Settings)
    """Settings of every model whose own entry does not set them."""
    models: Annotated[dict[Name, ModelEntry], Field(min_length=1, json_schema_extra=_NAMES)] = (
        Field(default_factory=dict)
    )
    """The models, by their name in reports."""
    include: OrNull[tuple[Rule, ...]] = ()
    """If there are such rules, only cells that match one of them are run."""
    exclude: OrNull[tuple[Rule, ...]] = ()
    """Cells that match one of these rules are not run."""
    expected: OrNull[tuple[ExpectedEntry, ...]] = ()
    """Known differences; an entry that no longer occurs fails the run until it is removed."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty_sections(cls, data: dict[str, object]) -> dict[str, object]:
        """Drop sections all of whose entries are commented out."""
        may_be_empty = ("defaults", "include", "exclude", "expected")
        return {key: data[key] for key in data if data[key] is not None or key not in may_be_empty}


class Matrix(Record):
    """The content of matrix.yaml with defaults applied."""

    path: str
    stacks: tuple[StackSpec, ...]
    """Oldest first."""
    reference: str
    """Id of the environment that the others are compared with."""
    exclude_newer: str | None = None
    """Packages uploaded after this time are ignored (RFC 3339 or a date)."""
    models: tuple[ModelSpec, ...]
    include: tuple[Rule, ...] = ()
    exclude: tuple[Rule, ...] = ()
    expected: tuple[Expected, ...] = ()

    def model(self, name: str) -> ModelSpec:
        """Return the model of that name."""
        if self.by_name[0] is not self.models:  # a copy with other models keeps what was computed
            del self.__dict__["by_name"]
        return self.by_name[1][name]

    @cached_property
    def by_name(self) -> tuple[tuple[ModelSpec, ...], dict[str, ModelSpec]]:
        """The models, and the same by their names: every job of a cell asks for its model."""
        return self.models, {model.name: model for model in self.models}

    def stack(self, id: str) -> StackSpec:
        """Return the stack of that id."""
        return next(stack for stack in self.stacks if stack.id == id)
