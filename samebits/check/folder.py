"""The folder of the report of a check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from samebits.base.digests import digest_of
from samebits_wire.atomic import read_whole

REPORTS = Path("reports") / "check"
"""Folder of the reports of checks, one folder per model, in the current folder."""

_MARK = ".samebits-model"


@contextmanager
def claimed_folder(name: str, source: str) -> Iterator[Path]:
    """Yield the folder of the report of a model: of two models with one name, the second gets digits.

    ``source`` tells models of one name apart: an absolute path, or the id on the hub.
    The folder belongs to the model before it runs, so two checks at the same time have one each. If
    the run raises, the claim is given back.
    """
    first, digest = REPORTS / name, digest_of(source)
    mark = first / _MARK
    new_folders = [path for path in (first, *first.parents) if not path.exists()]
    first.mkdir(parents=True, exist_ok=True)
    try:
        with mark.open("x", encoding="utf-8") as file:
            file.write(digest)
    except FileExistsError:
        yield first if _holds(mark, digest) else REPORTS / f"{name}-{digest[:6]}"
        return
    try:
        yield first
    except BaseException:
        with suppress(OSError):
            mark.unlink()
            for path in new_folders:
                path.rmdir()
        raise


def _holds(mark: Path, digest: str) -> bool:
    try:
        return read_whole(mark) == digest.encode()
    except OSError:
        return False
