"""What keeps the devices of a stack's process usable in its forks.

A driver does not survive a fork. Once a process has as much as counted its devices by the driver, torch
refuses them in each process that is forked from it ("Cannot re-initialize CUDA in forked subprocess",
torch/cuda/__init__.py, _lazy_init). Modules do that as they are imported: in transformers 4.x, the code of
every model with a kernel of mamba-ssm or causal-conv1d calls torch.cuda.is_available().

The parent of all jobs therefore lets torch count by NVML, which needs no driver, and imports nothing that
loses the devices; such a module is imported by the jobs that need it.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Variable that makes torch.cuda.is_available() count by NVML; torch reads it at each call."""
_NODES = {
    "cuda": ("/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl", "/dev/nvgpu"),
    "hip": ("/dev/kfd",),
    "xpu": ("/dev/dri",),
}
"""Kind of build of torch -> files of which one exists on a machine with such a device."""
_LOST, _KEPT = 3, 4
_before: list[str | None] = []
_refused: set[str] = set()
"""Modules whose import would lose the devices."""


def count_without_driver() -> None:
    """Let torch count devices by NVML in this process, until :func:`count_as_usual`."""
    _before.append(os.environ.get(NVML))
    os.environ[NVML] = "1"


def count_as_usual() -> None:
    """Undo :func:`count_without_driver`: a job asks as a user's process does."""
    for value in _before:
        os.environ.pop(NVML, None)
        if value is not None:
            os.environ[NVML] = value
    _before.clear()


def are_lost() -> bool:
    """Return True if this process was forked from one that had asked a driver for its devices."""
    torch: Any = sys.modules.get("torch")
    kinds = [getattr(torch, kind, None) for kind in ("cuda", "xpu", "mps")]
    tests = [getattr(kind, "_is_in_bad_fork", None) for kind in kinds]
    return any(test() for test in tests if test is not None)


def harmless(names: list[str]) -> list[str]:
    """Return those of the modules, in their order, whose import keeps the devices usable in forks.

    A machine without a device has nothing to lose; there, it is all of them.
    """
    names = [name for name in names if name not in _refused]
    if not names or not _may_be_lost() or not _lose(names):
        return names
    length, lost = 0, len(names)
    while lost - length > 1:
        middle = (length + lost) // 2
        if _lose(names[:middle]):
            lost = middle
        else:
            length = middle
    _refused.add(names[length])
    # what was imported after it may depend on it, and comes again with the next job
    return names[:length]


def _may_be_lost() -> bool:
    torch: Any = sys.modules.get("torch")
    version = getattr(torch, "version", None)
    built = (kind for kind in _NODES if getattr(version, kind, None))
    return any(Path(node).exists() for kind in built for node in _NODES[kind])


def _lose(names: list[str]) -> bool:
    """Return True if a process that has imported the modules loses the devices of its forks, or dies."""
    return _exit_code_of_fork(lambda: _rehearse(names)) != _KEPT


def import_all(names: list[str]) -> None:
    """Import modules; one that cannot be imported in advance is imported when needed, or not at all."""
    for name in names:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(name)


def _rehearse(names: list[str]) -> int:
    import_all(names)
    return _exit_code_of_fork(lambda: _LOST if are_lost() else _KEPT)


def _exit_code_of_fork(function: Callable[[], int]) -> int:
    sys.stdout.flush()
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        code = function()
    finally:
        # no exit handlers: they belong to the parent
        os._exit(code)
