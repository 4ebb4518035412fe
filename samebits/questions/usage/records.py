"""Common uses of a model and their results in one release; facts without a judgement.

probes/samebits_probe/questions/usage/ writes :class:`UsageSignal` without this class; it is the schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import sqrt
from typing import Annotated

from pydantic import Field

from samebits.questions.usage.generation import GenerationSignal
from samebits.records.capture import Capture
from samebits.records.made import MadeModel
from samebits.records.question import Answer, Key, StacksOfRow
from samebits.records.record import RAISED, Record
from samebits.records.report import Row
from samebits_wire.arguments import OF_PADDED

_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


CACHES = ("dynamic", "dynamic_full", "sliding_window", "hybrid", "hybrid_chunked", OF_PADDED)
"""Kinds of caches beside the static one, as ``cache_implementation`` names them, and that of a batch with padding."""


def _rounding(distance: float, dtype: str) -> float:
    """Return up to where a change counts as rounding, where ``distance`` would be a real one.

    It is the middle, on a logarithmic scale, between ``distance`` times the unit roundoff of
    ``dtype`` and ``distance``.
    """
    return distance * sqrt(_ROUNDOFF[dtype])


class Attentions(Record):
    """The result of ``output_attentions=True``."""

    implementation: str
    """The attention implementation of the model; '' if its config does not contain it."""
    given: str
    """``tensors``, ``None``, ``None for each layer``, ``an empty tuple``, ``tensors and None``, or
    the exception."""
    logits_changed: bool | None = None
    """Whether the argument changed the bits of the logits; None if no tensors were returned."""
    set_in_config: Annotated[str, RAISED] = ""
    """The exception of ``config.output_attentions = True``; '' if there is none."""
    eager: str | None = None
    """The same as ``given`` for the model forced to eager; None: not tried, because tensors were
    returned or the model is eager already."""


class PackedWay(Record):
    """Two sequences packed into one row, with position_ids that restart, with some arguments."""

    way: str
    """The arguments: ``no mask, no cache`` …"""
    by_the_first: float | None = None
    """Largest change of the second sequence's logits when the first sequence is replaced."""
    from_alone: float | None = None
    """Largest distance of the second sequence's logits from those of a separate run."""
    refused: Annotated[str, RAISED] = ""
    """The exception."""


class Packed(Record):
    """Whether the second of two packed sequences attends to the first."""

    ordinary: float
    """The same as ``by_the_first`` with ordinary positions, where the row is one sequence."""
    ways: tuple[PackedWay, ...]

    def sees(self, way: PackedWay, dtype: str) -> bool | None:
        """Return whether the second sequence attends to the first; None if that is unknown.

        The rounding in an expert's matrix product may depend on the other tokens of the row, so a
        change counts as rounding up to :func:`_rounding` of ``ordinary``.
        """
        if way.by_the_first is None or not self.ordinary:
            return None
        return way.by_the_first > _rounding(self.ordinary, dtype)


class CacheLayers(Record):
    """Layers of a KV cache with the same class and number of positions."""

    kind: str
    """Class of the layers; class of the whole cache if it has no layers."""
    keys: int
    """Number of positions in the key tensors."""
    n: int
    """Number of layers."""


class CacheHeld(Record):
    """A KV cache after one forward of more tokens than the sliding window."""

    fed: int
    """Number of tokens of the forward."""
    kind: str
    """Class of the cache."""
    seq_length: int | None
    """Result of ``get_seq_length()``; None if the cache has no such method."""
    layers: tuple[CacheLayers, ...] = ()


class CachePosition(Record):
    """The argument ``cache_position`` of forward."""

    named: bool
    """Whether forward's signature has it."""
    wrong: str
    """Result of positions that are too large by three: ``the same logits``, ``other logits``, or
    the exception."""


class PositionIds(Record):
    """``generate(position_ids=…)`` with the positions that it would compute itself."""

    prompt: int = 0
    """Number of tokens of the prompt."""
    fed: tuple[int | None, ...] = ()
    """For each step, the last position that forward received; None: it received no positions."""
    same_logits: bool | None = None
    """Whether the logits of every step equal those of generate() without the argument; None: it
    raised."""
    refused: Annotated[str, RAISED] = ""
    """The exception."""


class Assisted(Record):
    """Exceptions of assisted generation; '' if there is none."""

    min_new_tokens: Annotated[str, RAISED]
    """Exception of ``generate(assistant_model=…, min_new_tokens=2)``."""
    plain: str = ""
    """Exception of the same call without ``min_new_tokens``, tried if the first failed."""


class Beams(Record):
    """Beam search over a cache, with beams that take each other's places; logits of its last step."""

    n_moved: int = 0
    """How often a row went on with the tokens of another row."""
    greedy: float | None = None
    """Largest distance between greedy decoding over a cache and a forward without one."""
    by_cache: float | None = None
    """The same for the beams: each row against a forward of its own tokens."""
    of_others: float | None = None
    """Largest distance between two beams, which is what a state of another beam would give."""
    refused: Annotated[str, RAISED] = ""
    """The exception."""

    def keeps_state(self, dtype: str) -> bool | None:
        """Return whether each beam goes on with its own state; None if that is unknown.

        A cache that is wrong without beams shows nothing of them.
        """
        if self.by_cache is None or self.greedy is None or not self.of_others:
            return None
        limit = _rounding(self.of_others, dtype)
        return None if self.greedy > limit else self.by_cache <= limit


class SecondCall(Record):
    """A greedy generate() against an earlier one of the same prompt."""

    steps: tuple[int, ...] = ()
    """Number of new tokens of both calls."""
    n_same: int = 0
    """Number of new tokens until the first one that differs."""
    apart: float | None = None
    """Largest distance between the scores of both calls, up to the first token that differs."""
    of_steps: float | None = None
    """Largest distance between the scores of the first and the last step: what counts as far."""
    refused: Annotated[str, RAISED] = ""
    """The exception of the second call."""

    def agrees(self, dtype: str) -> bool | None:
        """Return whether both calls chose from the same scores, but for rounding; None: unknown.

        The bits of a product may depend on where its tensors lie in memory.
        """
        if self.apart is None or not self.of_steps:
            return None
        return len(set(self.steps)) == 1 and self.apart <= _rounding(self.of_steps, dtype)


class Checkpointing(Record):
    """``gradient_checkpointing_enable()`` without arguments."""

    use_reentrant: bool | None = None
    """The value passed to torch.utils.checkpoint; None: it is not passed."""
    refused: Annotated[str, RAISED] = ""
    """The exception."""


class SavedFiles(Record):
    """``save_pretrained(folder, safe_serialization=False)``."""

    max_shard_size: str = ""
    """The default of that argument."""
    files: tuple[str, ...] = ()
    dtype_keys: tuple[str, ...] = ()
    """The keys of config.json that contain the dtype."""
    refused: Annotated[str, RAISED] = ""
    """The exception."""


class Features(Record):
    """What a method such as ``get_text_features`` returns for seeded inputs."""

    returned: str = ""
    """Class of what it returns; the argument of forward that is given its features."""
    shape: tuple[int, ...] = ()
    digest: str = ""
    """Hash of the tensor, or of the pooled one of an output; '' if there is none."""
    distance: float | None = None
    """Distance of forward's outputs for the features from those for their inputs, relative to the largest value."""
    raises: str = ""
    """The exception of forward with these features; it means something only where another release takes them."""
    left_out: str = ""
    """Why it was not called."""
    refused: Annotated[str, RAISED] = ""
    """The exception."""

    @property
    def exception(self) -> str:
        """The exception of the call; '' if there was none."""
        return self.refused or self.raises

    def holds(self, dtype: str) -> bool:
        """Return True if forward gives the same for the features as for their inputs, but for rounding."""
        return self.distance is not None and self.distance <= _rounding(1.0, dtype)


class Names(Record):
    """The names by which users reach into a model, or into its config."""

    class_name: str
    own: tuple[str, ...]
    """Of a model: its parts, and what its own classes define beyond what all models have. Of a config: its fields
    beyond those of all configs, and what it answers of the fields of its parts."""
    shared: tuple[str, ...]
    """All names of its class, those of the library's bases included; of a config those of the base alone."""
    within: dict[str, str] = Field(default_factory=dict)
    """The same of the models or configs within it that it has not itself -> path of the outermost that has it."""

    def lacks(self, name: str) -> bool:
        """Return True if it raises for the name."""
        return name not in self.own and name not in self.shared


class NamedAttention(Record):
    """Which attention the parts of a config get when a user names one."""

    parts: dict[str, str] = Field(default_factory=dict)
    """Part of the config -> its ``_attn_implementation``."""
    refused: Annotated[str, RAISED] = ""
    """The exception."""


class Called(Record):
    """What came of a call of a method that libraries use."""

    gave: str = ""
    """What it returned, or did, in a few words."""
    left_out: str = ""
    """Why it was not called."""
    refused: Annotated[str, RAISED] = ""
    """The exception."""


class UsageSignal(Answer):
    """Results of all uses tried with one model; None if not tried, with the reason in ``skips``."""

    attentions: Attentions | None = None
    packed: Packed | None = None
    cache: CacheHeld | None = None
    cache_position: CachePosition | None = None
    repeated: SecondCall | None = None
    """The second of two equal calls of generate(), with another call in between."""
    static: SecondCall | None = None
    """A call with ``cache_implementation="static"`` after one with the default cache."""
    flex: SecondCall | None = None
    """The same with flex attention."""
    caches: dict[str, SecondCall] | None = None
    """Each other ``cache_implementation`` that fits the model -> such a call."""
    position_ids: PositionIds | None = None
    assisted: Assisted | None = None
    strategies: Annotated[dict[str, str] | None, RAISED] = None
    """Argument of generate() -> its exception, '' if there is none. These are strategies that some
    releases have moved to code on the hub."""
    beams: Beams | None = None
    several: dict[str, Beams] | None = None
    """Prompt of several rows with an image, a video or a sound in each -> beam search with two answers to a row."""
    features: dict[str, Features] | None = None
    """Method -> what it returns."""
    optional: tuple[str, ...] | None = None
    """Imports of packages that are not installed, and kernels that are taken unasked."""
    names: Names | None = None
    """By what users reach into the model."""
    config_names: Names | None = None
    """By what users reach into its config and the parts of it."""
    attention: dict[str, NamedAttention] | None = None
    """Way to name an attention -> what the parts of the config get."""
    settings: dict[str, Called] | None = None
    """Setting of the config -> what came of a forward with it."""
    loads: dict[str, Called] | None = None
    """Load with an argument -> what it gives, beside one without it."""
    methods: dict[str, Called] | None = None
    """Call of a method that the class has -> what came of it."""
    generation: GenerationSignal | None = None
    checkpointing: Checkpointing | None = None
    saved: SavedFiles | None = None
    skips: dict[str, str] = Field(default_factory=dict)
    """Field of this record -> why it is None."""
    raised: Annotated[dict[str, str], RAISED] = Field(default_factory=dict)
    """Field of this record that was asked for -> the exception, '' if there is an answer."""
    asked_of: MadeModel | None = None
    """The made model that answered for a large one; None: the model itself did."""
    seconds: float = 0.0


def with_cache(name: str) -> Callable[[UsageSignal], SecondCall | None]:
    """Return what returns the call with a kind of cache; None where it was not tried."""
    if name == "static":
        return lambda usage: usage.static
    return lambda usage: (usage.caches or {}).get(name)


class UsageOfRow(StacksOfRow[UsageSignal]):
    """Results of the uses of a model in the cells of a row."""


USAGE = Key(
    "usage",
    UsageSignal,
    UsageOfRow,
    switch="Whether to try common uses of the model: attention maps, packed rows, generate() …",
    hint="do attention maps, packed rows, generate() and saving work",
    of_release=True,
    of_model=("methods", "names", "config_names"),
)


def signals_of(row: Row) -> Mapping[str, UsageSignal]:
    """Return what the cells of a row answered, by stack."""
    answer = USAGE.in_row(row.answers)
    return answer.stacks if answer is not None else {}


def signal_of(capture: Capture | None) -> UsageSignal:
    """Return what a cell answered; an empty signal if nothing was tried."""
    return USAGE.in_cell(capture) or UsageSignal()
