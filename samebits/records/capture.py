"""Captures: the file that a probe writes for one run of one cell, with facts and tensor hashes.

The probes write this JSON without these classes, because they cannot import samebits. This module
is its schema, and the host reads captures only through it. Lists are in the order of observation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any, Literal

from pydantic import Field

from samebits.base.hashes import HASH_ALGORITHM, HashAlgorithm
from samebits.records.code import CodeSignal, Symbol
from samebits.records.device import DeviceProbe
from samebits.records.evidence import EvidenceSignal
from samebits.records.ids import CellId, Signal
from samebits.records.provenance import IntegritySignal
from samebits.records.question import CellAnswers
from samebits.records.record import Record
from samebits.records.settings import SettingsSignal
from samebits.records.state import StateSignal
from samebits.records.tensor import TensorRef
from samebits.records.tokenizer import TokenizerSignal
from samebits_wire import formats

Extent = Literal["full", "short"]
"""How much a run observes.

short: hashes of the tensors in memory, each prompt's forward with its layers, and the first two
steps of each decoding. A short run b can only agree with run a. Where it does not, a full one runs.
"""

Origin = Literal["loaded", "derived", "reinitialised", "unwritten", "unexplained", "untraced"]
"""Where the bytes of a tensor come from.

loaded: from the checkpoint, possibly with a known layout change. derived: equal to the same tensor
of a new model made from the config. reinitialised: a load with another seed gives different bytes.
unwritten: the memory still holds the pattern that the heap was filled with before the load.
unexplained: none of these. untraced: not looked for, in a short run.
"""


class Frame(Record):
    """One line of a traceback."""

    file: str
    line: int
    function: str
    code: str = ""
    own: bool = False
    """True if it is the model's remote code."""
    changed: bool = False
    """In a report: whether its function differs between the releases that are compared."""

    @property
    def is_of_model(self) -> bool:
        """True if it is a line of one model's file in transformers."""
        return self.file.startswith("transformers/models/") and "/auto/" not in self.file


_NO_SUCH_FILE = re.compile(r"does not appear to have a file named|^Error no file named")
"""The words of ``cached_file`` in transformers/utils/hub.py and of ``from_pretrained`` for a file that is not there."""


class Failure(Record):
    """An exception raised inside a stack."""

    phase: str
    """The phase that raised it: ``config``, ``load``, ``tokenize``, ``forward short`` …"""
    type: str
    message: str
    traceback: str
    frames: tuple[Frame, ...] = ()
    symbols: tuple[Symbol, ...] = ()
    """Names that the exception mentions, looked up in the stack that raised it."""

    @property
    def first_line(self) -> str:
        """The first line of the message."""
        return self.message.partition("\n")[0]

    @property
    def in_words(self) -> str:
        """The class, and the message in short."""
        return f"{self.type}: {self.in_short}"

    @property
    def in_short(self) -> str:
        """The first line of the message; a line that ends with a colon is joined with the next."""
        lines: list[str] = []
        for line in self.message.strip().splitlines():
            lines.append(line.strip())
            if not line.rstrip().endswith(":"):
                break
        return " ".join(lines)

    @property
    def place(self) -> Frame | None:
        """The frame to name: the innermost one of the model's own code, or the one that raised if its file is a model's.

        Where torch or shared code raised, it is the innermost frame whose function changed between the releases, else
        that of a model's file. A package that cannot be imported is named by its own line.
        """
        inwards = self.frames[::-1]
        own = (frame for frame in inwards if frame.own)
        at_once = (f for f in inwards[:1] if f.is_of_model or f.function == "<module>")
        changed = (frame for frame in inwards if frame.changed)
        of_model = (frame for frame in inwards if frame.is_of_model)
        return next(chain(own, at_once, changed, of_model, inwards), None)

    @property
    def may_be_the_machine(self) -> bool:
        """True if another run may succeed: the process died, or memory was short, or a file could not be read.

        A file that a release asks for and the checkpoint does not have is missing in every run.
        """
        if self.phase in {"process", "probe", "memory"} or "allocate" in self.message:
            return True
        if _NO_SUCH_FILE.search(self.message):
            return False
        return self.type.endswith(("MemoryError", "OSError", "OutOfMemoryError"))


Why = Literal[
    "plain", "no generation", "meta device", "inputs", "cost", "level", "instrument", "unfinished"
]
"""The kind of reason of a skip.

plain: the observation has no meaning for this model. no generation: the model's class does not
generate. meta device: the tensor has no values. inputs: no inputs can be made for the model, or its
forward rejects them. cost: it would take too much time or memory. level: --quick leaves it out. instrument: the probe itself
failed. unfinished: the run ended before it.
"""

OF_THE_MODEL: frozenset[Why] = frozenset({"plain", "no generation", "meta device"})
"""Kinds of reasons that hold in every run of the model."""


class Skip(Record):
    """An observation that was not made, and the reason."""

    what: str
    """The phase or signal, with the prompt if it is of one: ``greedy``, ``forward long``."""
    reason: str
    raised: bool = False
    """True if the reason is an exception that the check raised."""
    why: Why = "plain"
    tensor: str = ""
    """The tensor, if it is of a single one."""
    tensor_of: Signal | None = None
    """The signal of that tensor."""
    paste: str = ""
    """Lines to write below the model in matrix.yaml, so that it is observed."""


NO_DEVICE = "no device"
"""The phase of a run whose machine lacks the device of its cell; it ended by itself."""


class Unfinished(Record):
    """How far a run came that ended before all observations were made."""

    phase: str
    """The phase that was running, such as ``greedy long`` or ``relations``."""
    reason: str
    """One line, such as no progress for some seconds, killed by a signal, or out of memory."""
    step: str = ""
    """Progress of that phase, such as ``forward 31 of 350``; '' if it does not count steps."""


class UnrunModule(Record):
    """A module that no prompt ran: it was not called, and no operation read its parameters."""

    name: str
    """The outermost of which no part ran, such as ``model.vision_tower``."""
    parameters: int
    """Number of its parameters."""
    one_of_several: bool = False
    """True if others of its class in the same list ran, as with experts that no token was sent to."""


class LoadFacts(Record):
    """Outcome and messages of loading the model."""

    model_class: str
    class_module: str = ""
    """Module of a class that a package brings; '' for one of transformers or of remote code."""
    missing_keys: tuple[str, ...] = ()
    unexpected_keys: tuple[str, ...] = ()
    mismatched_keys: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    """Warnings and log records of level WARNING and above, with paths removed."""
    requested_dtype: str
    parameter_dtypes: dict[str, int] = Field(default_factory=dict)
    """dtype -> number of parameter tensors."""
    activation_dtypes: dict[str, int] = Field(default_factory=dict)
    """dtype -> number of layer outputs, over all forwards."""
    seconds: float = 0.0


class Piece(Record):
    """The part of one checkpoint tensor that a tensor in memory contains."""

    tensor: str
    """Name in the checkpoint."""
    part: str = ""
    """'' for the whole tensor, else the slice, such as ``[0:64]`` or ``[:, 3]``."""
    transposed: bool = False


class WeightFacts(Record):
    """One parameter or persistent buffer in memory."""

    ref: TensorRef
    kind: Literal["parameter", "buffer"]
    origin: Origin
    layout: str = ""
    """How the pieces form the tensor: '' (unchanged), ``transpose``, ``concat dim 0``, ``stack``
    …"""
    pieces: tuple[Piece, ...] = ()
    aliases: tuple[str, ...] = ()
    """Other names of the same memory: a pair of tied weights is one tensor."""


class WeightsSignal(Record):
    """All parameters and persistent buffers."""

    tensors: dict[str, WeightFacts]
    checkpoint_tensors: int
    """Number of tensors in the checkpoint files."""
    unused: tuple[str, ...] = ()
    """Tensors of the checkpoint that no tensor in memory contains."""
    unlisted: tuple[str, ...] = ()
    """Tensors that shards of the checkpoint hold, and that its index leaves out."""
    adapter_lost: dict[str, str] = Field(default_factory=dict)
    """Tensors of an adapter beside the model that no tensor in memory contains -> the one of the same name
    and shape; '' if there is none."""
    frozen: tuple[str, ...] = ()
    """Parameters that no optimizer moves, as the class does not let them have a gradient."""


class BufferFacts(Record):
    """One buffer, persistent or not, right after the load."""

    ref: TensorRef
    persistent: bool
    fresh: Literal["equal", "differs", "absent", "not compared"]
    """Comparison with the same buffer of a new model made from the config."""
    unwritten: bool = False
    """True if it holds the pattern that the heap was filled with before the load."""
    replaced: bool = False
    """True if it is unwritten after the load, and no longer after the prompts' forwards."""


class FormulaFacts(Record):
    """Comparison of an inv_freq with the closed formula of its rope type."""

    rope_type: str
    max_ulp: float | None
    """Largest distance from the formula in float64, in float32 ULP."""
    bound_ulp: float | None
    """Largest distance in ULP that a correct float32 evaluation of the formula can have."""
    note: str = ""


class InvFreqFacts(Record):
    """Frequencies and scaling of one rotary embedding."""

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
    """dtype and shape, such as ``bool[2, 1, 37, 37]``; None without a mask."""
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
    """File inside the package, and line, of that function."""
    sdpa: SdpaCall | None = None
    aten: tuple[str, ...] = ()
    """The ATen kernels that ran for it, recorded at dispatch."""


class AttentionSignal(Record):
    """The attention implementation that was requested, resolved, and run, per prompt and layer."""

    requested: str
    resolved: str | None
    calls: dict[str, tuple[AttentionCall, ...]] = Field(default_factory=dict)
    """prompt -> calls, in order of execution."""


class TokenFacts(Record):
    """How one token was decoded with the KV cache."""

    attention: tuple[AttentionCall, ...]
    """In order of execution; empty if generate() chose only one token."""
    functions: tuple[str, ...]
    """``module:qualified name`` of functions that ran for this token and not in the prefill."""


EMBEDDINGS = "embeddings"
"""In place of a layer's name: the input of the first layer that runs."""


class Layer(Record):
    """The output of one layer."""

    name: str
    ref: TensorRef
    padded: bool = True
    """False if dimension 1 is not the axis of the prompt's padding."""


class Omission(Record):
    """What a forward does without one of its optional arguments, measured against one with it."""

    effect: Literal["none", "other logits", "raises"]
    message: str = ""
    """The exception, if it raises."""
    complete: str = ""
    """Hash of the logits with the argument; '' without logits."""


class ForwardFacts(Record):
    """One forward over one prompt."""

    inputs: dict[str, TensorRef]
    """The arguments of forward: input_ids, attention_mask, pixel_values …"""
    constants: dict[str, Any] | None = None
    """For an input set of matrix.yaml: its arguments that are no tensors; None for a prompt."""
    optional: tuple[str, ...] = ()
    """Those of the inputs that only some releases take or use."""
    omitted: dict[str, Omission] = Field(default_factory=dict)
    """Optional input -> what forward does without it; observed in run a only. A prompt of text is fed without."""
    text: str | None = None
    real_rows: tuple[tuple[int, int], ...] | None = None
    """Per batch row, the half-open range of positions that are not padding; None: no padding."""
    logits: TensorRef | None = None
    logits_name: str = ""
    """The output that plays their part, such as ``logits`` or ``last_hidden_state``; '' if forward
    returns a bare tensor. The others are in :attr:`Signals.named`, as ``outputs``."""
    logits_padded: bool = True
    """False if dimension 1 of the logits is not the axis of the prompt's padding."""
    hidden_states: tuple[Layer, ...] = ()
    tokens: dict[str, str] = Field(default_factory=dict)
    """token id -> text, for ids that a report may show, if the model has a tokenizer."""

    @property
    def common_inputs(self) -> dict[str, TensorRef]:
        """The inputs that every release takes."""
        return {name: ref for name, ref in self.inputs.items() if name not in self.optional}


class GreedyFacts(Record):
    """Greedy decoding of one prompt."""

    ids: tuple[int, ...]
    """The generated ids without those of the prompt."""
    top2: tuple[tuple[tuple[int, float], tuple[int, float]], ...] = ()
    """Per step, the ids and values of the two largest logits."""
    text: str | None = None
    logits: TensorRef | None = None
    """The logits of every step, [steps, vocabulary], from prefill and decode with the KV cache.
    The signal decode compares them."""
    start: TensorRef | None = None
    """The logits of the first two steps, [steps, vocabulary], which a short run has as well."""


class ProbeAnswer(Record):
    """What one probe of the user's returned, taken apart: one entry for each tensor and each fact.

    The names lead to the part of the result: ``pooling`` itself, ``pooling.short``,
    ``pooling.short[0]``.
    """

    tensors: dict[str, TensorRef] = Field(default_factory=dict)
    """A number with a fraction is a float64 tensor without dimensions, so that its bytes count."""
    facts: dict[str, Any] = Field(default_factory=dict)
    """Whole numbers, texts, true, false, null, and empty lists and dicts."""
    failure: Failure | None = None
    """The exception that it raised, in phase ``probe my_probe.pooling``."""
    left_out: str = ""
    """Why it did not run; '' if it did."""
    seconds: float = 0.0
    repeats: bool | None = None
    """Whether the other run of the cell gave the same; None: that is not known."""


class ProbeFacts(Record):
    """What the probes of one of the user's files returned."""

    verdict: bool
    """Whether a difference counts; else it only informs."""
    answers: dict[str, ProbeAnswer]
    """Name of the function -> what it returned."""


class ConfigField(Record):
    """What a release makes of a value of config.json that is a yes or no, a number or a text."""

    written: bool | int | float | str
    loaded: bool | int | float | str | None = None
    """What the loaded config has in its place; None if it has no such field, or something else."""
    is_default: bool = True
    """Whether a config of the class without arguments has this value."""
    read: str = ""
    """The first line that reads it in the load, the forwards or decoding: one of a model if there is one, else of a
    config class; '' for none."""


class Signals(Record):
    """All observations; None if one was not made, with the reason in :attr:`Capture.skips`."""

    load: LoadFacts | None = None
    config: dict[str, Any] | None = None
    """The effective config, normalised across versions."""
    config_use: dict[str, ConfigField] | None = None
    """Path of a field, such as ``text_config.hidden_act`` -> what became of its value; run a only."""
    tokenizer: TokenizerSignal | None = None
    """Observed in run a only; None for a model without a tokenizer."""
    weights: WeightsSignal | None = None
    buffers: dict[str, BufferFacts] | None = None
    inv_freq: dict[str, InvFreqFacts] | None = None
    attention: AttentionSignal | None = None
    forward: dict[str, ForwardFacts] | None = None
    """prompt -> facts for the signals inputs, hidden_states and logits."""
    greedy: dict[str, GreedyFacts] | None = None
    state: StateSignal | None = None
    """Whether the first prompt gives its bytes again after all else; observed in run a only."""
    integrity: IntegritySignal | None = None
    """Whether the load worked as it reported; observed in run a only."""
    code: CodeSignal | None = None
    """The model's code and the functions that ran; observed in run a only."""
    first_token: dict[str, TokenFacts] | None = None
    """prompt -> how generate() computed the first token that uses the KV cache; run a only."""
    settings: SettingsSignal | None = None
    """torch's settings after the prompts, and what changed them; observed in run a only."""
    device: tuple[DeviceProbe, ...] | None = None
    """What exists only on a GPU; run a of cells that are not on the CPU."""
    unrun: tuple[UnrunModule, ...] | None = None
    """The modules that no prompt ran; observed in run a only."""
    evidence: EvidenceSignal | None = None
    """Observations that explain a difference; made in run a only."""
    named: dict[Signal, dict[str, dict[str, TensorRef]]] = Field(default_factory=dict)
    """Signal -> prompt -> name -> tensor, of the signals that are a set of named tensors.

    The prompt of a stored tensor is ''; the name is '' if there is one tensor for a prompt."""
    probes: dict[Signal, ProbeFacts] = Field(default_factory=dict)
    """Name of a file of the user's -> what its probes returned, on the model as it was loaded."""
    answers: CellAnswers = Field(default_factory=dict)
    """What questions beside the verdict observed; most of them in run a only."""

    @property
    def tensors(self) -> Mapping[str, WeightFacts]:
        """All parameters and persistent buffers by name; empty if they were not observed."""
        return self.weights.tensors if self.weights is not None else {}


class Capture(Record):
    """One run of one cell."""

    format: Literal["samebits-capture"] = "samebits-capture"
    format_version: Literal[30] = formats.CAPTURE
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    cell: CellId
    run: Literal["a", "b"]
    """The two runs differ only in the pattern that fills uninitialised memory."""
    extent: Extent = "full"
    status: Literal["complete", "failed", "absent", "unfinished"]
    """complete: every phase after the load was tried. failed: the model did not load, so there are
    no observations but those of files. absent: the release does not know the model. unfinished: the run ended early;
    the capture has the observations made until then."""
    failure: Failure | None = None
    """The exception of the load."""
    failures: tuple[Failure, ...] = ()
    """Exceptions of phases after the load, such as ``greedy short``; other phases still ran."""
    unfinished: Unfinished | None = None
    absent: str | None = None
    """Why this stack does not know the model."""
    heap: str = ""
    """How uninitialised memory was filled, and whether a check found the pattern there."""
    probe_effect: Literal["none", "changed the bits", "not checked"] = "not checked"
    """Whether the instrumentation of the forward changed its logits."""
    skips: tuple[Skip, ...] = ()
    signals: Signals = Signals()
    seconds: dict[str, float] = Field(default_factory=dict)
    """Phase -> seconds."""
    counts: dict[str, int] = Field(default_factory=dict)
    """Phase -> number of forwards of the model, including those inside ``generate()``."""
    threads: int = 1
    """Threads of its forwards; captures with different numbers are never compared."""
    entered: dict[str, tuple[int, ...]] = Field(default_factory=dict)
    """File of transformers -> first lines of the functions that run a entered, in order."""
    slots: int = 1
    """Number of jobs that could run in parallel; each had an equal share of the memory."""

    @property
    def raised(self) -> Failure | None:
        """The exception of the load, else the first exception of a later phase."""
        return self.failure or next(iter(self.failures), None)
