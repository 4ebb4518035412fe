"""The files of an environment, checked against what was installed.

After an installation ``samebits-files.json`` lists every file with its size, its time and its SHA-256.
Before each run sizes and times are compared, which takes a fraction of a second, and hashes only where
these have moved. Files that Python writes itself, in ``__pycache__``, are listed after a run without a
hash: one that is not as it was is removed, and Python makes it again.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import hashlib
import itertools
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from samebits.base.digests import digest_of
from samebits.base.filestate import is_older
from samebits_wire import seal
from samebits_wire.atomic import replace

_FILES = "samebits-files.json"
_BYTECODE = "samebits-bytecode.json"
_MARK = "samebits-damaged"
_OWN = ("samebits-", ".samebits-")
"""Starts of the names of samebits' own files and folders in an environment, and of files on their way there."""
_CACHE = "__pycache__"

_ONE_WALK = threading.Lock()
"""Each file's state is one short call; threads that alternate at it take half as long again."""

Moment = tuple[int, int]
"""Size of a file in bytes, and its time of modification in ns."""
Listed = dict[str, tuple[int, int, str]]
"""Relative path of a file -> size, time and SHA-256."""


def listed(folder: Path, known: Mapping[str, tuple[int, int, str]] | None = None) -> Listed:
    """Return every file of an installation, without those that Python writes itself.

    A hash of ``known`` is used where size and time are the same.
    """
    known = known or {}
    moments = {path: moment for path, moment in _moments(folder) if not _is_bytecode(path)}
    new = [path for path, moment in moments.items() if known.get(path, ())[:2] != moment]
    digests = {path: file[2] for path, file in known.items()} | _digests(folder, new)
    return {path: (*moment, digests[path]) for path, moment in moments.items()}


def write(folder: Path, files: Listed) -> None:
    """Keep the list of an installation's files in its folder."""
    replace(folder / _FILES, seal.sealed(json.dumps(files, separators=(",", ":"))))


def unlike_record(folder: Path, files: Listed) -> list[str]:
    """Return the packages whose files are not those that their wheel's RECORD lists.

    uv links files from its cache, so a change of an installed file also changes the cached one.
    """
    records = (path for path in files if path.endswith(".dist-info/RECORD"))
    unlike = (path for path in records if not _is_as_recorded(folder / path, folder, files))
    names = (Path(path).parent.name.partition("-")[0] for path in unlike)
    return sorted(map(str, map(canonicalize_name, names)))


def damage(folder: Path, *, deep: bool = False) -> str | None:
    """Return what is not as it was installed in a folder, in a few words; None if all is.

    Hashes are compared where sizes or times have moved, with ``deep`` those of all files.
    """
    recorded = _read(folder / _FILES)
    if recorded is None:
        return "the list of its files is missing or damaged"
    with _ONE_WALK:
        current = dict(_moments(folder))
    _remove_bytecode(folder, current, deep=deep)
    current = {path: moment for path, moment in current.items() if not _is_bytecode(path)}
    if missing := sorted(recorded.keys() - current.keys()):
        return f"{missing[0]} is missing"
    if added := sorted(current.keys() - recorded.keys()):
        return f"{added[0]} was added"
    moved = [path for path, moment in current.items() if moment != tuple(recorded[path][:2])]
    digests = _digests(folder, sorted(current if deep else moved))
    if changed := [path for path, digest in digests.items() if digest != recorded[path][2]]:
        return f"{changed[0]} was changed"
    if moved:  # copied, for example
        files = {path: (*moment, str(recorded[path][2])) for path, moment in current.items()}
        with contextlib.suppress(OSError):
            write(folder, files)
    return None


def current(
    parent: Path, name: str, digest: str, report: Callable[[str], None], *, deep: bool
) -> tuple[Path, str]:
    """Return the folder of an installation, which is missing or as it was installed, and its digest.

    A damaged one is marked: runs that use it keep its files, and no new run takes it. The one in its
    place has another digest, so nothing that was computed in the damaged one is used. ``report`` is
    called with what is damaged.
    """
    for n_damaged in itertools.count():
        own = digest_of([digest, n_damaged]) if n_damaged else digest
        folder = parent / f"{name}-{own[:12]}"
        if (folder / _MARK).exists():
            continue
        reason = damage(folder, deep=deep) if folder.exists() else None
        if reason is None:
            return folder, own
        (folder / _MARK).touch()
        report(reason)
    raise AssertionError


def mark_of(folder: Path) -> Path:
    """Return the file that marks an installation as damaged, whether or not it is there."""
    return folder / _MARK


def remove_damaged(parent: Path, cutoff: float) -> None:
    """Remove the files of damaged installations that were found before a time; the marks stay."""
    for mark in parent.glob(f"*/{_MARK}"):
        if not is_older(mark, cutoff):
            continue
        for path in mark.parent.iterdir():
            with contextlib.suppress(OSError):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                elif path != mark:
                    path.unlink()


def record_bytecode(folder: Path) -> None:
    """List the files that Python has written in a run, so that the next one uses them."""
    if not (folder / _FILES).is_file():
        return
    with contextlib.suppress(OSError):
        written = dict(_moments(folder, counts=_is_bytecode))
        replace(folder / _BYTECODE, seal.sealed(json.dumps(written, separators=(",", ":"))))


def _remove_bytecode(folder: Path, current: Mapping[str, Moment], *, deep: bool) -> None:
    """Remove the files of ``__pycache__`` that are not as the last run left them; deep: all."""
    recorded = _read(folder / _BYTECODE) or {}
    for path, moment in current.items():
        if _is_bytecode(path) and (deep or tuple(recorded.get(path, ())) != moment):
            with contextlib.suppress(OSError):
                (folder / path).unlink()


def _is_bytecode(path: str) -> bool:
    return f"{_CACHE}/" in path


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(seal.read(path))
    except (OSError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _moments(folder: Path, counts: Callable[[str], bool] = bool) -> Iterator[tuple[str, Moment]]:
    """Yield each file below a folder with its state, of the paths that count; links are not followed."""
    start = len(str(folder)) + 1
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if len(entry.path) - start == len(entry.name) and entry.name.startswith(_OWN):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                    continue
                path = entry.path[start:].replace(os.sep, "/")
                if not counts(path):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # bytecode that another run is writing has its name in a moment
                yield path, (status.st_size, status.st_mtime_ns)


def _digests(folder: Path, paths: Sequence[str]) -> dict[str, str]:
    with ThreadPoolExecutor() as pool:
        return dict(zip(paths, pool.map(lambda path: _digest(folder / path), paths), strict=True))


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, or of a link's target; '' if it cannot be read."""
    try:
        if path.is_symlink():
            return hashlib.sha256(str(path.readlink()).encode()).hexdigest()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _is_as_recorded(record: Path, folder: Path, files: Listed) -> bool:
    base = record.parents[1].relative_to(folder).as_posix()
    try:
        rows = list(csv.reader(record.read_text("utf-8").splitlines()))
    except (OSError, UnicodeDecodeError, csv.Error):
        return False
    for row in rows:
        if len(row) < 2 or not row[1].startswith("sha256=") or row[0].startswith(("/", "../")):
            continue  # without a hash, or a script that the installer writes
        file = files.get(row[0] if base == "." else f"{base}/{row[0]}")
        if file is None and _is_bytecode(row[0]):
            continue
        if file is None or _encoded(file[2]) != row[1]:
            return False
    return True


def _encoded(digest: str) -> str:
    """Return a SHA-256 as RECORD files write it."""
    return "sha256=" + base64.urlsafe_b64encode(bytes.fromhex(digest)).rstrip(b"=").decode()
