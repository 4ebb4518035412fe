"""What matrix.yaml says, as frozen records; samebits/matrix/load.py reads the file into them.

The form of the file itself, short forms and all, is in samebits/matrix/form.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from samebits.records.ids import Variant
from samebits.records.record import Record

Version = Annotated[str, Field(pattern=r"^\d+(\.\d+)*(\.x)?$")]
"""A version or a family of versions: ``4.48.0`` is that one, ``4.48`` and ``5.x`` the newest fit."""

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
"""A name that is safe in a path, in a table and in a command."""

Dtype = Literal["float64", "float32", "float16", "bfloat16"]

Pattern = str
"""A name, or a shell pattern such as ``llama*``."""


class StackSpec(Record):
    """One pinned environment, before it is resolved."""

    id: Name
    """The name in cells and reports; the version asked for, unless given."""
    transformers: Version
    torch: Version
    python: Version
    packages: tuple[str, ...] = ()
    """More requirements for this stack alone, such as ``accelerate>=1``."""
    between: bool = False
    """Whether it is a release between two stacks of the file, which samebits/matrix/releases.py added."""


class Prompt(Record):
    """One input, or a batch of them padded on the left.

    ``text`` is used where the model has a tokenizer, else ``ids``, else ``length`` seeded ids.
    Models of images or sound get seeded values of the shape that their config asks for.
    """

    text: str | None = None
    ids: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    length: Annotated[int, Field(ge=1)] | Literal["past-window"] | None = None
    """Number of tokens; ``past-window`` is eight more than the model's sliding window."""
    batch: tuple[Prompt, ...] | None = None


class Recipe(Record):
    """How to make a tiny checkpoint: an architecture, its config, and a seed.

    Made once by ``stack``, or by the oldest stack that knows the architecture; then every
    stack loads the same files.
    """

    architecture: str
    """transformers' model_type, such as ``llama``."""
    config: dict[str, Any] = Field(default_factory=dict)
    """Keyword arguments of the config class."""
    head: Literal["causal-lm", "masked-lm", "seq2seq-lm", "image-classification", "ctc", "base"] = (
        "causal-lm"
    )
    seed: int = 0
    stack: str | None = None
    gain: float = 1.0
    """Scale of the matrices, for architectures that flatten or blow up the default."""


class ModelSpec(Record):
    """One model of matrix.yaml: exactly one of hub, path and build, and what to run it with."""

    name: Name
    hub: str | None = None
    revision: str | None = None
    path: str | None = None
    """A folder with config.json, relative to matrix.yaml."""
    patch: tuple[str, ...] = ()
    """Unified diffs, relative to matrix.yaml, that a copy of the folder is loaded with, in order."""
    build: Recipe | None = None
    trust_remote_code: bool = False
    group: str | None = None
    """A heading in the report."""
    dtypes: tuple[Dtype, ...]
    attention: tuple[str, ...]
    devices: tuple[str, ...]
    prompts: dict[str, Prompt]
    greedy: int
    """Number of tokens to generate; 0 for none."""
    invariants: bool = True
    """Whether to try the relations that must hold inside one cell."""
    insists: bool = False
    """True if the model's own entry asks for them, however large it is."""
    crossings: bool = True
    """Whether to save it in each stack and load that in every stack."""
    usage: bool = True
    """Whether to try what users do around it: attention maps, packed rows, generate(), a save."""
    samples: int = 0
    """Prompts over which each layer's cache error is averaged; 0 for none."""
    timeout: float
    """Seconds without progress after which a job is ended."""
    budget: float = 600.0
    """Seconds of a run of a cell beyond which nothing is begun that makes no verdict."""

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every dtype with every attention implementation on every device."""
        return tuple(
            Variant(dtype=dtype, attention=attention, device=device)
            for device in self.devices
            for dtype in self.dtypes
            for attention in self.attention
        )


class Rule(Record):
    """Cells by pattern; a field left out matches everything."""

    model: tuple[Pattern, ...] = ("*",)
    variant: tuple[Pattern, ...] = ("*",)
    stack: tuple[Pattern, ...] = ("*",)
    reason: str = ""


class Expected(Record):
    """A known difference: where it shows, why it is there, and who says so."""

    model: tuple[Pattern, ...]
    variant: tuple[Pattern, ...] = ("*",)
    stack: tuple[Pattern, ...]
    signal: tuple[Pattern, ...] = ("*",)
    """Signals that may differ; a difference in any other one is not covered."""
    verdict: Literal["differs", "diverged", "unstable", "failed", "not observed"] = "differs"
    reason: str
    reference: str = ""
    """An issue, a pull request, or a file of the release."""
    title: str = ""
    explanation: str = ""
    """A paragraph for the top of the report, under that title."""
    line: int = 0
    """Line in matrix.yaml."""


class Matrix(Record):
    """The whole of matrix.yaml, defaults applied."""

    path: str
    stacks: tuple[StackSpec, ...]
    """Oldest first."""
    reference: str
    """Id of the stack that the others are compared with."""
    exclude_newer: str | None = None
    """Packages uploaded after this moment do not exist (RFC 3339 or a date)."""
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
