"""Kept files: replaced atomically, so that a reader sees the old content or the new one, never a part.

Whatever lies in the place of a kept file does not stop a run: a pipe is not waited for, and a folder
is replaced.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def read_whole(path: str | Path, *, end: int = 0, most: int = 0) -> bytes:
    """Return the content of a file, or that many bytes at its ``end``."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if most and status.st_size > most:
            raise OSError(errno.EFBIG, f"it has {status.st_size:,} bytes", str(path))
        file.seek(max(0, status.st_size - end) if end else 0)
        return file.read(most or -1)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder, as far as that is possible."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        return
    path.unlink(missing_ok=True)


def move(temporary: Path, path: Path) -> None:
    """Rename a file to ``path``, in place of whatever lies there except a device.

    A rename by root would remove ``/dev/null`` from the machine.
    """
    if path.is_char_device() and not path.is_symlink():
        raise OSError(errno.EINVAL, "a device is not replaced", str(path))
    if path.is_dir() and not path.is_symlink():
        remove(path)
    temporary.replace(path)


def move_new(folder: Path, path: Path, last: str) -> None:
    """Rename a finished folder to ``path``, unless another process was faster and made the same.

    Raises:
        OSError: it cannot be renamed, and ``path`` has no file ``last``, which is written last.

    """
    try:
        folder.rename(path)
    except OSError:
        if not (path / last).exists():
            raise


@contextmanager
def replacing(path: Path, *, lasting: bool = True) -> Iterator[IO[bytes]]:
    """Yield a file to write to, and move it to ``path`` unless an exception is raised.

    With ``lasting`` the content is flushed to the disk, which costs milliseconds. Without it, a
    power cut may leave an empty file under the final name. That is enough for a file that is
    verified when it is read.
    """
    with _temporary(path, lasting=lasting) as (temporary, file):
        yield file
    try:
        move(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def replace(path: Path, content: str | bytes, *, lasting: bool = True) -> None:
    """Replace the file ``path`` by ``content`` as :func:`replacing` does."""
    with replacing(path, lasting=lasting) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def write_temporary(path: Path, content: str | bytes, *, lasting: bool = True) -> Path:
    """Write ``content`` to a temporary file in the folder of ``path``; the caller renames it."""
    with _temporary(path, lasting=lasting) as (temporary, file):
        file.write(content.encode() if isinstance(content, str) else content)
    return temporary


@contextmanager
def _temporary(path: Path, *, lasting: bool) -> Iterator[tuple[Path, IO[bytes]]]:
    """Yield a file in the folder of ``path`` with its path; an exception removes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        error.filename = str(path)  # readers know this name
        raise
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield temporary, file
            file.flush()
            if lasting:
                os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp's 0600 would hide a report from its readers
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno in _NO_ROOM and error.filename is None:
            error.filename = str(path)  # a full disk names no file
        raise
