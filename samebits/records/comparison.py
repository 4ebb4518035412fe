"""What was found when one cell was compared with its reference: records without logic."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from samebits.records.capsule import Capsule
from samebits.records.capture import Failure, Skip, Unfinished
from samebits.records.finding import Finding, Step
from samebits.records.graft import Graft
from samebits.records.ids import CellId, Signal, Verdict
from samebits.records.ladder import Ladder
from samebits.records.record import Record
from samebits.records.tensor import TensorRef
from samebits.records.trace import Cause

Outcome = Literal["identical", "differs", "only here", "only in reference", "not compared"]


class Extreme(Record):
    """One element where two tensors are far apart."""

    index: tuple[int, ...]
    reference: float
    candidate: float
    token: str | None = None
    """The token id, and its text where known, if the last axis is the vocabulary."""


class Metrics(Record):
    """How two tensors of equal shape differ, over the rows that count.

    Distances are over the elements that are finite on both sides; NaN and infinities are
    counted apart and never averaged.
    """

    n: int
    """Elements compared."""
    n_differ: int
    """Elements whose bytes differ."""
    max_abs: float
    mean_abs: float
    """Over all finite elements, equal ones included."""
    max_rel: float
    """Largest |difference| / |reference|, where the reference is not zero."""
    max_ulp: int | None
    """Largest distance in units in the last place of the coarser dtype; None for no float."""
    cosine: float | None
    """None where one side is all zero or not finite."""
    n_nan: tuple[int, int] = (0, 0)
    """NaNs in reference, in candidate."""
    n_inf: tuple[int, int] = (0, 0)
    first_index: tuple[int, ...] | None = None
    """Index of the first element whose bytes differ, in row-major order."""
    top: tuple[Extreme, ...] = ()
    """The five largest absolute differences, largest first."""
    n_argmax: int | None = None
    """Logits only: positions whose argmax changed."""
    n_positions: int | None = None
    """Logits only: positions compared."""
    kl_max: float | None = None
    """Logits only: largest KL(reference || candidate) over positions, in nats."""
    kl_mean: float | None = None


class ItemComparison(Record):
    """One named tensor (or fact) of a signal on both sides."""

    name: str
    outcome: Outcome
    reference: TensorRef | None = None
    candidate: TensorRef | None = None
    metrics: Metrics | None = None
    """None where bytes are equal, or values could not be had (then :attr:`note` says why)."""
    pad_rows: Literal["none", "identical", "differ"] = "none"
    """Padding rows, which count for no verdict."""
    pad_metrics: Metrics | None = None
    note: str = ""
    excused: bool = False
    """True if it counts for no verdict; :attr:`note` says why."""


class SignalComparison(Record):
    """One signal on both sides."""

    signal: Signal
    outcome: Outcome
    n_items: int
    """How many tensors or facts were compared."""
    n_differ: int
    items: tuple[ItemComparison, ...] = ()
    """Those that are worth showing: all that differ, all layers of hidden_states."""
    note: str = ""
    excused: bool = False
    """True if it is not compared for a reason that was recorded; without one the cell fails."""


class FactChange(Record):
    """A fact that is not the same on both sides, such as a config value or a kernel argument."""

    what: str
    reference: Any
    candidate: Any


class FirstDifference(Record):
    """Where, in the order of data flow, two cells first part."""

    signal: Signal
    item: str
    what: str
    """One line in plain words."""


class TokenSplit(Record):
    """The first greedy step at which two cells choose different tokens."""

    prompt: str
    step: int
    reference: tuple[tuple[int, float], tuple[int, float]] | None
    """The two largest logits with their ids; None if they were not recorded."""
    candidate: tuple[tuple[int, float], tuple[int, float]] | None


class CellResult(Record):
    """One cell with its verdict."""

    cell: CellId
    reference: CellId | None
    """The cell it was compared with; None if there was none."""
    verdict: Verdict
    judged: Verdict
    """The verdict before matrix.yaml's ``expected`` was applied."""
    rest: Verdict | None = None
    """The verdict on what was compared, where a phase failed, the run did not finish, or no forward
    was observed; None where there is no such part."""
    unfinished: Unfinished | None = None
    """How far the run came, where it did not finish."""
    figure: str
    """The one number of the summary table, such as ``logits 7.9e-07``; '' if none."""
    headline: str
    """One line in plain words."""
    signals: tuple[SignalComparison, ...] = ()
    changes: dict[str, tuple[FactChange, ...]] = Field(default_factory=dict)
    """Explanatory facts that changed: ``config``, ``load``, ``tokenizer``,
    ``attention.kernel``, ``weights layout``."""
    first: FirstDifference | None = None
    splits: tuple[TokenSplit, ...] = ()
    ladder: Ladder | None = None
    """What the precision ladder says of a cell that differs; None: it was not asked."""
    cause: Cause | None = None
    """Where it parts from its reference, as a trace of both shows it; None: none was found."""
    graft: Graft | None = None
    """Which pieces of the reference give it the reference's bytes; None: nothing was swapped."""
    failure: Failure | None = None
    shared_failures: tuple[Failure, ...] = ()
    """Exceptions of phases that the reference raises as well, so that they make no verdict of this
    cell; of the reference itself, those that every release raises with this model."""
    absent: str | None = None
    unstable: tuple[str, ...] = ()
    """Names of what differed between the cell's own two runs."""
    expected: tuple[str, ...] = ()
    """Reasons from matrix.yaml that apply."""
    skips: tuple[Skip, ...] = ()
    notes: tuple[str, ...] = ()
    """What is worth knowing though it makes no verdict, such as pad rows that differ."""
    findings: tuple[Finding, ...] = ()
    """Defects that a rule knows by name."""
    steps: tuple[Step, ...] = ()
    """The hunt: what is ruled in and what is ruled out as the cause."""
    reproduce: str = ""
    """The command that runs just this cell and its reference."""
    capsule: Capsule | None = None
    """A folder that shows it without samebits, or why there is none; None: it was not asked for."""

    @property
    def compared(self) -> Verdict:
        """The verdict on what was compared: the rest where there is one, else the judged one."""
        return self.judged if self.rest is None else self.rest
