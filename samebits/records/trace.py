"""Traces of all operations of a forward, and the cause of a difference that two traces show."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from pydantic import Field

from samebits.records.record import Record
from samebits.records.result import CellFile
from samebits.records.tensor import TensorRef
from samebits_wire import formats


class Value(Record):
    """The content of a tensor: its dtype and its bytes in contiguous order, without its shape."""

    hash: str
    """80 bits of BLAKE3 in hex; padding rows count as zeros."""
    dtype: str
    shape: tuple[int, ...]
    """Shape of the first tensor with this content."""
    structural: bool = False
    """True if it depends only on integers and constants: masks, positions, indices."""
    bag: str = ""
    """Hash of the elements independent of their order; '' if it was not computed."""
    rows: str = ""
    """Hash of every row of the last axis: int64 per row, base64."""
    literal: tuple[str, ...] | None = None
    """The numbers, if there are few."""


class Op(NamedTuple):
    """One operation, as indices into the lists of its :class:`Trace`."""

    name: int
    arguments: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    module: int
    chain: int
    line: int


class Function(Record):
    """A function of transformers or of the remote code that was running during an operation."""

    module: str
    name: str
    file: str
    line: int
    own: bool = False
    digest: str = ""
    """Digest of its normalised source; two functions with the same digest compute the same."""


class Visibility(Record):
    """The attention mask of one attention: which keys each query may attend to."""

    op: int
    shape: tuple[int, ...]
    """[batch, heads, queries, keys]; one head if the mask is the same for all heads."""
    allowed: str
    """Bits in row-major order, zlib, base64; '' if there are too many."""


class Seen(TensorRef):
    """An input tensor of an operation, with its memory layout."""

    strides: tuple[int, ...] = ()
    aligned: int = 0
    """Distance in bytes from the preceding 64-byte boundary."""
    whole: str = ""
    """Hash of its content as in :class:`Value`, but including padding rows."""


class Look(Record):
    """Inputs and outputs of one operation, and its outputs when it is repeated on copies."""

    inputs: tuple[Seen, ...]
    chain: tuple[int, ...] = ()
    """Indices of the functions that were running, innermost first; then those of the constructors of
    the modules around."""
    outputs: tuple[TensorRef, ...] = ()
    fresh: tuple[Value, ...] | None = None
    """Outputs for contiguous copies of the inputs in new memory; None if it rejects them."""
    same_layout: tuple[Value, ...] | None = None
    """Outputs for copies with the same strides."""


class Trace(CellFile):
    """One prompt of one cell, operation by operation."""

    format: Literal["samebits-trace"] = "samebits-trace"
    format_version: Literal[4] = formats.TRACE
    prompt: str
    """For a training step, the name of the batch."""
    what: Literal["forward", "decode", "training"]
    rung: Literal["own", "float64"] = "own"
    """float64: computed in promoted float64; values are compared so coarsely (to 2^-20 of the
    largest number) that rounding makes no difference."""
    effect: Literal["none", "changed the bits", "not checked"] = "not checked"
    """Whether tracing changed the logits."""
    real_rows: tuple[tuple[int, int], ...] | None = None
    """Per batch row, the half-open range of positions that are not padding; None: no padding."""
    seconds: dict[str, float] = Field(default_factory=dict)
    values: tuple[Value, ...] = ()
    sources: dict[int, str] = Field(default_factory=dict)
    """Value that is not the output of an operation -> name of the parameter, buffer or input, or
    ``constant``."""
    ops: tuple[Op, ...] = ()
    names: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    """Arguments of operations as text, with % for each tensor."""
    modules: tuple[str, ...] = ()
    chains: tuple[str, ...] = ()
    """Indices of the running functions, innermost first."""
    functions: tuple[Function, ...] = ()
    marks: tuple[tuple[str, int], ...] = ()
    """Layer outputs and logits with the index of their value, in order of execution."""
    attentions: tuple[Visibility, ...] = ()
    looks: dict[int, Look] = Field(default_factory=dict)
    """Operation -> its inputs and outputs, for the operations that were examined."""
    texts: dict[int, str] = Field(default_factory=dict)
    """Function -> its source, for the functions around these operations."""


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
"""The kind of the first difference.

input: another input tensor. weight, buffer, constant: a stored number that the other side does not
have. mask: which keys a query attends to. padding: values in padding rows affect other rows. keys:
the rows of keys that a fused attention gets. positions: indices or positions. argument: the same
operation with another scalar. kernel: another implementation of attention. precision: another
dtype. memory: the same operation on the same numbers with another memory layout. layout: the same
elements of a tensor at other indices. shape: the same tensors sliced or transposed differently.
wiring: the same operation takes another tensor, which the reference has, too. operation: another
operation.
"""

GIVEN: frozenset[CauseKind] = frozenset({"wiring", "positions", "mask", "keys"})
"""Kinds in which an operation does the same on both sides, and is given something else."""


FAMILY = re.compile(r"transformers/models/([^/]+)/")
"""Begins the file of a place in the code of one family of models."""


class Side(Record):
    """The operation or the tensor on one side."""

    stack: str
    op: str = ""
    """Such as ``aten.mm.default``; '' for a tensor that is not the output of an operation."""
    arguments: str = ""
    module: str = ""
    function: str = ""
    source: str = ""
    """File and line."""
    tensor: str = ""
    """Name of the parameter, buffer or constant, or a description of the output."""
    inputs: tuple[str, ...] = ()
    """dtype, shape and origin of each input."""
    outputs: tuple[str, ...] = ()
    attention: str = ""
    """For an attention without a fused kernel: the operations from scores to weights; for a kernel:
    its call."""
    unread: tuple[str, ...] = ()
    """Parameters that the operation of the other side takes besides the same inputs, and that this side
    holds and no operation of its trace takes."""


class SourceDiff(Record):
    """One function that ran before the cause and has different source on the two sides."""

    function: str
    reference: str
    """File and line; '' if the function does not exist."""
    candidate: str
    diff: str
    """Unified diff of limited length."""
    cut: int = 0
    """Number of lines that were left out."""


class TraceLine(Record):
    """One operation of a trace, for a reader."""

    op: str
    arguments: str = ""
    module: str = ""
    outputs: tuple[str, ...] = ()
    """dtype and shape of the first output."""
    shared: bool
    """True if the other side computes all its outputs, too."""


class TracePair(Record):
    """Operations of both sides that stand side by side; None where only one side has an operation."""

    reference: TraceLine | None
    candidate: TraceLine | None
    starts: bool = False
    """True for the operation that the cause names, on either side."""


class Cause(Record):
    """The first difference between two cells, with the evidence for it."""

    kind: CauseKind
    headline: str
    """One line in plain words."""
    prompt: str
    """'' if it was found without a prompt."""
    what: Literal["forward", "decode", "load"]
    """load: found by comparing stored tensors; a trace was not needed, or shows no more."""
    decides: bool = True
    """False if it is the cause of another difference than the one that decides the verdict."""
    sink: str
    """The first layer output or logits that differ by this cause; for ``load``, the signal."""
    candidate: Side
    reference: Side | None = None
    evidence: tuple[str, ...] = ()
    replay: str = ""
    """Result of the candidate's operation on the reference's inputs."""
    also: tuple[str, ...] = ()
    """Other independent differences before the same layer output."""
    diffs: tuple[SourceDiff, ...] = ()
    around: tuple[TracePair, ...] = ()
    """The operations around it in both traces, in order of execution; () if a side has no operation
    there."""
    beyond: Cause | None = None
    """The first difference larger than rounding, if it is at another place: the first one that
    remains in promoted float64."""
    float64: str = ""
    """Result in promoted float64: no difference remains, it is at the same place, or it was not
    computed, with the reason."""
