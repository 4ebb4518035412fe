"""What a user does around a model, and what one release answers: facts, no judgement of them."""

from __future__ import annotations

from math import sqrt

from pydantic import Field

from samebits.records.record import Record

_ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


class Attentions(Record):
    """What ``output_attentions=True`` gives."""

    implementation: str
    """The attention that the model runs with; '' if its config does not say."""
    given: str
    """``tensors``, ``None``, ``None for each layer``, ``an empty tuple``, ``tensors and None``, or
    the exception."""
    logits_changed: bool | None = None
    """Whether asking changed the logits' bits; None where no tensors were given."""
    set_in_config: str = ""
    """The exception of ``config.output_attentions = True``; '' if there is none."""
    eager: str | None = None
    """As ``given``, of the same model forced to eager; None: not tried, as tensors were given or it
    is eager anyway."""


class PackedWay(Record):
    """Two sequences in one row, with position_ids that start again, fed in one way."""

    way: str
    """``no mask, no cache`` …"""
    by_the_first: float | None = None
    """Largest change of the second sequence's logits when the first is replaced by another."""
    from_alone: float | None = None
    """Largest distance of the second sequence's logits from those of a run of its own."""
    refused: str = ""
    """The exception."""


class Packed(Record):
    """Whether the second of two packed sequences sees the first."""

    ordinary: float
    """As ``by_the_first``, under ordinary positions, where it is one sequence."""
    ways: tuple[PackedWay, ...]

    def sees(self, way: PackedWay, dtype: str) -> bool | None:
        """Return whether the second sequence sees the first; None where nobody can tell.

        What an expert's matrix product rounds may change with the tokens beside, so a change is
        rounding up to half way, on a logarithmic scale, between ``dtype``'s unit roundoff and all.
        """
        if way.by_the_first is None or not self.ordinary:
            return None
        return way.by_the_first > self.ordinary * sqrt(_ROUNDOFF[dtype])


class CacheLayers(Record):
    """Layers of a cache that hold alike."""

    kind: str
    """The class of the layer; that of the whole cache where it has no layers."""
    keys: int
    """Positions that the key tensors hold."""
    n: int
    """Number of layers."""


class CacheHeld(Record):
    """A cache after one forward past the sliding window."""

    fed: int
    """Tokens."""
    kind: str
    seq_length: int | None
    """What ``get_seq_length()`` says; None for a cache that has no such method."""
    layers: tuple[CacheLayers, ...] = ()


class CachePosition(Record):
    """The argument ``cache_position`` of forward."""

    named: bool
    """Whether forward's signature has it."""
    wrong: str
    """What positions three too late give: ``the same logits``, ``other logits``, or the exception."""


class PositionIds(Record):
    """``generate(position_ids=…)`` with the positions that it counts by itself."""

    prompt: int = 0
    """Tokens of the prompt."""
    fed: tuple[int | None, ...] = ()
    """The last position that forward was fed, step by step; None: it was fed none."""
    same_logits: bool | None = None
    """Whether every step's logits are those of generate() without the argument; None: refused."""
    refused: str = ""
    """The exception."""


class Assisted(Record):
    """Assisted generation; exceptions, '' where there is none."""

    min_new_tokens: str
    """Of ``generate(assistant_model=…, min_new_tokens=2)``."""
    plain: str = ""
    """Of the same without ``min_new_tokens``, tried where that failed."""


class Checkpointing(Record):
    """``gradient_checkpointing_enable()`` without arguments."""

    use_reentrant: bool | None = None
    """What it hands to torch.utils.checkpoint; None: nothing of the kind."""
    refused: str = ""
    """The exception."""


class SavedFiles(Record):
    """``save_pretrained(folder, safe_serialization=False)``."""

    max_shard_size: str = ""
    """The default of that argument."""
    files: tuple[str, ...] = ()
    dtype_keys: tuple[str, ...] = ()
    """Under which names config.json says the dtype."""
    refused: str = ""
    """The exception."""


class UsageSignal(Record):
    """Everything tried around one model; None where it was not, with the reason in ``skips``."""

    attentions: Attentions | None = None
    packed: Packed | None = None
    cache: CacheHeld | None = None
    cache_position: CachePosition | None = None
    position_ids: PositionIds | None = None
    assisted: Assisted | None = None
    strategies: dict[str, str] | None = None
    """Argument of generate() -> its exception, '' if there is none: strategies that some releases
    have left to code from the hub."""
    checkpointing: Checkpointing | None = None
    saved: SavedFiles | None = None
    skips: dict[str, str] = Field(default_factory=dict)
    """Field of this record -> why it is None."""
    seconds: float = 0.0
