"""SHA-256 digests of JSON values, small files and this machine, in hex.

samebits/base/hashes.py has the hash of large files.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20


def digest_of(value: Any) -> str:  # noqa: ANN401  any JSON value
    """Return the SHA-256 of a JSON value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def machine_fingerprint(kernels: Mapping[str, str] | None = None) -> str:
    """Return the digest of the machine facts that the bits of a CPU run depend on.

    ``kernels`` are environment variables that choose CPU kernels, such as those of an older CPU.
    """
    facts = [platform.system(), platform.machine(), platform.libc_ver(), _cpu_lines()]
    return digest_of([*facts, dict(kernels)] if kernels else facts)


def accelerator_facts() -> list[str]:
    """Return the names of the machine's NVIDIA GPUs and the version of their driver.

    Where the GPUs are of several models, the ones that are visible count, too.
    """
    folder = Path("/proc/driver/nvidia")
    models = {
        line
        for path in folder.glob("gpus/*/information")
        for line in _lines(path)
        if line.startswith("Model:")
    }
    visible = [os.environ.get("CUDA_VISIBLE_DEVICES", "")] if len(models) > 1 else []
    return [*sorted(models), *_lines(folder / "version")[:1], *visible]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return []


def _cpu_lines() -> list[str]:
    """Return the CPU's model and instruction sets, which decide which kernels are chosen."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return [platform.processor()]
    prefixes = ("vendor_id", "model name", "flags", "Features", "cpu family", "model\t")
    return sorted({line for line in text.splitlines() if line.startswith(prefixes)})
