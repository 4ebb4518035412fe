"""The precision ladder: what a cell leaves on every rung, and what is said of a pair of cells."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.capture import Failure
from samebits.records.ids import CellId, Signal
from samebits.records.record import Record
from samebits.records.tensor import TensorRef

FORMAT_VERSION: Literal[3] = 3
# History of FORMAT_VERSION:
# 1: first.
# 2: it bears a seal.
# 3: what aligned tensors give.

RungName = Literal["own", "float32", "noise", "float64"]
"""own: the variant's dtype. float32 and float64: every smaller float promoted to it. noise: the
float32 rung with each row fed twice and the terms of every product of matrices in another order:
the same maths."""

Side = Literal["reference", "candidate"]

Rule = Literal[
    "inputs",
    "stored constant",
    "not finite",
    "shape",
    "slope",
    "dtype policy",
    "self-noise",
    "choice",
    "tokens",
    "nothing",
]
"""What decided. ``nothing``: the ladder cannot tell, and its reason says why."""


class RungLayer(Record):
    """The output of one layer on one rung."""

    name: str
    ref: TensorRef


class Choice(Record):
    """One discrete choice inside a forward, such as a router's top-k."""

    op: Literal["topk", "argmax"]
    scores: TensorRef
    """What it chose from; the last axis holds the candidates."""
    chosen: TensorRef
    """int64, the last axis holds what was taken."""
    margin: TensorRef
    """float64, by row: between the last score taken and the first that was not."""


class RungForward(Record):
    """One forward over one prompt, on one rung."""

    logits: TensorRef | None = None
    hidden_states: tuple[RungLayer, ...] = ()
    choices: tuple[Choice, ...] = ()


class Rung(Record):
    """What one cell computes on one rung."""

    forward: dict[str, RungForward] = Field(default_factory=dict)
    decode: dict[str, TensorRef] = Field(default_factory=dict)
    """Row -> the logits [steps, vocabulary] of generate() with the reference's tokens forced."""
    refused: dict[str, str] = Field(default_factory=dict)
    """``forward long``, ``decode padded`` or ``model`` -> why there is nothing of it."""
    leaks: tuple[str, ...] = ()
    """Operations that gave a smaller float than the rung's."""
    seconds: float = 0.0


class Aligned(Record):
    """What one cell gives with every parameter and buffer aligned in memory, in its own dtype."""

    what: str
    """``forward short`` or ``decode short``."""
    off: int
    """Tensors that did not begin at a boundary of 64 bytes, and were copied to where they do."""
    repeats: bool | None = None
    """True if the prompt gives the same bits once more before anything is copied; None: refused."""
    refs: dict[str, TensorRef] = Field(default_factory=dict)
    """Prompt, or row that is decoded -> logits."""
    refused: str = ""
    """The exception, if there was one."""


class LadderFile(Record):
    """What one cell leaves when it climbs the ladder."""

    format: Literal["samebits-ladder"] = "samebits-ladder"
    format_version: Literal[3] = FORMAT_VERSION
    cell: CellId
    failure: Failure | None = None
    rungs: dict[RungName, Rung] = Field(default_factory=dict)
    aligned: Aligned | None = None
    """None where it was not asked."""
    forks: dict[str, str] = Field(default_factory=dict)
    seconds: float = 0.0


Kind = Literal["same", "rounding", "diverged", "undecided"]


class Errors(Record):
    """Root mean squares of what the variant's dtype does to each side, where the sides differ."""

    n: int
    """Elements that differ between the two sides."""
    reference: float
    candidate: float


class LadderStep(Record):
    """One tensor on every rung: how far the two sides are apart, largest absolute difference.

    A distance is None where that rung gave nothing on one side.
    """

    prompt: str
    what: str
    """``layer 0 (model.layers.0)``, ``logits`` or ``decode``."""
    own: float | None
    float32: float | None
    float64: float | None
    noise: float | None = None
    """Of the float32 rung: both sides' distances from themselves, summed in another order."""
    errors: Errors | None = None
    """How far reference and candidate, in the variant's dtype, are from themselves in float64."""
    kind: Kind
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """float64 over float32: 2e-9 is what the unit roundoffs give; 1 is no rounding at all."""
        if self.float32 is None or self.float64 is None or not self.float32:
            return None
        return self.float64 / self.float32


class Constant(Record):
    """A tensor that both sides hold before anything is computed, in other bytes."""

    signal: Signal
    name: str
    kind: Literal["changed", "cast", "not known"]
    """cast: one side is exactly the other, rounded to a smaller dtype."""
    coarser: Side | None = None
    """Of a cast, the side that holds the smaller dtype."""
    note: str = ""


class Flip(Record):
    """A discrete choice that came out differently on both sides, in the variant's dtype."""

    prompt: str
    choice: str
    """Such as ``topk 2``: the third top-k of the forward."""
    rows: int
    """Positions where another one was taken."""
    margin: float
    """The largest margin among them, on either side: between taken and not taken."""
    in_float64: bool
    """True if float64 chooses differently, too."""
    other_scores: bool = False
    """True if the scores themselves are apart in float64: the choice is made by another rule."""


class SplitJudgement(Record):
    """Whether a greedy split is a near-tie."""

    prompt: str
    step: int
    margin: float | None
    """Between the two best scores of the reference at that step."""
    drift: float | None
    """How far a logit of that step moves: between the sides, or by rounding if that is less."""
    near_tie: bool | None
    """True if margin <= 2 drift; None where one of them was not recorded."""
    note: str = ""


class AtRisk(Record):
    """Greedy steps of one prompt whose margin is no more than twice the drift."""

    prompt: str
    steps: tuple[int, ...]
    n_steps: int


class Alignment(Record):
    """Whether two sides differ by where their weights begin in memory alone."""

    what: str
    """``forward short`` or ``decode short``: of what it was tried."""
    off: tuple[int, int]
    """Tensors of the reference and the candidate that do not begin at a boundary of 64 bytes."""
    same: bool | None
    """True if both sides give the same bytes once these are copied to where they do; None where
    that cannot be known."""
    note: str = ""
    """Why it cannot."""


class Ladder(Record):
    """What the ladder says of a cell beside its reference."""

    kind: Kind
    rule: Rule
    reason: str
    """One line in plain words."""
    worse: Side | None = None
    """The side whose own dtype is clearly farther from its own float64."""
    worse_ratio: float | None = None
    """How many times farther."""
    steps: tuple[LadderStep, ...] = ()
    constants: tuple[Constant, ...] = ()
    flips: tuple[Flip, ...] = ()
    splits: tuple[SplitJudgement, ...] = ()
    at_risk: tuple[AtRisk, ...] = ()
    alignment: Alignment | None = None
    """None where neither side has a tensor that is not aligned, or it was not tried."""
    notes: tuple[str, ...] = ()
    """What a reader has to know: refusals, leaks, a run that did not come out as before."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """Of the reference's and the candidate's ladder cell."""
