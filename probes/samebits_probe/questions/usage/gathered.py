"""What nn.DataParallel gathers of the outputs of two devices, as Trainer does on a machine with several GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

import torch
from torch.nn.parallel import scatter_gather

from samebits_probe.questions.usage.subject import NoMeaning, Subject, error_text
from samebits_wire.arguments import GATHERED

_DEVICES = 2


class _Joined:
    """Stands in for ``Gather`` of torch, which refuses tensors of the CPU."""

    @staticmethod
    def apply(_device: str, dim: int, *tensors: torch.Tensor) -> torch.Tensor:
        """Return one tensor of all; numbers become a vector, as there."""
        return torch.cat([t.view(1) if t.dim() == 0 else t for t in tensors], dim)


def calls(subject: Subject) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the call; it leaves the model as it is."""
    yield GATHERED, partial(_gathered, subject)


def _gathered(subject: Subject) -> str:
    """Return the fields without the rows of both devices."""
    if not (fed := subject.fed()):
        raise NoMeaning(subject.refuses_text())
    try:
        with torch.no_grad():
            output = subject.model(**fed)
    except Exception as error:
        raise NoMeaning(f"the plain forward raised {error_text(error)}") from error
    with mock.patch.object(scatter_gather, "Gather", _Joined):
        rows = _rows(scatter_gather.gather([output] * _DEVICES, "cpu"))
    lacking = [name for name, n in _rows(output).items() if rows.get(name) != _DEVICES * n]
    return f"all rows but those of {', '.join(sorted(lacking))}" if lacking else "all rows"


def _rows(output: Any) -> dict[str, int]:
    """Return field -> number of its rows, for those that are a tensor."""
    if not hasattr(output, "items"):
        raise NoMeaning("forward returns no named fields")
    return {
        name: value.shape[0]
        for name, value in output.items()
        if isinstance(value, torch.Tensor) and value.dim()
    }
