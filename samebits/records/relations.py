"""What a probe found of a relation that must hold inside one cell: two ways, the same rows."""

from __future__ import annotations

from typing import Literal

from samebits.records.record import Record

RelationName = Literal[
    "full forward = prefill + decode",
    "prefill split anywhere",
    "multi-token verify = single-token decode",
    "cache contents",
    "prefix cache reused",
    "greedy without cache = with cache",
    "greedy by hand = generate()",
    "position ids left out",
    "left padding",
    "right padding",
    "batch position",
    "batch size",
    "row order",
    "causality",
]
"""The relations, as they are called everywhere."""


class Distance(Record):
    """How far two ways to compute the same rows are apart."""

    n: int
    """Elements compared."""
    n_differ: int
    """Elements whose bytes differ."""
    max_abs: float
    mean_abs: float
    argmax_changes: int | None = None
    """Logits only: positions whose argmax differs."""


class LayerDistance(Record):
    """One layer's share."""

    name: str
    distance: Distance
    promoted: Distance | None = None
    """The same in float64."""


class TopDifference(Record):
    """One of the largest differences of the logits."""

    position: int
    token: int
    one: float
    other: float


class CacheTensor(Record):
    """One tensor of a cache after one pass and after two."""

    name: str
    """Such as ``layer 1 keys`` or ``layer 0 conv_state``."""
    shape: tuple[int, ...]
    distance: Distance


class GreedySplit(Record):
    """Where two ways to decode greedily part."""

    step: int | None
    """None: never."""
    margin: float | None = None
    """Between the two largest logits there, on the first way."""
    one: tuple[int, ...]
    other: tuple[int, ...]


class Relation(Record):
    """One relation on one prompt shape, in one dtype."""

    relation: RelationName
    case: str
    """The shape it was tried at, such as ``40 tokens, split at 39``."""
    holds: bool
    """True if every byte that must agree agrees, in every layer, too; for relations of tokens, if
    the tokens do and the logits that chose them do not compute another function."""
    distance: Distance | None = None
    """Of the logits, over all rows that must agree; of the whole cache for ``cache contents``; for
    relations of tokens of the logits that chose them, up to where the tokens part."""
    promoted: Distance | None = None
    """The same relation in float64, with every float32 that the code asks for promoted, too."""
    layers: tuple[LayerDistance, ...] = ()
    positions: tuple[float, ...] = ()
    """Largest absolute difference of the logits at each position compared."""
    top: tuple[TopDifference, ...] = ()
    cache: tuple[CacheTensor, ...] = ()
    split: GreedySplit | None = None
    tried: int = 1
    """Shapes tried; the case shown is the worst, or the smallest that fails."""
    note: str = ""
    """Why the two ways are not expected to agree at this shape, if the model means them not to."""


class Inapplicable(Record):
    """A relation that has no meaning for this model or release, and why."""

    relation: RelationName
    reason: str


class Precision(Record):
    """What the bits of a group of tensors can hold, beside what their dtype promises."""

    what: Literal["parameters", "activations", "logits"]
    dtype: str
    mantissa_bits: int
    """Explicit mantissa bits of the dtype: 23 for float32, 7 for bfloat16."""
    used_bits: int
    """Explicit mantissa bits that are not zero in every value: 7 in a float32 tensor means that
    it was computed in bfloat16."""


class SampleAverages(Record):
    """Means over many prompts of the largest difference of each layer, as in issue 25420."""

    samples: int
    dtype: str
    layers: dict[str, float]
    """Layer, and ``logits`` last -> mean of the maxima."""


class InvariantsSignal(Record):
    """Every relation tried in one cell."""

    relations: tuple[Relation, ...] = ()
    inapplicable: tuple[Inapplicable, ...] = ()
    precision: tuple[Precision, ...] = ()
    no_precision: str | None = None
    """Why the precision of activations and logits is not known; None if it is."""
    averages: SampleAverages | None = None
    no_float64: str | None = None
    """Why there are no figures in float64; None if there are."""
    seconds: float = 0.0
