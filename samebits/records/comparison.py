"""Results of comparing one cell with its reference cell."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from samebits.records.capsule import Capsule
from samebits.records.capture import Failure, Skip, Unfinished
from samebits.records.finding import Explanation, Finding, Step
from samebits.records.graft import Graft
from samebits.records.ids import CellId, Signal, Verdict
from samebits.records.ladder import Ladder, LadderStep
from samebits.records.record import Record
from samebits.records.subject import Reason, Subject, with_name
from samebits.records.tensor import TensorRef
from samebits.records.trace import Cause

Outcome = Literal["identical", "differs", "only here", "only in reference", "not compared"]


class Extreme(Record):
    """One element with a large difference between two tensors."""

    index: tuple[int, ...]
    reference: float
    candidate: float
    token: str | None = None
    """The token id, and its text if known, where the last axis is the vocabulary."""


class LikelyToken(Record):
    """One of the most likely tokens at a position."""

    id: int
    logit: float
    text: str | None = None
    """None if the capture does not have it."""


class Choices(Record):
    """The most likely tokens of both sides at the position where the logits decide most differently.

    It is the first position whose argmax changes, else the one with the largest KL divergence.
    """

    index: tuple[int, ...]
    """Index of the position in the logits without the vocabulary axis, such as batch and position."""
    reference: tuple[LikelyToken, ...]
    """Five at most, the most likely first."""
    candidate: tuple[LikelyToken, ...]


class Metrics(Record):
    """How two tensors of equal shape differ, over the rows that are not padding.

    Distances are computed over the elements that are finite on both sides. NaN and infinities are
    counted separately and never averaged.
    """

    n: int
    """Elements compared."""
    n_differ: int
    """Elements whose bytes differ."""
    max_abs: float
    mean_abs: float
    """Mean over all finite elements, equal ones included."""
    max_rel: float
    """Largest |difference| / |reference|, where the reference is not zero."""
    max_ulp: int | None
    """Largest distance in ULP of the coarser dtype; None if a dtype is not floating point."""
    cosine: float | None
    """Cosine similarity; None where one side is all zero or not finite."""
    n_nan: tuple[int, int] = (0, 0)
    """Number of NaNs in reference and in candidate."""
    n_inf: tuple[int, int] = (0, 0)
    """Number of infinities in reference and in candidate."""
    first_index: tuple[int, ...] | None = None
    """Index of the first element whose bytes differ, in row-major order."""
    top: tuple[Extreme, ...] = ()
    """The five largest absolute differences, largest first."""
    n_argmax: int | None = None
    """Logits only: number of positions whose argmax changed."""
    n_positions: int | None = None
    """Logits only: number of positions compared."""
    kl_max: float | None = None
    """Logits only: largest KL(reference || candidate) over positions, in nats."""
    kl_mean: float | None = None
    """Logits only: mean of that divergence over positions, in nats."""
    choices: Choices | None = None
    """Logits only."""
    by_position: tuple[float, ...] = ()
    """Outputs [batch, positions, width] of a forward only: the largest absolute difference at each
    position over all rows of the batch, in three significant digits. () for long prompts."""


class ItemComparison(Record):
    """One named tensor or fact of a signal, in reference and candidate."""

    subject: Subject
    name: str = ""
    """The subject in words, made from it."""
    outcome: Outcome
    reference: TensorRef | None = None
    candidate: TensorRef | None = None
    metrics: Metrics | None = None
    """None if the bytes are equal, or if the values are not available, with the reason in
    :attr:`note`."""
    pad_rows: Literal["none", "identical", "differ"] = "none"
    """Comparison of the padding rows, which do not affect the verdict."""
    pad_metrics: Metrics | None = None
    note: str = ""
    reason: Reason | None = None
    """The kind of reason in :attr:`note`, if a rule depends on it."""
    excused: bool = False
    """True if it does not affect the verdict, with the reason in :attr:`note`."""

    _with_name = model_validator(mode="before")(with_name)


class SignalComparison(Record):
    """One signal in reference and candidate."""

    signal: Signal
    outcome: Outcome
    n_items: int
    """Number of tensors or facts that were compared."""
    n_differ: int
    items: tuple[ItemComparison, ...] = ()
    """The items to show: all that differ, and all layers of hidden_states."""
    note: str = ""
    reason: Reason | None = None
    """The kind of reason in :attr:`note`, if a rule depends on it."""
    excused: bool = False
    """True if it is not compared for a recorded reason; without a reason the cell fails."""


class FactChange(Record):
    """A fact that differs between the sides, such as a config value or a kernel argument."""

    what: str
    prompt: str = ""
    """The prompt of an attention call; '' for a fact that concerns no prompt."""
    module: str | None = None
    """The module of an attention call, with ``*`` for each number; None for any other fact."""
    reference: Any
    candidate: Any


class Difference(Record):
    """One difference between two cells: the first one in the order of data flow, or the one that decides."""

    signal: Signal
    item: str
    what: str
    """One line in plain words."""


class TokenSplit(Record):
    """The first greedy step at which two cells choose different tokens."""

    prompt: str
    step: int
    reference: tuple[tuple[int, float], tuple[int, float]] | None
    """The ids and values of the two largest logits; None if they were not recorded."""
    candidate: tuple[tuple[int, float], tuple[int, float]] | None


class CellResult(Record):
    """The result of one cell."""

    cell: CellId
    reference: CellId | None
    """The cell that it was compared with; None if there was none."""
    verdict: Verdict
    judged: Verdict
    """The verdict before matrix.yaml's ``expected`` was applied."""
    rest: Verdict | None = None
    """The verdict on the part that was compared, if a phase failed, the run did not finish, or no
    forward was observed; None in other cells."""
    unfinished: Unfinished | None = None
    """How far the run came, if it did not finish."""
    open_reason: str = ""
    """Why a cell is `not finished`; '' if it is finished."""
    figure: str
    """The one number for the summary table, such as ``logits 7.9e-07``; '' if there is none."""
    headline: str
    """One line in plain words."""
    signals: tuple[SignalComparison, ...] = ()
    informing: tuple[SignalComparison, ...] = ()
    """Probes of the user's that only inform; those that count are among the signals."""
    informing_steps: tuple[LadderStep, ...] = ()
    """Their tensors on the precision ladder."""
    changes: dict[str, tuple[FactChange, ...]] = Field(default_factory=dict)
    """Kind -> explanatory facts that changed; the kinds are ``config``, ``load``, ``tokenizer``,
    ``attention.kernel``, ``weights layout``."""
    first: Difference | None = None
    """The first difference in the order of data flow."""
    deciding: Difference | None = None
    """The difference that decides the verdict, if it is not :attr:`first`, which then only rounds."""
    splits: tuple[TokenSplit, ...] = ()
    ladder: Ladder | None = None
    """Result of the precision ladder for a cell that differs; None: the float64 check was not run."""
    cause: Cause | None = None
    """The first difference from the reference in the traces of both cells; None: none was found."""
    graft: Graft | None = None
    """The parts of the reference that restore its bytes in this cell; None: nothing was swapped."""
    failure: Failure | None = None
    failures: tuple[Failure, ...] = ()
    """The exceptions that count, :attr:`failure` among them, without their tracebacks; of a cell that
    entries of ``expected`` cover in part, those that no entry covers. One that only one of the two
    runs raised is an instability."""
    shared_failures: tuple[Failure, ...] = ()
    """Exceptions of phases that the reference raises as well, so that they do not affect the
    verdict. In the reference cell: those that every release raises with this model."""
    absent: str | None = None
    """Why this stack does not know the model; None: it does."""
    unstable: tuple[str, ...] = ()
    """Names of the items that differed between the two runs of the cell."""
    unstable_signals: tuple[Signal, ...] = ()
    """The signals of these items, each once."""
    expected: tuple[str, ...] = ()
    """Reasons of the entries of matrix.yaml's ``expected`` that apply."""
    skips: tuple[Skip, ...] = ()
    notes: tuple[str, ...] = ()
    """Observations that do not affect the verdict, such as padding rows that differ."""
    findings: tuple[Finding, ...] = ()
    """Known defects that rules recognised."""
    explained_by: tuple[Explanation, ...] = ()
    """The known defects that explain the verdict, of this cell or of its reference."""
    steps: tuple[Step, ...] = ()
    """The suspects that were checked as the cause, and the result of each check."""
    reproduce: str = ""
    """The command that runs only this cell and its reference."""
    capsule: Capsule | None = None
    """A folder that shows the difference without samebits, or why there is none; None: not
    requested."""

    @property
    def compared(self) -> Verdict:
        """The verdict on the part that was compared: ``rest`` if there is one, else ``judged``."""
        return self.judged if self.rest is None else self.rest

    @property
    def decisive(self) -> Difference | None:
        """The difference that decides the verdict; None if nothing differs."""
        return self.deciding or self.first

    def faulty(self, finding: Finding) -> str:
        """Return the stack that has a defect that this cell shows: a comparison may show one of the reference."""
        if finding.of_reference and self.reference is not None:
            return self.reference.stack
        return finding.raises or self.cell.stack
