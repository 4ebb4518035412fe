"""Folders that a run writes: whether they can be written is asked before the run, which takes minutes."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from samebits.base.errors import SamebitsError
from samebits.stacks.places import VARIABLE as CACHE
from samebits.stacks.places import cache_folder

_SAMPLE_CACHE = "/var/tmp/samebits"


class FolderError(SamebitsError):
    """A folder that the run needs cannot be written."""


def check_reports(folder: Path) -> None:
    """Raise FolderError before the run, which takes minutes, if the report cannot be written."""
    if reason := _not_writable(folder):
        msg = f"the report cannot be written to {folder.absolute()}: {reason}: name another folder with --reports"
        raise FolderError(msg)


def check_lock(path: Path) -> None:
    """Raise FolderError before the run if the lock cannot be written."""
    if reason := _not_writable(path.absolute().parent):
        msg = f"{path} cannot be written: {reason}: name another file with --lock, or add --dry-run"
        raise FolderError(msg)


def check_cache(environ: Mapping[str, str]) -> None:
    """Raise FolderError if the folder of the environments cannot be written."""
    folder = cache_folder(environ)
    if reason := _not_writable(folder):
        origin = f"{CACHE} names it" if environ.get(CACHE) else f"no {CACHE} names another one"
        raise FolderError(
            f"the cache folder {folder} cannot be written: {reason}. Environments and work files lie there, and "
            f"{origin}. Set {CACHE} to a folder that can be written and kept, such as "
            f"export {CACHE}={_SAMPLE_CACHE}"
        )


def _not_writable(folder: Path) -> str | None:
    """Return why nothing can be made in a folder, which need not exist yet; None if it can."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with tempfile.TemporaryDirectory(dir=existing, prefix=".samebits-"):
            return None
    except OSError as error:
        return f"{existing}: {error.strerror or error}" if existing != folder else error.strerror
