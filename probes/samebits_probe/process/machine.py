"""Facts about the machine and the environment: packages, CPU capability, threads, flags."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from samebits_probe.process import settings


def facts() -> dict[str, Any]:
    """Return everything outside the model that can change its bits."""
    return {
        "python": platform.python_version(),
        "packages": {
            dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()
        },
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "accelerator": _accelerator(),
        "flags": _flags(),
    }


def _flags() -> dict[str, str]:
    """Return what chooses kernels, as the imports of this stack left it."""
    return {
        "torch.backends.mkl.is_available()": str(torch.backends.mkl.is_available()),
        **settings.read(),
        "sys.byteorder": sys.byteorder,
    }


def _accelerator() -> str:
    # reading the device's name would initialise CUDA, after which the process cannot fork
    return f"CUDA {torch.version.cuda}" if torch.version.cuda else ""


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
