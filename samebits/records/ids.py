"""The words of docs/design.md as types: variant, cell, signal, verdict."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from samebits.records.record import Record

DTYPES = ("float64", "float32", "float16", "bfloat16")
"""The dtypes a model can be loaded in."""


class Variant(Record):
    """How a model is run: dtype, attention implementation and device."""

    dtype: str
    attention: str
    device: str = "cpu"

    def __str__(self) -> str:
        """Return the name used everywhere, such as ``float32-sdpa`` or ``float16-eager-cuda``."""
        name = f"{self.dtype}-{self.attention}"
        return name if self.device == "cpu" else f"{name}-{self.device.replace(':', '')}"


class CellId(Record):
    """One model in one variant on one stack; prints as ``llama/float32-sdpa@4.48``."""

    model: str
    variant: Variant
    stack: str

    def __str__(self) -> str:
        """Return the identifier used in config, logs, folders and the report."""
        return f"{self.model}/{self.variant}@{self.stack}"


Signal = Literal[
    "load",
    "config",
    "inputs",
    "weights",
    "buffers",
    "inv_freq",
    "attention.kernel",
    "hidden_states",
    "logits",
    "decode",
    "greedy",
]
"""The things a probe observes, in the order in which data flows through a model."""

SIGNALS: tuple[Signal, ...] = (
    "load",
    "config",
    "inputs",
    "weights",
    "buffers",
    "inv_freq",
    "attention.kernel",
    "hidden_states",
    "logits",
    "decode",
    "greedy",
)

EXPLANATORY: frozenset[Signal] = frozenset({"load", "config", "attention.kernel"})
"""Signals that explain a verdict and never make one.

A kernel called with other arguments, or a config with another key, is no difference while
every tensor is the same; when a tensor differs, it is the first place to look.
"""


class Verdict(StrEnum):
    """What is said of one cell against its reference cell; see docs/design.md."""

    REFERENCE = "reference"
    IDENTICAL = "identical"
    ROUNDING = "rounding"
    DIVERGED = "diverged"
    DIFFERS = "differs"
    UNSTABLE = "unstable"
    FAILED = "failed"
    NOT_FINISHED = "not finished"
    """A run ended before it had observed all that it was to observe; its time or memory was short."""
    NOT_OBSERVED = "not observed"
    """No forward could be fed, or no stack's forward takes what samebits makes for it."""
    ABSENT = "absent"
    EXPECTED = "expected"
    FIXED = "fixed"

    @property
    def passes(self) -> bool:
        """True if a run that holds only such verdicts exits with 0."""
        return self in _PASSING


_PASSING = frozenset(
    {
        Verdict.REFERENCE,
        Verdict.IDENTICAL,
        Verdict.ROUNDING,
        Verdict.ABSENT,
        Verdict.EXPECTED,
    }
)
