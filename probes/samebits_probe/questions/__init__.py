"""What runs in a stack for each question beside the verdict; one folder each, found by its name.

``phase.py`` of a folder, if there is one, holds a ``PHASE`` of each cell. Any other module may do jobs of
its own: a job of kind ``training.step`` is done by ``run(job)`` of ``questions/training/step.py``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

from samebits_probe.cell.phase import Phase


def phases() -> Iterator[Phase]:
    """Yield the phases of all questions."""
    for folder in pkgutil.iter_modules(list(__path__)):
        package = importlib.import_module(f"{__name__}.{folder.name}")
        if any(module.name == "phase" for module in pkgutil.iter_modules(package.__path__)):
            yield importlib.import_module(f"{package.__name__}.phase").PHASE
