"""What lies in the folder of work that no run has used for a week?

Traces, ladders and grafts are asked for while their pair differs and never again; a copy with patches is
another one when a patch changes. Captures, checkpoints that are made and tensors stay: they are what
a later comparison goes by.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING

from samebits.base import seal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

UNUSED = 7 * 86_400
"""Seconds after which what no run has used is removed."""

_FILES = ("traces", "ladders", "grafts", "rows", "kept-capsules", "receipts")
_PATCHED = re.compile(r".+-[0-9a-f]{12}")


def prune(root: Path, used: Collection[str], now: float) -> list[Path]:
    """Remove what is old and no run of the last week went by; return what went.

    ``used`` are absolute paths that the present run goes by. What earlier ones went by stands in
    their receipts, which are touched whenever they are served; the files themselves never are, as
    that would make them look changed.
    """
    oldest = now - UNUSED
    kept = {*used, *_named_by_receipts(root / "receipts", oldest)}
    found = [p for p in _old_files(root, oldest) if str(p.absolute()) not in kept]
    # the log of a ladder or trace goes when its file does
    found = [p for p in found if str(p.with_suffix(".json").absolute()) not in kept]
    found += [p for p in _patched_copies(root) if p.stat().st_mtime < oldest]
    for path in found:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return found


def _old_files(root: Path, oldest: float) -> Iterator[Path]:
    for kind in _FILES:
        for path in (root / kind).rglob("*"):
            try:
                if path.is_file() and path.stat().st_mtime < oldest:
                    yield path
            except FileNotFoundError:
                continue  # another run prunes, too


def _patched_copies(root: Path) -> Iterator[Path]:
    """Yield the copies with patches: a checkpoint that was made says so in checkpoint.json."""
    for path in (root / "checkpoints").glob("*"):
        is_copy = _PATCHED.fullmatch(path.name) and not (path / "checkpoint.json").exists()
        if is_copy and path.is_dir():
            yield path


def _named_by_receipts(folder: Path, oldest: float) -> Iterator[str]:
    for path in folder.glob("*.json"):
        try:
            if path.stat().st_mtime >= oldest:
                yield from json.loads(seal.read(path))["files"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
