"""Relations that must hold inside one cell: two ways to compute the same rows.

probes/samebits_probe/questions/relations/ writes :class:`RelationsSignal` without this class; it is the
schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, Self

from samebits.records.distance import Distance
from samebits.records.made import MadeModel
from samebits.records.question import Answer, Key, StacksOfRow
from samebits.records.record import Record
from samebits.records.report import Row

RelationName = Literal[
    "full forward = prefill + decode",
    "prefill split anywhere",
    "multi-token verify = single-token decode",
    "cache contents",
    "prefix cache reused",
    "greedy without cache = with cache",
    "greedy by hand = generate()",
    "generate() past a switch of rope = without a cache",
    "position ids left out",
    "left padding",
    "left padding, positions left out",
    "right padding",
    "batch position",
    "batch size",
    "row order",
    "causality",
    "experts in another order",
    "embeddings = token ids",
    "generate() from embeddings = from token ids",
    "rows with images = one by one",
    "rows of text after images = before",
    "generate() with images or sounds = forward",
    "generate() of a padded row = without padding",
    "generate() over the cache of a turn = anew",
    "generate(use_cache=False) with images or sounds = with a cache",
    "SDPA = eager attention",
]
"""The names of the relations."""
PADDED_GENERATION: RelationName = "generate() of a padded row = without padding"
LEFT_TO_CLASSES: tuple[RelationName, ...] = ("left padding, positions left out", PADDED_GENERATION)
"""Those that a class may break by design: that another release keeps them shows that it is none."""


class LayerDistance(Record):
    """The distance of one layer's output, or of one output of forward where no tokens are fed."""

    name: str
    """``layers.0``; ``output pooler_output`` for an output of forward."""
    distance: Distance
    promoted: Distance | None = None
    """The distance in float64."""


class TopDifference(Record):
    """One of the largest differences of the logits."""

    position: int
    token: int
    one: float
    other: float


class CacheTensor(Record):
    """One tensor of a KV cache, filled in one pass and in two passes."""

    name: str
    """Such as ``layer 1 keys`` or ``layer 0 conv_state``."""
    shape: tuple[int, ...]
    distance: Distance


class GreedySplit(Record):
    """The first step at which two ways of greedy decoding choose different tokens."""

    step: int | None
    """None: they choose the same tokens."""
    margin: float | None = None
    """Difference of the two largest logits at that step, computed the first way."""
    one: tuple[int, ...]
    other: tuple[int, ...]


class Relation(Record):
    """One relation on one prompt shape, in one dtype."""

    relation: RelationName
    case: str
    """The shape that was tried, such as ``40 tokens, split at 39``."""
    holds: bool
    """True if all bytes that must agree do, also in every layer. For relations of tokens: if the
    tokens agree and the logits that chose them differ by no more than rounding."""
    distance: Distance | None = None
    """Distance of the logits over all rows that must agree. For ``cache contents``: of the whole
    KV cache. For relations of tokens: of the logits that chose them, up to the first different
    token."""
    promoted: Distance | None = None
    """The same in float64, with every float32 that the code requests promoted, too."""
    layers: tuple[LayerDistance, ...] = ()
    positions: tuple[float, ...] = ()
    """Largest absolute difference of the logits at each position compared."""
    top: tuple[TopDifference, ...] = ()
    cache: tuple[CacheTensor, ...] = ()
    split: GreedySplit | None = None
    tried: int = 1
    """Number of shapes tried; :attr:`case` is the worst of them, or the smallest that fails."""
    note: str = ""
    """Why the two ways differ at this shape by the model's design; '' if they should agree."""
    values: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """Some values of an output, computed each way, to compare with another release; in float64 where the bytes differ.
    None for relations that two releases need not share."""

    def trimmed(self) -> Self:
        """Return it without the zeros of each layer and position, if it is exact."""
        distances = [self.distance, *(layer.distance for layer in self.layers)]
        if not self.holds or any(distance and distance.n_differ for distance in distances):
            return self
        return self.model_copy(update={"layers": (), "positions": (), "top": (), "cache": ()})


class Inapplicable(Record):
    """A relation that has no meaning for this model or release, and the reason."""

    relation: RelationName
    reason: str
    raised: bool = False
    """True if the reason is an exception."""


class Precision(Record):
    """The precision that a group of tensors really has, compared with that of its dtype."""

    what: Literal["parameters", "activations", "logits"]
    dtype: str
    mantissa_bits: int
    """Explicit mantissa bits of the dtype: 23 for float32, 7 for bfloat16."""
    used_bits: int
    """Explicit mantissa bits that some value uses: 7 in a float32 tensor means that it was computed
    in bfloat16."""


class SampleAverages(Record):
    """Mean over many prompts of each layer's largest difference, as in issue 25420."""

    samples: int
    dtype: str
    layers: dict[str, float]
    """Layer, with ``logits`` as the last -> mean of the largest differences."""


class RelationsSignal(Answer):
    """All relations tried in one cell."""

    relations: tuple[Relation, ...] = ()
    inapplicable: tuple[Inapplicable, ...] = ()
    precision: tuple[Precision, ...] = ()
    no_precision: str | None = None
    """Why the precision of activations and logits is unknown; None if it is known."""
    averages: SampleAverages | None = None
    no_float64: str | None = None
    """Why there are no distances in float64; None if there are."""
    asked_of: MadeModel | None = None
    """The made model that answered for a large one; None: the model itself did."""
    seconds: float = 0.0

    def trimmed(self) -> Self:
        """Return the relations; exact ones without the zeros of each layer and position."""
        return self.model_copy(update={"relations": tuple(r.trimmed() for r in self.relations)})

    def tried(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield each relation that was tried, with its exception, '' where it answered."""
        yield from ((f"{name} {entry.relation}", "") for entry in self.relations)
        raised = (entry for entry in self.inapplicable if entry.raised)
        yield from ((f"{name} {entry.relation}", entry.reason) for entry in raised)


class RelationsOfRow(StacksOfRow[RelationsSignal]):
    """The relations inside the cells of a row."""


RELATIONS = Key(
    "relations",
    RelationsSignal,
    RelationsOfRow,
    switch=(
        "Whether to test relations that must hold inside one cell, such as full forward = prefill + decode. "
        "Models above 64 MiB: on a tiny model of the same config, unless the model's own entry has true."
    ),
    hint="is prefill + decode equal to one forward, may a row be padded, …",
)


def signals_of(row: Row) -> Mapping[str, RelationsSignal]:
    """Return the relations of a row's cells, by stack."""
    answer = RELATIONS.in_row(row.answers)
    return answer.stacks if answer is not None else {}
