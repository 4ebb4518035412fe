"""What a task on a cluster asks of its machine, from the cells that it runs: CPUs, GPUs, memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from samebits.jobs.checkpoints import size_of
from samebits.jobs.common import LARGE, SEVERAL
from samebits.matrix.spec import Matrix, ModelSpec
from samebits.records.ids import CellId, Variant

IMPORTS = 1 << 30
"""Bytes of one job without its model: torch, transformers, and what they allocate."""
_COPIES = 2
"""A 4.x release makes a model twice while it loads it, and a second model stands beside the first later.
Whatever needs more is left out where it does not fit."""
_NARROW = 2
"""Bytes of a number in most checkpoints."""
_WIDTHS = {"float64": 8, "float32": 4}
_GPUS = ("cuda", "xpu")
"""Kinds of devices that Ray counts as GPUs."""

_OF_RAY = ("CPU", "memory", "GPU")
"""Ray's names of the fields of :class:`Resources`."""


class Resources(NamedTuple):
    """What one task asks for."""

    cpus: int
    memory: int
    """Bytes; 0 if no size of a checkpoint is known, such as of one on the hub."""
    gpus: int = 0

    def most(self, machine: Mapping[str, float]) -> Resources:
        """Return the same, but no more than a machine has: more would never be scheduled."""
        wanted = zip(self, _OF_RAY, strict=True)
        return Resources(*(min(n, int(machine.get(name, 0))) for n, name in wanted))

    def options(self) -> dict[str, object]:
        """Return the options of a Ray task."""
        return {"num_cpus": self.cpus, "num_gpus": self.gpus, "memory": self.memory or None}


def of_cells(matrix: Matrix, cells: Iterable[CellId], jobs: int) -> Resources:
    """Return what a task asks for that runs these cells with so many jobs side by side."""
    cpus, memory, gpus = jobs, 0, 0
    for cell in cells:
        model = matrix.model(cell.model)
        size = _size(matrix, model)
        cpus = max(cpus, _threads(model, size, cell.variant))
        if size is not None:
            memory = max(memory, jobs * (IMPORTS + _needs(size, cell.variant)))
        kind, _, index = cell.variant.device.partition(":")
        if kind in _GPUS:
            gpus = max(gpus, int(index or 0) + 1)
    return Resources(cpus, memory, gpus)


def _size(matrix: Matrix, model: ModelSpec) -> int | None:
    """Return the bytes of a checkpoint in a folder; None for one on the hub, or one that is to be made."""
    return None if model.path is None else size_of(Path(matrix.path).parent / model.path)


def _threads(model: ModelSpec, size: int | None, variant: Variant) -> int:
    if model.threads is not None:
        return model.threads
    return SEVERAL if variant.device == "cpu" and (size or 0) >= LARGE else 1


def _needs(size: int, variant: Variant) -> int:
    """Return the bytes of the model as it is loaded, with its copies."""
    return _COPIES * size * _WIDTHS.get(variant.dtype, _NARROW) // _NARROW


def unmet(asked: Iterable[Resources], machines: Iterable[Mapping[str, float]]) -> list[str]:
    """Return what no machine of a cluster has now, one line each; a cluster may grow.

    ``machines`` are the resources of each, by Ray's names.
    """
    machines, asked = list(machines), list(asked)
    missing: dict[str, None] = {}
    for needs in asked:
        for number, name in zip(needs, _OF_RAY, strict=True):
            if number and not any(machine.get(name, 0) >= number for machine in machines):
                shown = (
                    f"{number / 2**30:.0f} GiB of memory"
                    if name == "memory"
                    else f"{number} {name}"
                )
                missing[f"a task needs {shown}, which no machine of the cluster has now"] = None
    return list(missing)
