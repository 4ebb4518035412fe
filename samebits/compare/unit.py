"""A signal that makes a verdict, as one unit: its order, its phases, how it is compared.

samebits/compare/units.py lists all units. The probes' side of a new signal is a module of
probes/samebits_probe/cell/phases/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from samebits.compare.pair import Pair
    from samebits.records.capture import Capture, ForwardFacts
    from samebits.records.comparison import SignalComparison
    from samebits.records.ids import Signal
    from samebits.records.subject import Subject
    from samebits.records.tensor import TensorRef

FORWARD = "forward"
"""First word of the phase that runs the prompts."""


class Observation(NamedTuple):
    """One observation: the value that must be equal, what it is about, and where its padding is."""

    identity: object
    signal: Signal
    subject: Subject
    ref: TensorRef | None = None
    padded: ForwardFacts | None = None
    """The forward, if dimension 1 of ``ref`` is the axis of its padding."""


class SignalUnit(NamedTuple):
    """What samebits knows of one signal."""

    name: Signal
    order: int
    """Place in the flow of data: the first signal that differs is named in the report."""
    compare: Callable[[Pair], SignalComparison | None]
    """Returns None if neither side has anything of the kind."""
    observations: Callable[[Capture], Iterator[Observation]]
    """Yields everything that both runs of a cell must agree on."""
    phases: frozenset[str]
    """First words of the phases without which the signal, or a prompt of it, is not observed."""
