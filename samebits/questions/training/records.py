"""One training step of a cell: loss, gradients, update, and relations between ways to train.

probes/samebits_probe/questions/training/step.py writes :class:`TrainingFile` without these classes; this
module is its schema. The other records are what the report says of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from samebits.findings.case import Case
from samebits.questions.training.step_graft import StepDonor, StepGraft, StepGraftFile
from samebits.questions.training.step_trace import StepOrigin, StepTrace
from samebits.records.capture import Failure
from samebits.records.distance import Distance
from samebits.records.judgement import Judgement
from samebits.records.kinds import CellKind
from samebits.records.made import MadeModel
from samebits.records.question import Answer, Key, NoAnswer
from samebits.records.record import Record
from samebits.records.report import Row
from samebits.records.result import CellFile
from samebits.records.tensor import TensorRef
from samebits_wire import formats

TrainingRelationName = Literal[
    "train() without dropout = eval()",
    "logprobs of training = logprobs of decoding",
    "gradient checkpointing = without",
    "gradient checkpointing, reentrant = without",
    "gradient checkpointing, reentrant, only layers learn = without",
    "gradient checkpointing, reentrant, only layers learn = without, with images",
    "gradient checkpointing, only projections learn = without",
    "gradient checkpointing with dropout = without",
    "rows accumulated = one batch",
    "packed = padded",
    "packed = padded, with images",
    "ids of padding have no effect",
    "decoder ids by collators = by forward",
    "frozen layers leave other gradients",
    "only projections learn = all learn",
    "router loss by config = by argument",
    "eager backward = sdpa backward",
    "Trainer: rows accumulated = one batch",
    "Trainer with label smoothing: rows accumulated = one batch",
    "Trainer: rows accumulated, and a rest = batches, and a rest",
    "Trainer: stopped and resumed = without a stop",
]
"""The names of the relations between two ways to train."""


class BatchFacts(Record):
    """What a training forward computed for one batch."""

    loss: float | None = None
    """None: the model refused the batch."""
    others: dict[str, float] = Field(default_factory=dict)
    """Further scalars of the output, such as aux_loss."""
    logits: TensorRef | None = None
    formula: str = ""
    """Name of the usual formula that gives this loss from these logits and labels; '' if none or
    several do, or if none was tried."""
    refused: str = ""
    """The exception of the forward; '' if there was none."""
    norm: float | None = None
    """Global norm of its gradients, of a batch with a router's loss or with dropout; None: it has no backward."""


class StepFacts(Record):
    """What one training step computed, in one precision."""

    batches: dict[str, BatchFacts]
    """The first of them has the gradients and the update."""
    gradients: dict[str, TensorRef]
    """Tensor of the checkpoint -> its gradient in the checkpoint's shape; a parameter that is not
    of the checkpoint has its name in memory."""
    carriers: dict[str, int] = Field(default_factory=dict)
    """Tensor of the checkpoint -> the parameters that hold it, where it is more than one: they are
    updated each for itself, as after a lost tie. Their gradients are added."""
    without: tuple[str, ...] = ()
    """Tensors that get no gradient."""
    frozen: tuple[str, ...] = ()
    """Those of them whose parameters have requires_grad = False."""
    norm: float
    """Global norm of the gradients."""
    behind: float
    """Loss of the first batch behind one step of AdamW."""
    leaks: tuple[str, ...] = ()
    """Operations on the float64 rung with less than float64 precision."""


class TrainingRelation(Record):
    """One relation between two ways to train."""

    relation: TrainingRelationName
    holds: bool
    """True if all bytes that must agree do."""
    broken: bool
    """True if the difference is there in float64, too: the two ways are different functions."""
    what: str = ""
    """The tensor that shrinks least in float64: ``loss``, ``logits`` or a parameter; '' if the
    relation holds."""
    distance: Distance | None = None
    promoted: Distance | None = None
    """The distance of that tensor in float64; None if there is none."""
    missing: tuple[str, ...] = ()
    """What only one of the two ways computes: parameters without a gradient in the other one."""
    n: int = 0
    """Number of tensors compared."""
    n_differ: int = 0


class Untried(Record):
    """A relation that was not tried, and the reason."""

    relation: TrainingRelationName
    reason: str
    raised: bool = False
    """True if the reason is an exception."""


class TrainingRelations(Record):
    """All relations between ways to train in one cell."""

    relations: tuple[TrainingRelation, ...] = ()
    inapplicable: tuple[Untried, ...] = ()
    no_float64: str = ""
    """Why there are no distances in float64; '' if there are."""


class TrainingFile(CellFile):
    """One training step of one cell."""

    format: Literal["samebits-training"] = "samebits-training"
    format_version: Literal[14] = formats.TRAINING
    reason: str = ""
    """Why the model was not trained: it has no loss, draws numbers, or is too large."""
    asked_of: MadeModel | None = None
    """The made model that was trained in place of a large one; None: the model itself was."""
    weights: str = ""
    """Digest of the checkpoint's tensors by name; '' if the files of the checkpoint are not read."""
    uncertain: tuple[str, ...] = ()
    """Tensors of the checkpoint that hold the bytes of another one and were not matched by name."""
    own: StepFacts | None = None
    float64: StepFacts | None = None
    no_float64: str = ""
    """Why a step in float64 was asked for and failed."""
    linear: tuple[str, ...] = ()
    """Tensors of the checkpoint in weights of linear layers."""
    takes_items: bool | None = None
    """Whether Trainer passes num_items_in_batch to forward; None if it counts no labels."""
    relations: TrainingRelations | None = None
    seconds: float = 0.0


# --- the report ----------------------------------------------------------------------------------

TrainingOutcome = Literal["identical", Judgement, "not compared"]
TrainingStanding = Literal["identical", Judgement, "follows", "failed", "not compared"]
"""Of a step, or of what Trainer does. follows: what it is computed from differs already: of a step
the forward, of Trainer the step. failed: the model is trained in the reference and raises here."""
TrainingSignal = Literal[
    "logits", "loss", "other losses", "gradients", "norm", "loss behind an update"
]
"""In the order of data flow."""


class TrainingItem(Record):
    """One number or tensor of a training step, compared on both sides."""

    signal: TrainingSignal
    batch: str = ""
    tensor: str = ""
    outcome: TrainingOutcome
    reference: float | None = None
    """A number's value in the reference."""
    candidate: float | None = None
    own: float | None = None
    """Largest absolute difference in the variant's dtype."""
    float64: float | None = None
    formulas: tuple[str, ...] = ()
    """The formula of the loss in the reference and in the candidate, where both are known and
    differ."""
    frozen_in: str = ""
    """The stack in which the tensor gets no gradient because its requires_grad is False."""
    note: str = ""


class TrainingComparison(Record):
    """The training step of a cell, compared with that of its reference."""

    reference: str
    """The reference's stack."""
    standing: TrainingStanding
    first: TrainingItem | None = None
    """The first item in the order of data flow that decides the standing."""
    items: tuple[TrainingItem, ...] = ()
    """Items that are not identical, the worst of each signal first; at most a few of each."""
    counts: dict[TrainingOutcome, int] = Field(default_factory=dict)
    """Outcome -> number of items."""
    reason: str = ""
    takes_items: tuple[bool, bool] | None = None
    """Whether Trainer passes num_items_in_batch to the reference and to the candidate, where they
    differ: accumulation then takes another mean."""
    linear_in: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Stack -> the tensors that are of a linear layer in it alone."""
    origin: StepOrigin | None = None
    """The first operation that differs, of a step that diverged by itself."""
    no_origin: str = ""
    """Why a trace of both steps shows none; '' if it does, or none was made."""
    graft: StepGraft | None = None
    """Which pieces of the reference's loss restore its step, where a loss diverged by itself."""
    no_graft: str = ""
    """Why none was tried; '' if some were, or it was not asked."""


class TrainingReport(Record):
    """The training step of one cell, as the report has it."""

    losses: dict[str, float] = Field(default_factory=dict)
    """Batch -> loss."""
    others: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Batch -> further scalars of its output."""
    formulas: dict[str, str] = Field(default_factory=dict)
    """Batch -> the formula of its loss, where it is known."""
    refused: dict[str, str] = Field(default_factory=dict)
    """Batch -> the exception of its forward."""
    n_gradients: int = 0
    without: tuple[str, ...] = ()
    carriers: dict[str, int] = Field(default_factory=dict)
    norm: float | None = None
    behind: float | None = None
    reason: str = ""
    """Why the model was not trained."""
    failure: Failure | None = None
    asked_of: MadeModel | None = None
    relations: TrainingRelations | None = None
    comparison: TrainingComparison | None = None
    """None: the reference itself, or a cell without one."""
    seconds: float = 0.0

    def tried(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield what was tried, with its exception, '' where it answered."""
        yield from tried_whole(name, self.failure, self.losses)
        yield from ((f"{name} batch {batch}", "") for batch in self.losses)
        yield from ((f"{name} batch {batch}", text) for batch, text in self.refused.items())
        yield from tried_ways(self.relations)


def tried_whole(
    name: str, failure: Failure | None, losses: Collection[object]
) -> Iterator[tuple[str, str]]:
    """Yield whether a training as a whole raised or answered; nothing if it was not tried."""
    if failure is not None:
        yield name, failure.in_words
    elif losses:
        yield name, ""


def tried_ways(ways: TrainingRelations | None) -> Iterator[tuple[str, str]]:
    """Yield the relations between ways to train that were tried, with their exceptions."""
    if ways is None:
        return
    yield from ((f"{TRAINING.name} relations {entry.relation}", "") for entry in ways.relations)
    for entry in ways.inapplicable:
        if entry.raised:
            yield f"{TRAINING.name} relations {entry.relation}", entry.reason


class TrainingOfRow(Answer):
    """The training steps of the cells of a row."""

    stacks: dict[str, TrainingReport] = Field(default_factory=dict)
    """Stack -> the step of its cell, for the cells that were trained."""

    def tried_on(self, stack: str, name: str) -> Iterator[tuple[str, str]]:
        """Yield what the step of a stack tried."""
        if stack in self.stacks:
            yield from self.stacks[stack].tried(name)

    def facts(self) -> dict[str, Any]:
        """Return what findings may depend on."""
        return self.model_dump(mode="json", exclude={"stacks": {"__all__": {"seconds"}}})


class AlsoTrained(Answer):
    """The answer of another question, which trains cells in its own way.

    The tables of the training steps have it in their lines.
    """

    def standing_on(self, stack: str) -> TrainingStanding | None:
        """Return how the cell of a stack compares with the reference; None if it is not compared."""
        raise NotImplementedError

    def ways_on(self, stack: str) -> TrainingRelations | None:
        """Return relations between further ways to train; None if none was tried."""
        raise NotImplementedError


STEP = CellKind(
    "training.step",
    "trainings",
    "training",
    record=TrainingFile,
    missing="wrote no training step",
    limit=256 << 20,
)
TRACE = CellKind(
    "training.trace",
    "step-traces",
    "training",
    record=StepTrace,
    missing="left no trace",
    of_several=True,
)
DONOR = CellKind(
    "training.graft",
    "step-grafts",
    "training",
    record=StepDonor,
    missing="wrote no result of a swap",
    limit=64 << 20,
    of_several=True,
)
PATIENT = CellKind(
    "training.graft",
    "step-grafts",
    "training",
    record=StepGraftFile,
    missing="wrote no result of a swap",
)
TRAINING = Key(
    "training",
    NoAnswer,
    TrainingOfRow,
    switch=(
        "Whether to train the model for one step: loss, gradients, update, and relations between ways to "
        "train. Models above 64 MiB: a tiny model of the same config."
    ),
    hint="does a training step give the same loss and gradients",
    kinds=(STEP, TRACE, DONOR, PATIENT),
)


def steps_of(row: Row) -> Mapping[str, TrainingReport]:
    """Return the training steps of a row's cells, by stack."""
    answer = TRAINING.in_row(row.answers)
    return answer.stacks if answer is not None else {}


def step_in(case: Case) -> TrainingReport | None:
    """Return the training step of a cell; None if it was not trained."""
    answer = TRAINING.in_row(case.answers)
    return answer.stacks.get(case.capture.cell.stack) if answer is not None else None
