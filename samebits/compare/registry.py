"""All signals that make a verdict, in the order of the flow of data.

Their units (samebits/compare/units.py) use this package's comparisons, and those ask which signals a
phase observes, so the units are loaded at the first question.
"""

from __future__ import annotations

import importlib
from functools import cache

from samebits.compare.unit import SignalUnit
from samebits.records.capture import Capture
from samebits.records.ids import EXPLANATORY_ORDER, Signal


@cache
def units() -> tuple[SignalUnit, ...]:
    """Return the unit of every signal that makes a verdict, first in the flow of data first."""
    listed: tuple[SignalUnit, ...] = importlib.import_module("samebits.compare.units").UNITS
    return tuple(sorted(listed, key=lambda unit: unit.order))


def units_of(*captures: Capture) -> tuple[SignalUnit, ...]:
    """Return the units of the signals that make a verdict in some runs: the user's probes as well."""
    probes = importlib.import_module("samebits.compare.probes")
    return (*units(), *probes.probe_units(*captures))


def signal_names() -> tuple[Signal, ...]:
    """Return the names of all signals in the flow of data, those that only explain included."""
    judged = [(unit.order, unit.name) for unit in units()]
    return tuple(name for _, name in sorted([*judged, *EXPLANATORY_ORDER]))


@cache
def signals_of_word(word: str) -> frozenset[Signal]:
    """Return the signals that need a phase whose name begins with ``word``."""
    return frozenset(unit.name for unit in units() if word in unit.phases)
