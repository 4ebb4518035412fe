"""A model's processors of images, videos and sounds in one stack, and two stacks compared.

probes/samebits_probe/questions/processors/ writes :class:`ProcessorsSignal` without this class; it is the
schema.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field

from samebits.records.question import Answer, Key
from samebits.records.record import Record

Role = Literal["", "after", "counts", "on demand", "options"]
"""after: it turns outputs of a model into boxes, masks and texts. counts: it tells numbers of tokens and patches
of sizes alone. on demand: an image processor with the backend that the release does not choose by itself. options: it
is given options."""
ASIDE: tuple[Role, ...] = ("after", "counts")
"""Roles of the same object beside its main one, which has its class and settings."""

ProcessorOutcome = Literal[
    "identical", "rounding", "other function", "undecided", "other form", "raised", "no effect"
]
"""The result of one output on two sides.

rounding: in float64 both sides give the same numbers. other function: they do not. undecided: no
run in float64 shows which of the two. other form: another key, shape or dtype. raised: only one
side raises. no effect: one side returns what it returns without the option.
"""


class ArrayFacts(Record):
    """One array, or several of one output, without the values."""

    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    """One shape for each array; several where they have different shapes."""
    hash: str
    """Hash of dtype, shapes and values."""
    n: int | None = None
    """Number of values; None for values that are no numbers."""
    n_special: int = 0
    """Number of NaN and infinite values, which count as 0 below."""
    projections: tuple[float, ...] = ()
    """Sums of all values, each times fixed random numbers of -1..1."""
    sample: tuple[float, ...] = ()
    """Values at equal distances, to show."""
    text: str = ""
    """The begin of the texts, as JSON, for an output that is text; its shape is their number."""


class ProcessorStep(Record):
    """One call of a step, such as resize."""

    name: str
    settings: str
    """Its arguments that are numbers and texts, as JSON."""
    input: str = ""
    """Hash of the first image or sound that it took, channels last."""
    output: ArrayFacts | None = None
    """The first image or sound that it returned, channels last."""


class ProcessorCase(Record):
    """What one input became: ``outputs``, ``raised`` or ``left_out``."""

    outputs: dict[str, ArrayFacts] | None = None
    """Key -> array."""
    steps: tuple[ProcessorStep, ...] = ()
    """The first steps, in the order of their calls."""
    promoted: dict[str, ArrayFacts] | None = None
    """The outputs of the same code in float64, where images are resized in float64, too."""
    promoted_steps: tuple[ProcessorStep, ...] = ()
    not_promoted: str = ""
    """Why nothing can be concluded from the run in float64."""
    raised: str = ""
    """Type of the exception."""
    message: str = ""
    """First line of its message."""
    left_out: str = ""
    """Why it was not called."""
    without: str = ""
    """The case of the same call without the option that this one has; '' if it has none."""
    is_loaded: bool = False
    """True if from_pretrained or the object got the option, and not the call."""
    like: str = ""
    """The case whose call got what from_pretrained or the object got here; ``without`` itself where another object got
    it, which must have no effect here."""
    counted: str = ""
    """The case of the method that tells how many tokens this call writes; '' if it counts none."""


class ProcessorPart(Record):
    """An object that an Auto class returns for the checkpoint."""

    role: Role = ""
    class_name: str = ""
    backend: str = ""
    """``pil`` or ``torchvision`` for images, else ``python``."""
    settings: dict[str, str] = Field(default_factory=dict)
    """Setting -> JSON, as the object has it: from the checkpoint, else the class's default."""
    cases: dict[str, ProcessorCase] = Field(default_factory=dict)
    absent: str = ""
    """Why this stack cannot have it: no such Auto class, or a package that is missing."""
    raised: str = ""
    """Type of the exception of its load."""
    message: str = ""


class ProcessorsSignal(Answer):
    """A model's processors; they do not affect the verdict."""

    parts: dict[str, ProcessorPart]
    """``image processor``, ``feature extractor``, ``video processor`` or ``processor`` -> facts;
    besides ``image processor, after the model``, ``image processor, counts``, ``image processor, torchvision on
    demand`` and ``image processor, with options``."""

    def trimmed(self) -> Self:
        """Return the processors without what they make of each input."""
        parts = {name: part.model_copy(update={"cases": {}}) for name, part in self.parts.items()}
        return self.model_copy(update={"parts": parts})


class ProcessorDifference(Record):
    """One output of one case on two sides."""

    part: str
    case: str
    output: str
    """Key of the output; '' if a side raised."""
    outcome: ProcessorOutcome
    raises_here: bool = False
    """True if the candidate raises and the reference does not."""
    step: str = ""
    """The first step that differs, if the steps show it."""
    size: float | None = None
    """Root mean square of the difference, estimated by projections."""
    promoted_size: float | None = None
    """The same in float64."""
    reference: str
    """What the reference has, as a short text."""
    candidate: str
    reason: str = ""
    """Why it is undecided."""


class PartComparison(Record):
    """One processor on two sides."""

    part: str
    role: Role = ""
    fields: tuple[tuple[str, str, str], ...] = ()
    """Class or backend that differs: name, of the reference, of the candidate."""
    settings: tuple[tuple[str, str, str], ...] = ()
    """Setting that differs: name, of the reference, of the candidate."""
    load: tuple[str, str] | None = None
    """What the loads gave, if only one of them gave an object."""
    n_compared: int = 0
    """Cases that both sides ran, and in which one of them did not raise."""
    n_both_raise: int = 0
    """Cases in which both sides raise, so that there is nothing to compare."""
    differences: tuple[ProcessorDifference, ...] = ()

    @property
    def is_aside(self) -> bool:
        """True if it is another use of an object that has a part of its own."""
        return self.role in ASIDE

    @property
    def is_on_demand(self) -> bool:
        """True if it has a backend that the release does not choose by itself."""
        return self.role == "on demand"


class ProcessorsReport(Record):
    """The processors of one stack, compared with another's."""

    reference: str
    """The stack that it is compared with."""
    parts: tuple[PartComparison, ...]


class ProcessorsOfRow(Answer):
    """The processors of a row's cells."""

    stacks: dict[str, ProcessorsSignal]
    """Stack -> classes, backends and settings of the model's processors, without their cases."""
    compared: dict[str, ProcessorsReport]
    """Stack -> what its processors make of seeded inputs, compared with the reference's, or with the
    oldest one's; not for that stack itself."""


PROCESSORS = Key("processors", ProcessorsSignal, ProcessorsOfRow, sees_images=True)
