"""The precision ladder: the results of one cell on every rung, and the judgement of two cells."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from samebits.records.ids import Signal
from samebits.records.judgement import Judgement
from samebits.records.record import Record
from samebits.records.result import CellFile
from samebits.records.subject import Reason, Subject, with_name
from samebits.records.tensor import TensorRef
from samebits_wire import formats

RungName = Literal["own", "float32", "noise", "float64"]
"""own: the variant's dtype. float32 and float64: every smaller float is promoted to that dtype.
noise: the float32 rung with each batch row doubled and the terms of every matrix product summed in
another order, which is mathematically the same."""

Side = Literal["reference", "candidate"]

ON_LADDER: tuple[Signal, ...] = ("hidden_states", "logits", "outputs", "decode")
"""The signals of samebits that are computed again on every rung; probes of the user's are as well."""

Rule = Literal[
    "inputs",
    "stored constant",
    "not finite",
    "shape",
    "slope",
    "dtype policy",
    "self-noise",
    "choice",
    "missing output",
    "state",
    "tokens",
    "probe",
    "nothing",
]
"""The rule that decided. ``nothing``: the ladder is undecided; see its reason."""


class RungLayer(Record):
    """The output of one layer on one rung."""

    name: str
    ref: TensorRef


class Choice(Record):
    """One discrete choice inside a forward, such as a router's top-k."""

    op: Literal["topk", "argmax"]
    scores: TensorRef
    """The scores of the candidates, on the last axis."""
    chosen: TensorRef
    """int64: indices of the chosen candidates, on the last axis."""
    margin: TensorRef
    """float64, by row: difference of the lowest chosen and the highest rejected score."""


class RungForward(Record):
    """One forward over one prompt, on one rung."""

    logits: TensorRef | None = None
    outputs: dict[str, TensorRef] = Field(default_factory=dict)
    """Name -> output, of those besides the logits."""
    hidden_states: tuple[RungLayer, ...] = ()
    choices: tuple[Choice, ...] = ()


class RungProbes(Record):
    """What the probes of one of the user's files return on one rung, by the names of the parts."""

    tensors: dict[str, TensorRef] = Field(default_factory=dict)
    facts: dict[str, Any] = Field(default_factory=dict)


class Rung(Record):
    """The results of one cell on one rung."""

    forward: dict[str, RungForward] = Field(default_factory=dict)
    decode: dict[str, TensorRef] = Field(default_factory=dict)
    """Row -> logits [steps, vocabulary] of generate() with the reference's tokens forced."""
    probes: dict[Signal, RungProbes] = Field(default_factory=dict)
    """Name of a file of the user's -> what its probes return; float32 and float64 only."""
    refused: dict[str, str] = Field(default_factory=dict)
    """``forward long``, ``decode padded`` or ``model`` -> why it has no result."""
    leaks: tuple[str, ...] = ()
    """Operations that returned a smaller float than that of the rung."""
    seconds: float = 0.0


class Aligned(Record):
    """The results of one cell, in its own dtype, with all parameters and buffers aligned."""

    what: str
    """``forward short`` or ``decode short``."""
    off: int
    """Number of tensors that did not begin at a 64-byte boundary and were copied to one."""
    repeats: bool | None = None
    """True if a repetition before the copies gives the same bits; None: it raised."""
    refs: dict[str, TensorRef] = Field(default_factory=dict)
    """Prompt or decoded row -> logits."""
    refused: str = ""
    """The exception, or ''."""


class LadderFile(CellFile):
    """The results of one cell on all rungs."""

    format: Literal["samebits-ladder"] = "samebits-ladder"
    format_version: Literal[8] = formats.LADDER
    rungs: dict[RungName, Rung] = Field(default_factory=dict)
    aligned: tuple[Aligned, ...] = ()
    """What was computed again with aligned tensors."""
    not_decoded: tuple[str, ...] = ()
    """Prompts that were not decoded in the own dtype: the cell's own run has their decodes."""
    seconds: float = 0.0


Kind = Literal["same", Judgement]


class Errors(Record):
    """RMS error of each side in the variant's dtype against its float64, where the sides differ."""

    n: int
    """Number of elements that differ between the two sides."""
    reference: float
    candidate: float


class LadderStep(Record):
    """One tensor on every rung: the largest absolute difference between the two sides.

    A distance is None if the rung has no result on one side.
    """

    signal: Signal
    subject: Subject
    prompt: str = ""
    """Prompt and row of the subject, made from it."""
    what: str = ""
    """``layer 0 (model.layers.0)``, ``logits`` or ``decode``, made from signal and subject."""
    own: float | None
    float32: float | None
    float64: float | None
    noise: float | None = None
    """On the float32 rung: the distances of both sides from their own result on the noise rung."""
    errors: Errors | None = None
    """Errors of reference and candidate in the variant's dtype against their own float64."""
    kind: Kind
    note: str = ""
    reason: Reason | None = None
    """The kind of reason in :attr:`note`, if a rule depends on it."""

    @model_validator(mode="before")
    @classmethod
    def _in_words(cls, fields: Any) -> Any:  # noqa: ANN401  what a validator gets may be anything
        """Make the words from the subject."""
        if not isinstance(fields, dict) or not {"signal", "subject"} <= fields.keys():
            return fields
        subject = Subject.model_validate(fields["subject"])
        what = subject.place or fields["signal"]
        return fields | {"subject": subject, "prompt": subject.prompt_row, "what": what}

    @property
    def ratio(self) -> float | None:
        """The float64 distance over the float32 distance.

        For rounding it is about 2e-9, the ratio of the unit roundoffs. 1 means no rounding.
        """
        if self.float32 is None or self.float64 is None or not self.float32:
            return None
        return self.float64 / self.float32


class Constant(Record):
    """A stored tensor with different bytes on the two sides before any computation."""

    signal: Signal
    subject: Subject
    name: str = ""
    """The subject in words, made from it."""
    kind: Literal["changed", "cast", "not known"]
    """cast: one side is exactly the other side rounded to a smaller dtype."""
    coarser: Side | None = None
    """For a cast: the side with the smaller dtype."""
    note: str = ""

    _with_name = model_validator(mode="before")(with_name)


class Flip(Record):
    """A discrete choice that differs between the two sides, in the variant's dtype."""

    prompt: str
    choice: str
    """Such as ``topk 2``: the third top-k of the forward."""
    rows: int
    """Number of positions with another choice."""
    margin: float
    """The largest margin at these positions on either side: between chosen and rejected scores."""
    in_float64: bool
    """True if the choice differs in float64, too."""
    other_scores: bool = False
    """True if the scores themselves differ in float64: they are computed by another formula."""


class SplitJudgement(Record):
    """Whether a greedy split is a near-tie."""

    prompt: str
    step: int
    margin: float | None
    """Difference of the reference's two largest logits at that step."""
    drift: float | None
    """Change of a logit at that step: between the sides, or by rounding if that is less."""
    near_tie: bool | None
    """True if margin <= 2 drift; None if one of them was not recorded."""
    note: str = ""


class AtRisk(Record):
    """Greedy steps of one prompt whose margin is at most twice the drift."""

    prompt: str
    steps: tuple[int, ...]
    n_steps: int


class Alignment(Record):
    """Whether two sides differ only because of the memory alignment of their weights."""

    what: str
    """``forward short`` or ``decode short``: the computation that was tried."""
    off: tuple[int, int]
    """Number of tensors of reference and candidate that do not begin at a 64-byte boundary."""
    same: bool | None
    """True if both sides give the same bytes after these tensors are copied to such a boundary;
    None if that cannot be known."""
    note: str = ""
    """Why it cannot be known."""


class Decider(Record):
    """A difference that a rule rests on."""

    signal: Signal
    subject: Subject


class Ladder(Record):
    """The result of the precision ladder for a cell and its reference."""

    kind: Kind
    rule: Rule
    reason: str
    """One line in plain words."""
    rests_on: tuple[Decider, ...] = ()
    """The differences that the rule rests on, the first one of each signal; () for rounding, which
    rests on all of them, and where no rule could decide."""
    worse: Side | None = None
    """The side whose result in the variant's dtype is clearly farther from its own float64."""
    worse_ratio: float | None = None
    """The ratio of the two distances."""
    steps: tuple[LadderStep, ...] = ()
    constants: tuple[Constant, ...] = ()
    flips: tuple[Flip, ...] = ()
    splits: tuple[SplitJudgement, ...] = ()
    at_risk: tuple[AtRisk, ...] = ()
    alignment: Alignment | None = None
    """None if all tensors are aligned on both sides, or it was not tried."""
    notes: tuple[str, ...] = ()
    """Restrictions of the result: missing results, leaks, a run that did not repeat."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """Duration of the reference's and the candidate's ladder job."""
