"""Digests of JSON values, files, folders and this machine, in hex."""

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
_CACHE_LOCK = Lock()


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
    """Return one digest of the names and contents of a folder's files.

    The hashes of the files are cached as in :func:`hashes_of_folder`.
    """
    return digest_of(hashes_of_folder(folder, cache, pattern))


def hashes_of_folder(folder: Path, cache: Path, pattern: str = "*") -> dict[str, str]:
    """Return the SHA-256 of each file of a folder, keyed by its relative path.

    A file is read once per machine: the file ``cache`` stores its hash under its path, size,
    mtime, ctime and inode.
    """
    hashes = _read_cache(cache)
    keys_before = set(hashes)
    paths = (Path(path) for path in below(str(folder)))
    files = sorted(path for path in paths if fnmatch(path.name, pattern) and path.is_file())
    by_path = {str(path.relative_to(folder)): _hash_of(path, hashes) for path in files}
    new = {key: hashes[key] for key in hashes.keys() - keys_before}
    if new:
        with _CACHE_LOCK:  # threads hash several folders at once; none may drop another's entries
            _write_cache(cache, _read_cache(cache) | new)
    return by_path


def machine_fingerprint(kernels: Mapping[str, str] | None = None) -> str:
    """Return the digest of the machine facts that the bits of a CPU run depend on.

    ``kernels`` are environment variables that choose CPU kernels, such as those of an older CPU.
    """
    facts = [platform.system(), platform.machine(), platform.libc_ver(), _cpu_lines()]
    return digest_of([*facts, dict(kernels)] if kernels else facts)


def _cpu_lines() -> list[str]:
    """Return the CPU's model and instruction sets, which decide which kernels are chosen."""
    try:
        text = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return [platform.processor()]
    prefixes = ("vendor_id", "model name", "flags", "Features", "cpu family", "model\t")
    return sorted({line for line in text.splitlines() if line.startswith(prefixes)})


def _hash_of(path: Path, hashes: dict[str, str]) -> str:
    """Return the hash of a file from ``hashes``, which gets it where it is missing."""
    stat = path.stat()
    key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ctime_ns}|{stat.st_ino}"
    if key not in hashes:
        hashes[key] = digest_of_file(path)
    return hashes[key]


def _read_cache(cache: Path) -> dict[str, str]:
    try:
        hashes = json.loads(seal.read(cache))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(hashes, dict):
        return {}
    return {key: hash for key, hash in hashes.items() if isinstance(hash, str)}


def _write_cache(cache: Path, hashes: dict[str, str]) -> None:
    replace(cache, seal.sealed(json.dumps(hashes, indent=0)), lasting=False)
