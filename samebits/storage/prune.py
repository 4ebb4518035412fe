"""Removal of files in the work folder that no run has used for a week.

Traces, ladders and grafts are needed only while their pair of cells differs. A patched copy of a
checkpoint is replaced by another one when a patch changes. Captures, tensors and built checkpoints
are kept, because later comparisons use them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from samebits.base.filestate import is_older
from samebits.records.kinds import kinds
from samebits_wire import seal

STALE_AFTER = 7 * 86_400
"""Seconds after which an unused file is removed."""

_FOLDERS = ("rows", "kept-capsules", "receipts")
"""Folders beside those of kinds of jobs."""
_PATCHED_NAME = re.compile(r".+-[0-9a-f]{12}")


def prune(root: Path, used: Collection[str], now: float) -> list[Path]:
    """Remove old files that no run of the last week used; return their paths.

    ``used`` are absolute paths of files that the present run uses. Receipts list the files that
    earlier runs used. A receipt is touched whenever it is served. The listed files are not
    touched, because that would make them look changed.
    """
    oldest = now - STALE_AFTER
    in_use = {*used, *_files_in_receipts(root / "receipts", oldest)}
    unused = [p for p in _old_files(root, oldest) if str(p.absolute()) not in in_use]
    # the log of a ladder or trace is removed only together with its JSON file
    unused = [p for p in unused if str(p.with_suffix(".json").absolute()) not in in_use]
    unused += [p for p in _patched_copies(root) if is_older(p, oldest)]
    for path in unused:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return unused


def _old_files(root: Path, oldest: float) -> Iterator[Path]:
    """Yield the files that were not written for long.

    ``Path.rglob`` raises where another run removes or renames a folder meanwhile; ``os.walk``
    passes it over.
    """
    of_kinds = dict.fromkeys(kind.folder for kind in kinds() if not kind.lasts)
    for name in (*of_kinds, *_FOLDERS):
        for folder, _, names in os.walk(root / name):
            paths = (Path(folder, name) for name in names)
            yield from (path for path in paths if path.is_file() and is_older(path, oldest))


def _patched_copies(root: Path) -> Iterator[Path]:
    """Yield the patched copies of checkpoints; a built checkpoint has a checkpoint.json."""
    for path in (root / "checkpoints").glob("*"):
        is_copy = _PATCHED_NAME.fullmatch(path.name) and not (path / "checkpoint.json").exists()
        if is_copy and path.is_dir():
            yield path


def _files_in_receipts(folder: Path, oldest: float) -> Iterator[str]:
    for path in folder.glob("*.json"):
        try:
            if path.stat().st_mtime >= oldest:
                yield from json.loads(seal.read(path))["files"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
