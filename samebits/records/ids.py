"""Basic terms of docs/design.md as types: variant, cell, signal, verdict."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from samebits.records.record import Record

DTYPES = ("float64", "float32", "float16", "bfloat16")
"""The dtypes that a model can be loaded in."""


class Variant(Record):
    """How a model is run: dtype, attention implementation and device."""

    dtype: str
    attention: str
    device: str = "cpu"

    def __str__(self) -> str:
        """Return the variant's name, such as ``float32-sdpa`` or ``float16-eager-cuda``."""
        name = f"{self.dtype}-{self.attention}"
        return name if self.device == "cpu" else f"{name}-{self.device.replace(':', '')}"


def answering(variants: Iterable[Variant]) -> Variant | None:
    """Return the variant that is asked what no variant decides: one on the CPU, in float32 if possible.

    float32 shows the most, as less of it is rounding.
    """
    on_cpu = [variant for variant in variants if variant.device == "cpu"]
    in_float32 = (variant for variant in on_cpu if variant.dtype == "float32")
    return next(in_float32, next(iter(on_cpu), None))


class CellId(Record):
    """One model in one variant on one stack; prints as ``llama/float32-sdpa@4.48``."""

    model: str
    variant: Variant
    stack: str

    def __str__(self) -> str:
        """Return the identifier used in config, logs, folders and the report."""
        return f"{self.model}/{self.variant}@{self.stack}"


Level = Literal["quick", "default", "deep"]
"""How much a run asks of each model; samebits/matrix/levels.py says what each means."""

Signal = str
"""Name of a quantity that a probe observes, such as ``logits``."""

EXPLANATORY_ORDER: tuple[tuple[int, Signal], ...] = (
    (1, "load"),
    (2, "config"),
    (45, "attention.kernel"),
)
"""Signals that explain a verdict, with their place in the flow of data among those that make one."""

EXPLANATORY: frozenset[Signal] = frozenset(name for _, name in EXPLANATORY_ORDER)
"""Signals that explain a verdict and never affect it.

A kernel called with other arguments, or a config with another key, is not a difference if every
tensor is the same. If a tensor differs, they are the first candidates for the cause.
"""


class Verdict(StrEnum):
    """The result of comparing one cell with its reference cell; see docs/design.md."""

    REFERENCE = "reference"
    IDENTICAL = "identical"
    ROUNDING = "rounding"
    DIVERGED = "diverged"
    UNDECIDED = "undecided"
    UNSTABLE = "unstable"
    FAILED = "failed"
    NOT_FINISHED = "not finished"
    """A run ended before all observations were made, because of its time or memory limit."""
    NOT_OBSERVED = "not observed"
    """No inputs could be made for a forward, or the forward of every stack rejects them."""
    ABSENT = "absent"
    EXPECTED = "expected"
    FIXED = "fixed"

    @property
    def passes(self) -> bool:
        """True if a run with only such verdicts exits with 0."""
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
