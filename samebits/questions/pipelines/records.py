"""What pipelines answer in one stack, and two stacks compared.

probes/samebits_probe/questions/pipelines/ writes :class:`PipelinesSignal` without this class; it is the
schema.
"""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field

from samebits.records.question import Answer, Key
from samebits.records.record import Record

PipelineOutcome = Literal[
    "other answer", "other input", "raised", "removed", "undecided", "follows", "rounding"
]
"""How a call differs on two sides.

other answer: another answer from the same outputs of the model. other input: the model is fed something
else. raised: only one side raises. removed: the candidate does not have the task. undecided: the numbers
differ, and float64 does not show why. follows: the answer differs as the model's outputs do, which other
signals judge. rounding: float64 removes the difference.
"""


class AnswerField(Record):
    """One field of an answer, such as a text, a label, a score, the length of a list."""

    exact: str
    """What must be equal: the value as JSON, or the form and the hash of what is no number."""
    numbers: tuple[str, ...] = ()
    """A score in hexadecimal, or projections of an array: they may round."""

    @property
    def values(self) -> tuple[float, ...]:
        """The numbers."""
        return tuple(map(float.fromhex, self.numbers))


class PipelineAnswer(Record):
    """What one call returned, or raised."""

    fields: dict[str, AnswerField] = Field(default_factory=dict)
    """Place -> field, such as ``[0].label``."""
    raised: str = ""
    at: str = ""
    """File and line of transformers."""
    left_out: str = ""


class FedInput(Record):
    """A tensor that the model was fed in its first forward; masks that hide nothing are left out."""

    dtype: str
    shape: tuple[int, ...]
    hash: str


class OneByOne(Record):
    """The inputs of a batch, one by one."""

    own: PipelineAnswer
    """As users call it."""
    padding: Literal["", "left", "right"] = ""
    """Where the batch is padded."""
    distance: float | None = None
    """How far the logits of the next token are from those of the batch; None if there are none."""
    in_float64: float | None = None
    """The same with the model in float64, if they differ."""


class PipelineCase(Record):
    """One call of a pipeline."""

    own: PipelineAnswer | None = None
    """As users call it."""
    fed: dict[str, FedInput] | None = None
    given: PipelineAnswer | None = None
    """With outputs of the model that are the same in every release."""
    exact: PipelineAnswer | None = None
    """With the same outputs in float64."""
    one_by_one: OneByOne | None = None
    """Of a call with several inputs."""
    left_out: str = ""
    """Why it was not called."""

    def trimmed(self) -> PipelineCase:
        """Return whether it answers."""
        own = self.own and PipelineAnswer(raised=self.own.raised)
        return PipelineCase(own=own, left_out=self.left_out)


class PipelineTask(Record):
    """One task that the model's class serves."""

    dtype: str = ""
    """The dtype in which the pipeline loads the model by default."""
    cases: dict[str, PipelineCase] = Field(default_factory=dict)
    absent: str = ""
    """What the release says where it does not have the task."""
    left_out: str = ""
    """Why it was not asked: the checkpoint has no tokenizer, no processor …"""
    raised: str = ""
    """The exception with which the pipeline does not load."""
    at: str = ""

    @property
    def in_words(self) -> str:
        """What became of it, in a few words."""
        if self.absent or self.left_out:
            return "not in this release" if self.absent else f"not asked: {self.left_out}"
        if self.raised:
            return f"raises {self.raised.partition(':')[0]}"
        own = [case.own for case in self.cases.values() if case.own is not None]
        raising = [answer.raised.partition(":")[0] for answer in own if answer.raised]
        if raising and len(raising) == len(own):
            return f"each call raises {', '.join(dict.fromkeys(raising))}"
        return f"answers; {len(raising)} of {len(own)} calls raise" if raising else "answers"

    def trimmed(self) -> Self:
        """Return it without the answers, but with what raises."""
        return self.model_copy(update={"cases": {n: c.trimmed() for n, c in self.cases.items()}})


class PipelinesSignal(Answer):
    """What pipelines answer; it does not affect the verdict."""

    tasks: dict[str, PipelineTask] = Field(default_factory=dict)

    def trimmed(self) -> Self:
        """Return the tasks without their answers."""
        tasks = {name: task.trimmed() for name, task in self.tasks.items()}
        return self.model_copy(update={"tasks": tasks})


class PipelineDifference(Record):
    """One call that differs on two sides."""

    task: str
    case: str
    outcome: PipelineOutcome
    field: str = ""
    """The first field of the answer, or the input of the model, that differs."""
    reference: str
    candidate: str
    at: str = ""
    """File and line of transformers that raise."""
    raises_here: bool = False
    """True if the candidate raises and the reference does not."""


class PipelinesReport(Record):
    """The pipelines of one stack, compared with another's."""

    reference: str
    """The stack that it is compared with."""
    n_compared: int = 0
    """Calls that answer on both sides."""
    differences: tuple[PipelineDifference, ...] = ()


class PipelinesOfRow(Answer):
    """The pipelines of a row's cells."""

    stacks: dict[str, PipelinesSignal] = Field(default_factory=dict)
    """Stack -> its tasks, without their calls."""
    compared: dict[str, PipelinesReport] = Field(default_factory=dict)
    """Stack -> what differs from the reference, or from the oldest one; not for that stack itself."""


PIPELINES = Key(
    "pipelines",
    PipelinesSignal,
    PipelinesOfRow,
    switch="Whether to call pipeline() for each task of the model's class.",
    hint="does pipeline() answer the same for each task",
    sees_images=True,
)
