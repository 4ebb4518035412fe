"""Every operation of one forward, as a trace probe writes it, and the cause that two traces give."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import Field

from samebits.records.capture import Failure
from samebits.records.ids import CellId
from samebits.records.record import Record
from samebits.records.tensor import TensorRef

FORMAT_VERSION: Literal[2] = 2
# History of FORMAT_VERSION:
# 1: first.
# 2: it bears a seal.


class Value(Record):
    """One content: a dtype and the bytes of the logically contiguous tensor, shape apart."""

    hash: str
    """80 bits of SHA-256 in hex; rows of padding count as zeros."""
    dtype: str
    shape: tuple[int, ...]
    """Of the tensor that it was met in first."""
    structural: bool = False
    """True if it follows from integers and constants alone: masks, positions, indices."""
    bag: str = ""
    """Identifies the elements in any order; '' where it was not computed."""
    rows: str = ""
    """Identifies every row of the last axis: int64 per row, base64."""
    literal: tuple[str, ...] | None = None
    """The numbers, of a value with few."""


class Op(NamedTuple):
    """One operation: numbers of words, of values, and of what ran it."""

    name: int
    arguments: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    module: int
    chain: int
    line: int


class Function(Record):
    """A function of transformers or of the model's own code that an operation was called from."""

    module: str
    name: str
    file: str
    line: int
    own: bool = False
    digest: str = ""
    """Of its normalised source; two functions with the same digest compute the same."""


class Visibility(Record):
    """Which keys each query of one attention may see."""

    op: int
    shape: tuple[int, ...]
    """[batch, heads, queries, keys]; one head if all agree."""
    allowed: str
    """Bits in row-major order, zlib, base64; '' if there are too many."""


class Seen(TensorRef):
    """A tensor that entered an operation, with its place in memory."""

    strides: tuple[int, ...] = ()
    aligned: int = 0
    """Bytes behind a 64-byte boundary."""
    whole: str = ""
    """Its content as a trace identifies it, rows of padding included."""


class Look(Record):
    """What one operation took and gave, by its bytes, and what it gives when it runs again."""

    inputs: tuple[Seen, ...]
    chain: tuple[int, ...] = ()
    """Numbers of the functions around it, innermost first."""
    outputs: tuple[TensorRef, ...] = ()
    fresh: tuple[Value, ...] | None = None
    """What it gives for contiguous copies in fresh memory; None if it refuses them."""
    same_layout: tuple[Value, ...] | None = None
    """What it gives for copies with the same strides."""


class Trace(Record):
    """One prompt of one cell, operation by operation."""

    format: Literal["samebits-trace"] = "samebits-trace"
    format_version: Literal[2] = FORMAT_VERSION
    cell: CellId
    prompt: str
    what: Literal["forward", "decode"]
    rung: Literal["own", "float64"] = "own"
    """float64: computed in promoted float64, and values are identified so coarsely (to 2^-20 of
    the largest number) that rounding does not show."""
    failure: Failure | None = None
    effect: Literal["none", "changed the bits", "not checked"] = "not checked"
    """Whether tracing changed the logits."""
    real_rows: tuple[tuple[int, int], ...] | None = None
    """Per batch row the half-open range of positions that are no padding; None: no padding."""
    seconds: dict[str, float] = Field(default_factory=dict)
    values: tuple[Value, ...] = ()
    sources: dict[int, str] = Field(default_factory=dict)
    """Values that no operation made -> name of the parameter, buffer or input, or ``constant``."""
    ops: tuple[Op, ...] = ()
    names: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    """An operation's arguments as written, with % for each tensor."""
    modules: tuple[str, ...] = ()
    chains: tuple[str, ...] = ()
    """Numbers of the running functions, innermost first."""
    functions: tuple[Function, ...] = ()
    marks: tuple[tuple[str, int], ...] = ()
    """Layer outputs and logits, in order of execution, by value."""
    attentions: tuple[Visibility, ...] = ()
    looks: dict[int, Look] = Field(default_factory=dict)
    texts: dict[int, str] = Field(default_factory=dict)
    """Source of functions around the operations that were looked at."""


CauseKind = Literal[
    "input",
    "weight",
    "buffer",
    "constant",
    "mask",
    "padding",
    "keys",
    "positions",
    "argument",
    "kernel",
    "precision",
    "memory",
    "layout",
    "shape",
    "wiring",
    "operation",
]
"""What it is that differs first.

input: another tensor is fed. weight, buffer, constant: a stored number that does not exist on the other side. mask: which keys a
query sees. padding: what stands in rows of padding reaches the others. keys: the rows of keys that a fused attention is
given. positions: indices or positions. argument: the same operation with another scalar.
kernel: another implementation of attention. precision: another dtype. memory: the same operation on
the same numbers, laid out otherwise in memory. layout: the elements of the same tensors in other
places. shape: the same tensors cut or turned otherwise. wiring: the same operation takes another tensor,
which the reference has, too. operation: another operation.
"""


class Side(Record):
    """The operation or the tensor on one side."""

    stack: str
    op: str = ""
    """Such as ``aten.mm.default``; '' for a tensor that nothing computes."""
    arguments: str = ""
    module: str = ""
    function: str = ""
    source: str = ""
    """File and line."""
    tensor: str = ""
    """Name of the parameter, buffer or constant, or what the output is."""
    inputs: tuple[str, ...] = ()
    """dtype and shape of each input, and where it is from."""
    outputs: tuple[str, ...] = ()
    attention: str = ""
    """Of an attention by hand, the operations from scores to weights; of a kernel, its call."""


class SourceDiff(Record):
    """One function that ran on the way to the cause and is not the same on both sides."""

    function: str
    reference: str
    """File and line; '' if the function is not there."""
    candidate: str
    diff: str
    """Unified, of limited length."""
    cut: int = 0
    """Lines that were left out."""


class Cause(Record):
    """The first place where two cells part, and how that is known."""

    kind: CauseKind
    headline: str
    """One line in plain words."""
    prompt: str
    """'' if no prompt was run to find it."""
    what: Literal["forward", "decode", "load"]
    """load: seen by comparing what is stored; no trace was needed, or none tells more."""
    sink: str
    """The first layer output or logits that differ, with the cause on the way to it; of a load the
    signal."""
    candidate: Side
    reference: Side | None = None
    evidence: tuple[str, ...] = ()
    replay: str = ""
    """What the operation gives when it is fed the reference's inputs by itself."""
    also: tuple[str, ...] = ()
    """Other places on the way to the same layer that part by themselves."""
    diffs: tuple[SourceDiff, ...] = ()
    beyond: Cause | None = None
    """Where the two part by more than rounding, if that is another place: the first difference that
    promoted float64 leaves."""
    float64: str = ""
    """What promoted float64 says: that nothing is left, that it is the same place, or why not."""
