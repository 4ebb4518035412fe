"""The content of matrix.yaml as frozen records, created by samebits/matrix/load.py.

The form of the file itself, with its short forms, is in samebits/matrix/form.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from samebits.records.ids import Variant
from samebits.records.record import Record

Version = Annotated[str, Field(pattern=r"^\d+(\.\d+)*(\.x)?$")]
"""A version such as ``4.48.0``, or a family such as ``4.48`` or ``5.x``: its newest version."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
"""A name that is safe in a path, in a table and in a command."""

Dtype = Literal["float64", "float32", "float16", "bfloat16"]

Pattern = str
"""A name, or a shell pattern such as ``llama*``."""


class StackSpec(Record):
    """One pinned environment, before it is resolved."""

    id: Name
    """The name in cells and reports; default: the requested version."""
    transformers: Version
    torch: Version
    python: Version
    packages: tuple[str, ...] = ()
    """Additional requirements for this stack only, such as ``accelerate>=1``."""
    between: bool = False
    """Whether samebits/matrix/releases.py added it as a release between two stacks of the file."""


class Prompt(Record):
    """One input, or a batch of inputs padded on the left.

    ``text`` is used if the model has a tokenizer, else ``ids``, else ``length`` seeded random ids.
    Image and audio models get seeded random values of the shape that their config requires.
    """

    text: str | None = None
    ids: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    length: Annotated[int, Field(ge=1)] | Literal["past-window"] | None = None
    """Number of tokens; ``past-window`` is the model's sliding window plus eight."""
    batch: tuple[Prompt, ...] | None = None


class Recipe(Record):
    """How to build a tiny checkpoint: an architecture, its config, and a seed.

    It is built once, by ``stack`` or by the oldest stack that knows the architecture. Then every
    stack loads the same files.
    """

    architecture: str
    """The model_type in transformers, such as ``llama``."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the config class."""
    head: Literal["causal-lm", "masked-lm", "seq2seq-lm", "image-classification", "ctc", "base"] = (
        "causal-lm"
    )
    seed: int = 0
    stack: str | None = None
    gain: float = 1.0
    """Scale of the weight matrices, for architectures whose outputs vanish or explode at 1."""


class ModelSpec(Record):
    """One model of matrix.yaml: exactly one of hub, path and build, and its settings."""

    name: Name
    hub: str | None = None
    revision: str | None = None
    path: str | None = None
    """A folder with config.json, relative to matrix.yaml."""
    patch: tuple[str, ...] = ()
    """Unified diffs, relative to matrix.yaml, applied in order to a copy of the folder."""
    build: Recipe | None = None
    trust_remote_code: bool = False
    group: str | None = None
    """The heading under which the report lists the model."""
    dtypes: tuple[Dtype, ...]
    attention: tuple[str, ...]
    devices: tuple[str, ...]
    prompts: dict[str, Prompt]
    greedy: int
    """Number of tokens to generate; 0 for none."""
    invariants: bool = True
    """Whether to test the relations that must hold inside one cell."""
    insists: bool = False
    """True if the model's own entry asks for these relations: they are tested at any model size."""
    crossings: bool = True
    """Whether each stack saves the model and every stack loads what was saved."""
    usage: bool = True
    """Whether to try common uses: attention maps, packed rows, generate(), save_pretrained()."""
    samples: int = 0
    """Number of prompts over which each layer's cache error is averaged; 0 for none."""
    timeout: float
    """Seconds without progress after which a job is stopped."""
    budget: float = 600.0
    """Seconds of one run of a cell after which only observations that affect the verdict start."""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """All combinations of dtype, attention implementation and device."""
        return tuple(
            Variant(dtype=dtype, attention=attention, device=device)
            for device in self.devices
            for dtype in self.dtypes
            for attention in self.attention
        )


class Rule(Record):
    """A pattern of cells; an omitted field matches everything."""

    model: tuple[Pattern, ...] = ("*",)
    variant: tuple[Pattern, ...] = ("*",)
    stack: tuple[Pattern, ...] = ("*",)
    reason: str = ""


class Expected(Record):
    """A known difference: where it occurs, its reason, and a reference for it."""

    model: tuple[Pattern, ...]
    variant: tuple[Pattern, ...] = ("*",)
    stack: tuple[Pattern, ...]
    signal: tuple[Pattern, ...] = ("*",)
    """Signals that may differ; a difference in any other signal is not covered."""
    verdict: Literal["differs", "diverged", "unstable", "failed", "not observed"] = "differs"
    reason: str
    reference: str = ""
    """An issue, a pull request, or a source file of the release."""
    title: str = ""
    explanation: str = ""
    """A paragraph for the top of the report, under the title above."""
    line: int = 0
    """Line in matrix.yaml."""


class Matrix(Record):
    """The content of matrix.yaml with defaults applied."""

    path: str
    stacks: tuple[StackSpec, ...]
    """Oldest first."""
    reference: str
    """Id of the stack that the others are compared with."""
    exclude_newer: str | None = None
    """Packages uploaded after this time are ignored (RFC 3339 or a date)."""
    models: tuple[ModelSpec, ...]
    include: tuple[Rule, ...] = ()
    exclude: tuple[Rule, ...] = ()
    expected: tuple[Expected, ...] = ()

    def model(self, name: str) -> ModelSpec:
        """Return the model of that name."""
        return next(model for model in self.models if model.name == name)

    def stack(self, id: str) -> StackSpec:
        """Return the stack of that id."""
        return next(stack for stack in self.stacks if stack.id == id)
