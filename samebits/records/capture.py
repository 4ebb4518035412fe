"""What a probe left on disk about one run of one cell: facts, and tensors by hash.

The probes write this JSON by hand (they import nothing of samebits); this module is its
schema and the only place where the host reads it. Lists are in the order observed.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from samebits.records.code import CodeSignal, Symbol
from samebits.records.evidence import EvidenceSignal
from samebits.records.ids import CellId
from samebits.records.provenance import IntegritySignal
from samebits.records.record import Record
from samebits.records.relations import InvariantsSignal
from samebits.records.tensor import TensorRef
from samebits.records.tokenizer import TokenizerSignal
from samebits.records.usage import UsageSignal

FORMAT_VERSION: Literal[3] = 3
# History of FORMAT_VERSION:
# 1: first.
# 2: it bears a seal.
# 3: failures of phases behind the load, what an unfinished run was at, and why something was skipped.

Origin = Literal["loaded", "derived", "reinitialised", "unwritten", "unexplained"]
"""Where the bytes of a tensor come from.

loaded: the checkpoint, perhaps through a known layout change. derived: equal to the same
tensor of a model made fresh from the config. reinitialised: another load with another seed
gives other bytes. unwritten: holds the pattern that the heap was filled with before the load.
unexplained: none of these.
"""


class Frame(Record):
    """One line of a traceback."""

    file: str
    line: int
    function: str
    code: str = ""
    own: bool = False
    """True if it is the model's own remote code."""


class Failure(Record):
    """An exception inside a stack, as data."""

    phase: str
    """What was being done: ``config``, ``load``, ``tokenize``, ``forward short``, ``greedy`` …"""
    type: str
    message: str
    traceback: str
    frames: tuple[Frame, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    """Names that the exception speaks of, looked up in the stack it was raised in."""

    @property
    def in_short(self) -> str:
        """The first line of the message, and what follows a line that only announces it."""
        said: list[str] = []
        for line in self.message.strip().splitlines():
            said.append(line.strip())
            if not line.rstrip().endswith(":"):
                break
        return " ".join(said)

    @property
    def may_be_the_machine(self) -> bool:
        """True if running the same again may end otherwise: no result, memory, files."""
        if self.phase in {"process", "probe", "memory"} or "allocate" in self.message:
            return True
        return self.type.endswith(("MemoryError", "OSError", "OutOfMemoryError"))


Why = Literal["plain", "inputs", "cost", "instrument", "unfinished"]
"""What kind of reason a skip has.

plain: the question has no meaning for this model. inputs: the model cannot be fed, or its forward
refuses what it is fed. cost: it was left out for its price in time or memory. instrument: the probe
itself failed. unfinished: the run ended before.
"""


class Skip(Record):
    """Something that was not observed, and why."""

    what: str
    reason: str
    why: Why = "plain"


class Unfinished(Record):
    """How far a run came that ended before it had observed all that it was to observe."""

    phase: str
    """The phase that was running, such as ``greedy long`` or ``invariants``."""
    reason: str
    """One line: no progress for so many seconds, killed by a signal, out of memory."""
    step: str = ""
    """How far the phase had come, such as ``forward 31 of 350``; '' if it reports no steps."""


class LoadFacts(Record):
    """What loading said and did."""

    model_class: str
    missing_keys: tuple[str, ...] = ()
    unexpected_keys: tuple[str, ...] = ()
    mismatched_keys: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    """Warnings and log records of level WARNING and above, paths removed."""
    requested_dtype: str
    parameter_dtypes: dict[str, int] = Field(default_factory=dict)
    """dtype -> number of parameter tensors."""
    activation_dtypes: dict[str, int] = Field(default_factory=dict)
    """dtype -> number of layer outputs, over all forwards."""
    seconds: float = 0.0


class Piece(Record):
    """The part of one checkpoint tensor that a tensor in memory carries."""

    tensor: str
    """Name in the checkpoint."""
    part: str = ""
    """'' for all of it, else the slice, such as ``[0:64]`` or ``[:, 3]``."""
    transposed: bool = False


class WeightFacts(Record):
    """One parameter or persistent buffer in memory."""

    ref: TensorRef
    kind: Literal["parameter", "buffer"]
    origin: Origin
    layout: str = ""
    """How the pieces make the tensor: '' (as it is), ``transpose``, ``concat dim 0``, ``stack`` …"""
    pieces: tuple[Piece, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other names of the same memory: a tied pair is one tensor."""


class WeightsSignal(Record):
    """Every parameter and persistent buffer by content."""

    tensors: dict[str, WeightFacts]
    checkpoint_tensors: int
    """Number of tensors in the checkpoint files."""
    unused: tuple[str, ...] = ()
    """Tensors of the checkpoint that no tensor in memory carries."""


class BufferFacts(Record):
    """One buffer, persistent or not, right after the load."""

    ref: TensorRef
    persistent: bool
    fresh: Literal["equal", "differs", "absent", "not compared"]
    """Against the same buffer of a model made fresh from the config."""
    unwritten: bool = False
    """True if it holds the pattern that the heap was filled with before the load."""


class FormulaFacts(Record):
    """An inv_freq against the closed formula of its rope type."""

    rope_type: str
    max_ulp: float | None
    """Largest distance from the float64 formula, in float32 units in the last place."""
    bound_ulp: float | None
    """How far a float32 evaluation of that formula can honestly be off."""
    note: str = ""


class InvFreqFacts(Record):
    """One rotary embedding's frequencies and scaling."""

    ref: TensorRef
    module: str
    rope_type: str
    attention_scaling: float | None
    fresh: Literal["equal", "differs", "absent", "not compared"]
    formula: FormulaFacts | None = None


class SdpaCall(Record):
    """The arguments of one call of torch's scaled_dot_product_attention."""

    enable_gqa: bool
    is_causal: bool
    mask: str | None
    """dtype and shape, such as ``bool[2, 1, 37, 37]``, or None."""
    scale: float | None
    dropout_p: float = 0.0
    query: str
    """dtype, shape and strides."""
    key: str
    value: str


class AttentionCall(Record):
    """One attention computation of one layer."""

    module: str
    module_class: str
    function: str
    """Qualified name of the Python function that computed it."""
    source: str
    """File inside the package, and line."""
    sdpa: SdpaCall | None = None
    aten: tuple[str, ...] = ()
    """The ATen kernels that ran for it, read from dispatch."""


class AttentionSignal(Record):
    """Which attention was asked for, resolved, and ran, per prompt and layer."""

    requested: str
    resolved: str | None
    calls: dict[str, tuple[AttentionCall, ...]] = Field(default_factory=dict)
    """prompt -> calls, in order of execution."""


class TokenFacts(Record):
    """How one token was decoded through the cache."""

    attention: tuple[AttentionCall, ...]
    """In order of execution; empty where generate() chose one token only."""
    functions: tuple[str, ...]
    """``module:qualified name`` of functions that ran for it and not for the prompt before it."""


class Layer(Record):
    """The output of one layer."""

    name: str
    ref: TensorRef
    padded: bool = True
    """False if dimension 1 is not the axis that the prompt's padding lies on."""


class ForwardFacts(Record):
    """One forward over one prompt."""

    inputs: dict[str, TensorRef]
    """What was fed: input_ids, attention_mask, pixel_values …"""
    text: str | None = None
    real_rows: tuple[tuple[int, int], ...] | None = None
    """Per batch row the half-open range of positions that are no padding; None: no padding."""
    logits: TensorRef | None = None
    logits_padded: bool = True
    """False if dimension 1 of the logits is not the axis that the prompt's padding lies on."""
    hidden_states: tuple[Layer, ...] = ()
    tokens: dict[str, str] = Field(default_factory=dict)
    """token id -> text, for ids worth naming, where the model has a tokenizer."""


class GreedyFacts(Record):
    """Greedy decoding of one prompt."""

    ids: tuple[int, ...]
    """The generated ids alone."""
    top2: tuple[tuple[tuple[int, float], tuple[int, float]], ...] = ()
    """Per step the two largest logits with their ids."""
    text: str | None = None
    logits: TensorRef | None = None
    """The logits of every step, [steps, vocabulary]: what prefill and decode through the cache
    compute. They carry the signal decode."""


class Signals(Record):
    """Everything observed; None where nothing was, with a reason in :attr:`Capture.skips`."""

    load: LoadFacts | None = None
    config: dict[str, Any] | None = None
    """The effective config, normalised across versions."""
    tokenizer: TokenizerSignal | None = None
    """Observed in run a only; None for a model without one."""
    weights: WeightsSignal | None = None
    buffers: dict[str, BufferFacts] | None = None
    inv_freq: dict[str, InvFreqFacts] | None = None
    attention: AttentionSignal | None = None
    forward: dict[str, ForwardFacts] | None = None
    """prompt -> facts; carries the signals inputs, hidden_states and logits."""
    greedy: dict[str, GreedyFacts] | None = None
    invariants: InvariantsSignal | None = None
    """Relations inside this cell; observed in run a only."""
    integrity: IntegritySignal | None = None
    """Whether loading did what it says; observed in run a only."""
    usage: UsageSignal | None = None
    """What users do around the model; observed in run a of a model's first variant on the CPU."""
    code: CodeSignal | None = None
    """The code that it is made of and ran; observed in run a only."""
    first_token: dict[str, TokenFacts] | None = None
    """prompt -> how generate() computed the first token behind the cache; run a only."""
    evidence: EvidenceSignal | None = None
    """What explains a difference; observed in run a only."""


class Capture(Record):
    """One run of one cell."""

    format: Literal["samebits-capture"] = "samebits-capture"
    format_version: Literal[3] = FORMAT_VERSION
    cell: CellId
    run: Literal["a", "b"]
    """The two runs differ only in the pattern that fills unwritten memory."""
    status: Literal["complete", "failed", "absent", "unfinished"]
    """complete: every phase behind the load was tried. failed: the model did not load, so nothing
    was observed. unfinished: the run ended early, and what it had observed by then is here."""
    failure: Failure | None = None
    """What kept the model from being loaded."""
    failures: tuple[Failure, ...] = ()
    """Exceptions of phases behind the load, such as ``greedy short``; the other phases went on."""
    unfinished: Unfinished | None = None
    absent: str | None = None
    """Why this stack does not know the model."""
    heap: str = ""
    """How unwritten memory was filled, and whether that was seen to work."""
    probe_effect: Literal["none", "changed the bits", "not checked"] = "not checked"
    """Whether watching the forward changed its logits."""
    forks: dict[str, str] = Field(default_factory=dict)
    """Version fork -> branch taken."""
    skips: tuple[Skip, ...] = ()
    signals: Signals = Signals()
    seconds: dict[str, float] = Field(default_factory=dict)
    """Phase -> seconds."""
    counts: dict[str, int] = Field(default_factory=dict)
    """Phase -> forwards of a model, those inside ``generate()`` included."""
    slots: int = 1
    """Jobs that could run at a time, each with its part of the memory."""

    @property
    def raised(self) -> Failure | None:
        """The exception of the load, or else the first of a phase behind it."""
        return self.failure or next(iter(self.failures), None)
