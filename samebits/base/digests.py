"""What identifies a folder of files, the probes and this machine, as short hex digests."""

from __future__ import annotations

import hashlib
import json
import platform
from fnmatch import fnmatch
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from samebits.base import seal
from samebits.base.atomic import replace
from samebits.base.filestate import below

if TYPE_CHECKING:
    from collections.abc import Mapping

_CHUNK = 1 << 20
_WRITING = Lock()


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


def digest_of_folder(folder: Path, cache: Path, pattern: str = "*") -> str:
    """Return the digest of the files of a folder by name and content.

    Cached as :func:`hashes_of_folder` says.
    """
    return digest_of(hashes_of_folder(folder, cache, pattern))


def hashes_of_folder(folder: Path, cache: Path, pattern: str = "*") -> dict[str, str]:
    """Return the SHA-256 of each file of a folder, by its path in it.

    A file is read once per machine: ``cache`` remembers its hash by path, size, both times
    of change and inode.
    """
    known = _read_cache(cache)
    before = set(known)
    paths = (Path(path) for path in below(str(folder)))
    files = sorted(path for path in paths if fnmatch(path.name, pattern) and path.is_file())
    named = {str(path.relative_to(folder)): _cached(path, known) for path in files}
    new = {key: known[key] for key in known.keys() - before}
    if new:
        with _WRITING:  # folders are hashed side by side, and each keeps what the others found
            _write_cache(cache, _read_cache(cache) | new)
    return named


def machine_fingerprint(kernels: Mapping[str, str] | None = None) -> str:
    """Return the digest of what the bits of a CPU run depend on outside the packages.

    ``kernels`` are variables that make the CPU run the kernels of another one.
    """
    facts = [platform.system(), platform.machine(), platform.libc_ver(), _cpu_lines()]
    return digest_of([*facts, dict(kernels)] if kernels else facts)


def _cpu_lines() -> list[str]:
    """Return model and instruction sets: which kernels are chosen follows from them."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return [platform.processor()]
    wanted = ("vendor_id", "model name", "flags", "Features", "cpu family", "model\t")
    return sorted({line for line in text.splitlines() if line.startswith(wanted)})


def _cached(path: Path, known: dict[str, str]) -> str:
    stat = path.stat()
    key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ctime_ns}|{stat.st_ino}"
    if key not in known:
        known[key] = digest_of_file(path)
    return known[key]


def _read_cache(cache: Path) -> dict[str, str]:
    try:
        read = json.loads(seal.read(cache))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(read, dict):
        return {}
    return {key: hash for key, hash in read.items() if isinstance(hash, str)}


def _write_cache(cache: Path, known: dict[str, str]) -> None:
    replace(cache, seal.sealed(json.dumps(known, indent=0)), lasting=False)
