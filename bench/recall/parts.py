"""Parts of a recall run: each is kept with what it depends on, so that a run that was stopped goes on."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bench.place import ROOT

_KEPT = "part.json"
_SOURCES = ("samebits", "probes", "bench", "tests/custom")
_SUFFIXES = (".py", ".json", ".diff")
_NO_PART = ("results.json", "real_size.json", "page.py")
"""Files of these folders on which no result depends."""


class Part(NamedTuple):
    """What one part gave, now or in an earlier run."""

    result: Any
    seconds: float
    """What it took when it ran."""
    is_fresh: bool
    """Whether it began with nothing captured."""
    is_kept: bool
    """Whether an earlier run gave it."""


class Progress:
    """The lines that a run prints, and what its parts took together."""

    def __init__(self, n_parts: int) -> None:
        self._n_parts = n_parts
        self._number = 0
        self.seconds = 0.0
        self.is_fresh = True
        """Whether all parts so far began with nothing captured."""

    def begin(self, name: str) -> None:
        """Print what begins."""
        self._number += 1
        print(f"[{self._number}/{self._n_parts}] {name} …", flush=True)

    def end(self, part: Part, line: str) -> None:
        """Print what a part gave, and the time of all parts so far."""
        self.seconds += part.seconds
        self.is_fresh &= part.is_fresh
        took = f"{part.seconds:.0f} s" + (" in an earlier run" if part.is_kept else "")
        print(f"    {line} ({took}, {self.seconds / 60:.1f} min in all)", flush=True)


def kept(
    folder: Path,
    asked: dict[str, Any],
    work: Callable[[], Any],
    clock: Callable[[], float] = time.monotonic,
    sources: tuple[str, ...] = _SOURCES,
) -> Part:
    """Return the part that an earlier run kept in ``folder``, or run it.

    ``asked`` is what it depends on beside the code in ``sources``. A folder of a run that was stopped is removed, so
    that the time of a part is that of all its work; one of other code or another question is used.
    """
    path = folder / _KEPT
    key = _key(asked, sources)
    known = _read(path)
    if known is not None and known["key"] == key:
        return Part(known["result"], known["seconds"], known["fresh"], is_kept=True)
    if known is None:
        shutil.rmtree(folder, ignore_errors=True)
    started = clock()
    result = work()
    seconds = round(clock() - started, 1)
    record = {"key": key, "seconds": seconds, "fresh": known is None, "result": result}
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return Part(result, seconds, known is None, is_kept=False)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        record: dict[str, Any] = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return record


def _key(asked: dict[str, Any], sources: tuple[str, ...]) -> str:
    text = json.dumps(asked, sort_keys=True) + code(sources)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def code(sources: tuple[str, ...] = _SOURCES) -> str:
    """Return a digest of all files that decide a result."""
    digest = hashlib.sha256()
    for folder in sources:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in _SUFFIXES and path.name not in _NO_PART:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
