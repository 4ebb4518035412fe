"""The phases of a cell after the load; each module here is one, and holds it as ``PHASE``.

A new phase is a new module. It is found by itself, and runs where its ``order`` says. Questions beside the
verdict have phases of their own, in samebits_probe/questions/.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from samebits_probe.cell.phase import Phase


def discover(folders: list[str], package: str) -> Iterator[Phase]:
    """Yield the phases of all modules in some folders."""
    for module in pkgutil.iter_modules(folders):
        yield importlib.import_module(f"{package}.{module.name}").PHASE


def every() -> tuple[Phase, ...]:
    """Return the phases of the verdict and those of questions, in the order in which they run."""
    questions = importlib.import_module("samebits_probe.questions")
    phases = (*discover(list(__path__), __name__), *questions.phases())
    return tuple(sorted(phases, key=lambda phase: phase.order))


PHASES = every()
