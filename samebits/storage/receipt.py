"""Has anything changed since a run: what it was asked, what it went by, what it wrote?

A run leaves a receipt. If the same is asked again and nothing has changed, the report is already
there and what the run printed is printed again. That takes a look at every file and no more: this
module imports nothing but the standard library, so that it costs no import either.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from samebits.base import seal
from samebits.base.atomic import replace
from samebits.base.digests import digest_of, digest_of_file, machine_fingerprint
from samebits.base.filestate import changed
from samebits.stacks.environment import PASSED_ON

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from samebits.base.filestate import Identity, Ledger

FORMAT_VERSION = 2
# History of FORMAT_VERSION:
# 1: first.
# 2: it bears a seal.

FOLDER = Path(".samebits") / "receipts"
"""Beside matrix.yaml."""

OPTIONS = frozenset(
    {"command", "matrix", "models", "stacks", "dtypes", "attention", "devices", "sweep", "causes"}
    | {"fresh", "upgrade", "jobs", "reports", "repro", "releases"}
)
"""Options of which a receipt is known to say all: they choose, and what they have written lies in
the report's folder. A run with any other option leaves none."""

_ROOT = Path(__file__).parent
_SECRETS = {"HF_TOKEN"}
_RESOLVING = ("UV_", "PIP_")
"""Variables that decide which packages are found."""


class Answer(NamedTuple):
    """What a run printed, and its exit code."""

    code: int
    lines: list[str]


@cache
def source_digest() -> str:
    """Return the digest of what computes a report: samebits, its probes, Python, its packages.

    Of the time when it is asked first, which is when the process begins: a file that is edited
    while a run goes on belongs to the next one.
    """
    files = [*_ROOT.rglob("*"), *(_ROOT.parent / "probes").rglob("*")]
    named = {str(p.relative_to(_ROOT.parent)): p for p in files if p.is_file()}
    kept = {n: digest_of_file(p) for n, p in named.items() if "__pycache__" not in n}
    return digest_of([kept, sys.version, _packages()])


def answer(arguments: Sequence[str], environ: Mapping[str, str]) -> Answer | None:
    """Return what the same command printed when nothing has changed since; None: it is to run."""
    if not arguments or arguments[0] != "matrix":
        return None
    path = _path(_matrix(arguments), _asked(arguments, environ))
    try:
        found = _valid(json.loads(seal.read(path)))
        if found is not None:
            os.utime(path)  # what it names is in use
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # none was left, or it is not whole


def remember(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    options: Iterable[str],
    matrix: tuple[Path, str],
    ledger: Ledger,
    written: Mapping[Path, str],
    started: str,
    said: Answer,
) -> None:
    """Leave the receipt of a run; one that may end otherwise the next time says why, and only that.

    ``matrix`` is the file and the digest of what was read; ``written`` are the report's files
    with the digests of what was written.
    """
    if not OPTIONS.issuperset(options):
        return
    left = {
        "format": "samebits-receipt",
        "format_version": FORMAT_VERSION,
        "matrix": [str(matrix[0].absolute()), matrix[1]],
        "files": ledger.files,
        "folders": ledger.folders,
        "written": {str(path.absolute()): digest for path, digest in written.items()},
        "unsettled": list(ledger.unsettled),
        "started": started,
        "code": said.code,
        "lines": said.lines,
    }
    path = _path(matrix[0], _asked(arguments, environ))
    replace(path, seal.sealed(json.dumps(left, separators=(",", ":"))), lasting=False)


def _valid(left: dict[str, Any]) -> Answer | None:
    """Return what a receipt says if it still holds."""
    if left["format"] != "samebits-receipt" or left["format_version"] != FORMAT_VERSION:
        return None
    if left["unsettled"]:
        return None
    matrix, digest = left["matrix"]
    if digest_of_file(Path(matrix)) != digest or not _is_there(left["written"]):
        return None
    files: dict[str, Identity | None] = {k: v and _identity(v) for k, v in left["files"].items()}
    folders = {
        folder: {name: _identity(known) for name, known in inside.items()}
        for folder, inside in left["folders"].items()
    }
    if changed(files, folders) is not None:
        return None
    return Answer(left["code"], [_unchanged(left["started"]), *left["lines"]])


def _identity(values: Sequence[int]) -> Identity:
    size, content, inode_change, inode = values
    return size, content, inode_change, inode


def _unchanged(started: str) -> str:
    return f"nothing changed since {started}: this is what that run found (--fresh runs anew)"


def _is_there(written: Mapping[str, str]) -> bool:
    """Return True if the report is as it was written, whatever its user keeps beside it."""
    return all(digest_of_file(Path(path)) == digest for path, digest in written.items())


def _matrix(arguments: Sequence[str]) -> Path:
    """Return the matrix that the command line names; a wrong guess finds no receipt."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--matrix", default="matrix.yaml")
    try:
        return Path(os.path.expanduser(parser.parse_known_args(list(arguments))[0].matrix))  # noqa: PTH111
    except argparse.ArgumentError:
        return Path("matrix.yaml")


def _path(matrix: Path, asked: str) -> Path:
    return matrix.resolve().parent / FOLDER / f"{asked[:16]}.json"


def _asked(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the digest of a question: the command, where it is typed, and what answers it."""
    names = {*PASSED_ON} - _SECRETS | {n for n in environ if n.startswith(_RESOLVING)}
    seen = {name: environ[name] for name in names if name in environ}
    where = str(Path.cwd())
    return digest_of([list(arguments), where, seen, source_digest(), machine_fingerprint()])


def _packages() -> list[str]:
    """Return the names of what is installed beside samebits, versions included."""
    folders = (Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    return sorted(path.name for folder in folders for path in folder.glob("*.dist-info"))
