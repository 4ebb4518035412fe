"""The packages of an environment, read without importing any of them.

Run as a program, this module prints them as one JSON object. It uses the standard library only, and
works in environments without torch.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any


def facts() -> dict[str, Any]:
    """Return the interpreter, what its requirements depend on, its packages with their folders, and its GPUs."""
    return {
        "python": platform.python_version(),
        "markers": _markers(),
        "packages": _packages(),
        "folders": _folders(),
        "torch_build": _torch_build(),
        "gpus": _gpus(),
    }


def _markers() -> dict[str, str]:
    """Return the environment of PEP 508, which decides whether a requirement applies."""
    implementation = sys.implementation
    return {
        "implementation_name": implementation.name,
        "implementation_version": ".".join(map(str, implementation.version[:3])),
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    }


def _folders() -> list[str]:
    """Return the folders of installed packages, in the order in which they are searched."""
    names = ("site-packages", "dist-packages")
    return [path for path in sys.path if Path(path).name in names and Path(path).is_dir()]


def _torch_build() -> str:
    """Return what torch/version.py has: its commit, and the CUDA that it was built with; or ''."""
    spec = importlib.util.find_spec("torch")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        with contextlib.suppress(OSError):
            return (Path(folder) / "version.py").read_text("utf-8", "replace")
    return ""


def _packages() -> list[dict[str, Any]]:
    """Return each distribution once; the first on the path is the one that is imported."""
    packages: dict[str, dict[str, Any]] = {}
    for dist in importlib.metadata.distributions():
        name = dist.metadata["Name"]
        if name and name.lower() not in packages:
            packages[name.lower()] = {
                "name": name,
                "version": dist.version,
                "requires": dist.requires or [],
                "origin": _origin(dist),
                "modules": _modules(dist),
            }
    return list(packages.values())


def _origin(dist: importlib.metadata.Distribution) -> dict[str, Any] | None:
    """Return where a package came from, as PEP 610 records it; None if that is an index."""
    if (text := dist.read_text("direct_url.json")) is None:
        return None
    try:
        origin = json.loads(text)
    except ValueError:
        return {"url": ""}
    return origin if isinstance(origin, dict) else {"url": ""}


def _modules(dist: importlib.metadata.Distribution) -> list[str]:
    if (text := dist.read_text("top_level.txt")) is not None:
        return text.split()
    names = {file.parts[0] for file in dist.files or () if file.suffix in (".py", ".so", ".pyd")}
    return sorted(name.partition(".")[0] for name in names if not name.startswith("."))


def _gpus() -> list[str]:
    """Return the names of NVIDIA's GPUs from their driver, without starting CUDA."""
    names = []
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        try:
            lines = path.read_text("utf-8", "replace").splitlines()
        except OSError:
            continue
        names += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    return names


if __name__ == "__main__":
    print(json.dumps(facts()))
