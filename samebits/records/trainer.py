"""One cell trained by transformers' own Trainer, for four steps and for one.

probes/samebits_probe/training/trainer.py writes :class:`TrainerFacts` without these classes; this
module is its schema. The other records are what the report says of it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.capture import Failure
from samebits.records.judgement import TrainingOutcome, TrainingStanding
from samebits.records.record import Record
from samebits.records.tensor import TensorRef

TrainerRunName = Literal["row by row", "accumulated", "one batch"]
"""Four rows one by one, four steps; in four micro-batches of one step; as one batch of one step."""


class Received(Record):
    """What one forward of the model received from Trainer."""

    names: tuple[str, ...]
    """Arguments, without num_items_in_batch."""
    rows: tuple[int | None, ...]
    """Rows of the dataset, in the order of the batch; None: it is none of them, by its content."""
    labels: tuple[str, ...] = ()
    """For each row, the positions of the labels that count, such as ``0-6``; () without positions."""
    counts: tuple[int, ...] = ()
    """For each row, how many labels count."""
    items: float | None = None
    """num_items_in_batch; None if it was not passed."""


class TrainerRun(Record):
    """What one run of Trainer built and did."""

    received: tuple[Received, ...]
    """Forward by forward."""
    losses: tuple[float, ...]
    """What each micro-batch contributed."""
    norms: tuple[float, ...]
    """Global norm of the gradients before clipping, step by step, as Trainer logs it."""
    rates: tuple[tuple[float, ...], ...]
    """Learning rate of each group of parameters, as each update used it."""
    logged_losses: tuple[float, ...] = ()
    logged_rates: tuple[float, ...] = ()
    """As Trainer logs them, step by step."""
    optimizer: str = ""
    """Its class."""
    optimizer_arguments: dict[str, str] = Field(default_factory=dict)
    decayed: tuple[str, ...] = ()
    """Tensors of the checkpoint in the group to which a weight decay applies, or would apply."""
    scheduler: str = ""
    """Its class, and the function that it calls."""
    weights: dict[str, TensorRef] = Field(default_factory=dict)
    """Tensor of the checkpoint -> its values behind the run, in the checkpoint's shape."""


class TrainerFacts(Record):
    """All runs in one precision."""

    runs: dict[TrainerRunName, TrainerRun]
    leaks: tuple[str, ...] = ()
    """Operations in float64 with less than float64 precision."""


# --- the report ----------------------------------------------------------------------------------

TrainerSignal = Literal["losses", "norms", "weights"]
"""In the order of data flow."""
TrainerSubject = Literal[
    "argument",
    "order of rows",
    "rows received",
    "labels received",
    "num_items_in_batch",
    "learning rates",
    "optimizer",
    "weight decay",
    "scheduler",
    "logged learning rates",
    "rounding of the log",
]
"""What Trainer does with a model's rows, its parameters and its log, beside all numbers of them."""


class TrainerChange(Record):
    """One thing that Trainer does otherwise than in the reference."""

    subject: TrainerSubject
    name: str = ""
    """An argument of TrainingArguments or of the optimizer, or the run."""
    reference: str
    candidate: str
    is_cause: bool = False
    """Whether it can make Trainer compute other numbers, beyond rounding."""


class TrainerItem(Record):
    """One number or tensor of a run, compared on both sides."""

    signal: TrainerSignal
    run: TrainerRunName
    place: str
    """``step 2``, or a tensor of the checkpoint."""
    outcome: TrainingOutcome
    reference: float | None = None
    candidate: float | None = None
    own: float | None = None
    """Largest absolute difference in the variant's dtype."""
    float64: float | None = None
    note: str = ""


class TrainerComparison(Record):
    """The runs of a cell, compared with those of its reference."""

    reference: str
    """The reference's stack."""
    standing: TrainingStanding
    first: TrainerItem | None = None
    items: tuple[TrainerItem, ...] = ()
    """Items that are not identical, the worst of each signal first; at most a few of each."""
    counts: dict[TrainingOutcome, int] = Field(default_factory=dict)
    changes: tuple[TrainerChange, ...] = ()
    reason: str = ""


class TrainerReport(Record):
    """One cell trained by Trainer, as the report has it."""

    reason: str = ""
    """Why Trainer did not run."""
    failure: Failure | None = None
    accelerate: str = ""
    losses: tuple[float, ...] = ()
    """Of the four steps row by row."""
    norms: tuple[float, ...] = ()
    rates: tuple[float, ...] = ()
    """Of the first group of parameters."""
    rows: tuple[int | None, ...] = ()
    """Rows of the dataset in the order in which the model received them."""
    items: tuple[float | None, ...] = ()
    """num_items_in_batch of each step."""
    built: dict[str, str] = Field(default_factory=dict)
    """optimizer and scheduler."""
    arguments: dict[str, str] = Field(default_factory=dict)
    """The arguments of TrainingArguments that shape a training."""
    comparison: TrainerComparison | None = None
    """None: the reference itself, or a cell without one."""
    seconds: float = 0.0
