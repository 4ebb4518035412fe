"""One cell trained by transformers' own Trainer, for four steps and for one.

probes/samebits_probe/questions/trainer/run.py writes :class:`TrainerFile` without these classes; this
module is its schema. The other records are what the report says of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from samebits.findings.case import Case
from samebits.questions.edits.records import Edit
from samebits.questions.training.records import (
    AlsoTrained,
    TrainingOutcome,
    TrainingRelations,
    TrainingStanding,
    tried_ways,
    tried_whole,
)
from samebits.records.capture import Failure
from samebits.records.kinds import CellKind
from samebits.records.question import Key, NoAnswer
from samebits.records.record import Record
from samebits.records.report import Row
from samebits.records.result import CellFile
from samebits.records.tensor import TensorRef
from samebits_wire import formats

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


class Held(Record):
    """A parameter of an optimizer, which keeps its moments by their place and not by a name."""

    name: str
    """Tensors of the checkpoint that it holds, joined by ``+``; its name in memory if it holds none."""
    shape: tuple[int, ...] = ()


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
    order: tuple[tuple[Held, ...], ...] = ()
    """The parameters of each group of the optimizer."""
    scheduler: str = ""
    """Its class, and the function that it calls."""
    weights: dict[str, TensorRef] = Field(default_factory=dict)
    """Tensor of the checkpoint -> its values behind the run, in the checkpoint's shape."""
    config: dict[str, tuple[str, str]] = Field(default_factory=dict)
    """Setting of the model's config that the run leaves changed -> its values before and behind the run."""


class Evaluated(Record):
    """What Trainer makes of the rows without training, by the weights of the checkpoint."""

    refused: str = ""
    """The exception, if it raised."""
    received: tuple[Received, ...] = ()
    """Forward by forward."""
    loss: float | None = None
    """As the metrics have it; None if it has none."""
    predictions: tuple[str, ...] = ()
    """Shape of each array that ``predict`` returns."""
    labels: tuple[str, ...] = ()


class Ended(Record):
    """How a training with ``load_best_model_at_end=True`` ends."""

    refused: str = ""
    """The exception, if it raised."""
    best: int = 0
    """The step with the best metric; the metrics are given, and not computed."""
    steps: tuple[int, ...] = ()
    """Steps whose weights the model ends with; () if it has those of none."""

    @property
    def other(self) -> int | None:
        """Return the step whose weights the model has in place of the best ones; None if it has those, or is not known."""
        return None if not self.steps or self.best in self.steps else self.steps[-1]


class TrainerFacts(Record):
    """All runs in one precision."""

    evaluation: Evaluated = Field(default_factory=Evaluated)
    runs: dict[TrainerRunName, TrainerRun]
    leaks: tuple[str, ...] = ()
    """Operations in float64 with less than float64 precision."""


class TrainerFile(CellFile):
    """One cell trained by Trainer."""

    format: Literal["samebits-trainer"] = "samebits-trainer"
    format_version: Literal[10] = formats.TRAINER
    reason: str = ""
    """Why Trainer did not run."""
    accelerate: str = ""
    """Version of accelerate; '' if it could not be used."""
    arguments: dict[str, str] = Field(default_factory=dict)
    """Argument of TrainingArguments -> its value where a user names only a folder."""
    uncertain: tuple[str, ...] = ()
    """Tensors of the checkpoint that hold the bytes of another one and were not matched by name."""
    own: TrainerFacts | None = None
    float64: TrainerFacts | None = None
    no_float64: str = ""
    """Why a run in float64 was asked for and failed."""
    relations: TrainingRelations | None = None
    """Whether accumulated rows teach what they teach as one batch, and whether a stop changes nothing."""
    lost: tuple[str, ...] = ()
    """Tensors of the checkpoint that a training resumed from Trainer's own checkpoint begins without."""
    ends: dict[str, Ended] = Field(default_factory=dict)
    """Value of ``save_strategy`` -> how a training ends that loads its best checkpoint."""
    placed: dict[str, Edit] = Field(default_factory=dict)
    """Call of from_pretrained by which accelerate places a model -> what comes of it."""
    seconds: float = 0.0


# --- the report ----------------------------------------------------------------------------------

TrainerSignal = Literal["evaluation loss", "losses", "norms", "weights"]
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
    "parameters of the optimizer",
    "order of parameters",
    "scheduler",
    "logged learning rates",
    "rounding of the log",
    "config of the model",
    "evaluation",
]
"""What Trainer does with a model's rows, its parameters and its log, beside all numbers of them."""


class TrainerChange(Record):
    """One thing that Trainer does otherwise than in the reference."""

    subject: TrainerSubject
    name: str = ""
    """An argument of TrainingArguments or of the optimizer, a setting of the config, or the run."""
    reference: str
    candidate: str
    is_cause: bool = False
    """Whether it can make Trainer compute other numbers, beyond rounding."""


class TrainerItem(Record):
    """One number or tensor of a run, compared on both sides."""

    signal: TrainerSignal
    run: TrainerRunName | None = None
    """None for the evaluation."""
    place: str = ""
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
    evaluation: TrainerItem | None = None
    """The loss of the evaluation; no part of the standing, as no training computes with it."""
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
    evaluation: float | None = None
    """Loss of the evaluation."""
    relations: TrainingRelations | None = None
    """Whether accumulated rows teach what they teach as one batch, and whether a stop changes nothing."""
    lost: tuple[str, ...] = ()
    """Tensors of the checkpoint that a training resumed from Trainer's own checkpoint begins without."""
    ends: dict[str, Ended] = Field(default_factory=dict)
    """Value of ``save_strategy`` -> how a training ends that loads its best checkpoint."""
    placed: dict[str, Edit] = Field(default_factory=dict)
    """Call of from_pretrained by which accelerate places a model -> what comes of it."""
    seconds: float = 0.0


class TrainerOfRow(AlsoTrained):
    """What Trainer does with the cells of a row."""

    stacks: dict[str, TrainerReport] = Field(default_factory=dict)
    """Stack -> what it does with its cell, for the cells that have a training step."""

    def tried_on(self, stack: str, name: str) -> Iterator[tuple[str, str]]:
        """Yield whether Trainer trained on a stack, and whether its relation could be tried."""
        report = self.stacks.get(stack)
        if report is not None:
            yield from tried_whole(name, report.failure, report.losses)
            yield from tried_ways(report.relations)
            for strategy, ended in report.ends.items():
                yield (
                    f"{name} {_BEST} load_best_model_at_end, save_strategy={strategy}",
                    ended.refused,
                )
            for call, edit in report.placed.items():
                for step, text in edit.raised.items():
                    yield f"{name} {', '.join(filter(None, (call, step)))}", text

    def facts(self) -> dict[str, Any]:
        """Return what findings may depend on."""
        return self.model_dump(mode="json", exclude={"stacks": {"__all__": {"seconds"}}})

    def standing_on(self, stack: str) -> TrainingStanding | None:
        """Return how Trainer's runs on a stack compare with the reference's."""
        report = self.stacks.get(stack)
        comparison = report.comparison if report is not None else None
        return comparison.standing if comparison is not None else None

    def ways_on(self, stack: str) -> TrainingRelations | None:
        """Return whether accumulated rows teach what they teach as one batch."""
        report = self.stacks.get(stack)
        return report.relations if report is not None else None


RUN = CellKind(
    "trainer.run",
    "trainers",
    "Trainer",
    record=TrainerFile,
    missing="wrote nothing of Trainer",
    limit=256 << 20,
)
_BEST = "best"
TRAINER = Key(
    "trainer", NoAnswer, TrainerOfRow, kinds=(RUN,), of_release=True, of_model=("", _BEST)
)
"""It has no switch of its own: who is asked for a training step is asked for Trainer, too."""


def runs_of(row: Row) -> Mapping[str, TrainerReport]:
    """Return what Trainer does with a row's cells, by stack."""
    answer = TRAINER.in_row(row.answers)
    return answer.stacks if answer is not None else {}


def report_in(case: Case) -> TrainerReport | None:
    """Return what Trainer does with a cell; None if that was not asked."""
    answer = TRAINER.in_row(case.answers)
    return answer.stacks.get(case.capture.cell.stack) if answer is not None else None


def comparison_in(case: Case) -> TrainerComparison | None:
    """Return how Trainer's run of a cell differs from the reference's; None if they were not compared."""
    report = report_in(case)
    return report.comparison if report is not None else None
