"""BLAKE3 of checkpoint files, in hex: many times faster than SHA-256 on most processors.

The receipt of an unchanged command does not import this module: it needs the standard library only.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Literal

from blake3 import blake3

from samebits.base.digests import digest_of
from samebits.base.filestate import below
from samebits_wire import seal
from samebits_wire.atomic import replace

HashAlgorithm = Literal["blake3"]
HASH_ALGORITHM: HashAlgorithm = "blake3"
"""The hash of tensors and checkpoint files, named in every file that contains such hashes. Digests
of small things, such as texts, keys and seals, are SHA-256."""
_CHUNK = 1 << 18
"""Bytes read at a time: they are still in the processor's cache when they are hashed."""
_CACHE_LOCK = Lock()
MAX_UNKNOWN = 1 << 30
"""Bytes up to which a file that is neither weights nor code is read."""
_WEIGHTS = frozenset(
    [
        ".safetensors",
        ".bin",
        ".pt",
        ".pth",
        ".ckpt",
        ".gguf",
        ".ggml",
        ".h5",
        ".hdf5",
        ".msgpack",
        ".onnx",
        ".npz",
        ".npy",
        ".pkl",
        ".pickle",
        ".model",
        ".ot",
        ".pdparams",
        ".tflite",
        ".index",
        ".data",
    ]
)
"""Ends of the names of files with weights, which may have any size."""


def hash_of_text(text: str) -> str:
    """Return the hash of a file with the content ``text``."""
    return blake3(text.encode()).hexdigest()


def hash_of_file(path: Path) -> str:
    """Return the hash of a file's bytes, of as many as it has when it is opened."""
    digest, chunk = blake3(), bytearray(_CHUNK)
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        left = os.fstat(descriptor).st_size
        while left > 0 and (n := file.readinto(chunk)):
            digest.update(memoryview(chunk)[:n])
            left -= n
    return digest.hexdigest()


def is_read(path: Path) -> bool:
    """Return False for a file too large to be read: one that is neither weights nor code."""
    return path.suffix.lower() in _WEIGHTS or path.stat().st_size <= MAX_UNKNOWN


def digest_of_folder(folder: Path, cache: Path) -> str:
    """Return one digest of the names and contents of a folder's files.

    The hashes of the files are cached as in :func:`hashes_of_folder`.
    """
    return digest_of(hashes_of_folder(folder, cache))


def hashes_of_folder(folder: Path, cache: Path) -> dict[str, str]:
    """Return the BLAKE3 of each file of a folder, keyed by its relative path.

    A file is read once per machine: the file ``cache`` stores its hash under its path, size,
    mtime, ctime and inode. Of a file that is not read the size stands in place of the hash.
    """
    hashes = _read_cache(cache)
    keys_before = set(hashes)
    paths = (Path(path) for path in below(str(folder)))
    files = sorted(path for path in paths if path.is_file())
    by_path = {str(path.relative_to(folder)): _hash_of(path, hashes) for path in files}
    new = {key: hashes[key] for key in hashes.keys() - keys_before}
    if new:
        # threads hash several folders at once, and none may drop another's entries; without room on
        # the disk they are hashed again
        with _CACHE_LOCK, suppress(OSError):
            _write_cache(cache, _read_cache(cache) | new)
    return by_path


def _hash_of(path: Path, hashes: dict[str, str]) -> str:
    """Return the hash of a file from ``hashes``, which gets it where it is missing."""
    stat = path.stat()
    key = f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ctime_ns}|{stat.st_ino}"
    if not is_read(path):
        return f"not read: {stat.st_size} bytes"
    if key not in hashes:
        hashes[key] = hash_of_file(path)
    return hashes[key]


def _read_cache(cache: Path) -> dict[str, str]:
    try:
        content = json.loads(seal.read(cache))
        hashes = content["files"] if content["hash_algorithm"] == HASH_ALGORITHM else {}
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return {}
    if not isinstance(hashes, dict):
        return {}
    return {key: hash for key, hash in hashes.items() if isinstance(hash, str)}


def _write_cache(cache: Path, hashes: dict[str, str]) -> None:
    content = {"hash_algorithm": HASH_ALGORITHM, "files": hashes}
    replace(cache, seal.sealed(json.dumps(content, indent=0)), lasting=False)
