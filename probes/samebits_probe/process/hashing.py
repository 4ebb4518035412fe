"""BLAKE3, the hash of tensors and of checkpoint files.

The package blake3 lies in a folder of its own in the stack, next to the packages that the stack
resolved, or in the folder that a variable names, where the environment is the
user's. It is loaded from there under another name, and sys.path stays as
it is. So no model finds it, and a model that brings its own blake3 gets its own.

A hasher has one thread, because bits must not depend on what runs beside a job.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from samebits_probe.process import progress
from samebits_wire.places import PROBE_PACKAGES, PROBE_PACKAGES_VARIABLE

ALGORITHM = "blake3"
"""Name of the hash in the files that contain it."""
_MODULE = "samebits_blake3"
_CHUNK = 1 << 18
"""Bytes read at a time: they are still in the processor's cache when they are hashed."""


def head(form: str, version: int) -> dict[str, Any]:
    """Return the first fields of a file with hashes."""
    return {"format": f"samebits-{form}", "format_version": version, "hash_algorithm": ALGORITHM}


def _load(folder: Path) -> Any:
    package = folder / ALGORITHM
    spec = importlib.util.spec_from_file_location(
        _MODULE, package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # its own import is relative
    try:
        spec.loader.exec_module(module)
    except OSError as error:
        del sys.modules[_MODULE]
        raise ImportError(
            f"the package blake3 is missing in {folder}; a run of samebits installs it"
        ) from error
    return module.blake3


hasher = _load(Path(os.environ.get(PROBE_PACKAGES_VARIABLE) or Path(sys.prefix) / PROBE_PACKAGES))
"""Makes a hasher: ``hasher(data)`` with ``update``, ``digest`` and ``hexdigest``."""


def file_hash(path: Path) -> str:
    """Return the hash of a file's bytes, as samebits/base/hashes.py."""
    progress.tick(path.name, allowance=progress.moving(path.stat().st_size), moves=True)
    digest, chunk = hasher(), bytearray(_CHUNK)
    with path.open("rb", buffering=0) as file:
        while n := file.readinto(chunk):
            digest.update(memoryview(chunk)[:n])
    return str(digest.hexdigest())
