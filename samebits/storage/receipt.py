"""Receipts of runs: what a run was asked, which files it used, what it wrote and printed.

If the same command is given again and nothing has changed, the report exists already, and the
lines of the earlier run are printed again. That costs one look at every file. This module and the
modules that it imports need only the standard library (a check: and platformdirs), so that no slow import is added.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from samebits.base.digests import digest_of, digest_of_file, machine_fingerprint
from samebits.base.filestate import Dependencies, Identity, changed
from samebits.base.finding_pages import PAGES
from samebits.base.homes import expanded
from samebits.base.workfolder import WORK
from samebits.stacks.environment import PASSED_ON
from samebits.stacks.probes import PROBES
from samebits_wire import seal
from samebits_wire.atomic import replace

FORMAT_VERSION = 3

FOLDER = "receipts"
"""Folder of the receipts, in the work folder."""

_SOURCES = (Path(__file__).parents[1], PROBES, PAGES)
"""Folders of all code that an answer depends on; a wheel holds the second inside the first."""
_SECRETS = {"HF_TOKEN"}
_RESOLVER_PREFIXES = ("UV_", "PIP_")
"""Prefixes of variables that influence which packages are resolved."""


class Answer(NamedTuple):
    """What a run printed, and its exit code."""

    code: int
    lines: list[str]


@cache
def source_digest() -> str:
    """Return the digest of the code that makes a report: samebits, its probes, Python, packages.

    It is computed at the first call, when the process starts, and cached: an edit during a run
    counts for the next run.
    """
    by_name = {
        f"{number}/{path.relative_to(folder).as_posix()}": path
        for number, folder in enumerate(_SOURCES)
        for path in folder.rglob("*")
        if path.is_file()
    }
    digests = {n: digest_of_file(p) for n, p in by_name.items() if "__pycache__" not in n}
    return digest_of([digests, sys.version, _packages()])


def lookup(arguments: Sequence[str], environ: Mapping[str, str]) -> Answer | None:
    """Return what the same command printed if nothing has changed since; None: it has to run."""
    if not arguments or arguments[0] not in ("matrix", "check"):
        return None
    try:
        path = _work(arguments, environ) / FOLDER / _name(arguments, environ)
        valid = _valid_answer(json.loads(seal.read(path)))
        if valid is not None:
            os.utime(path)  # marks the files that it lists as in use
        return valid
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # there is no receipt, or it is damaged


def save(
    arguments: Sequence[str],
    environ: Mapping[str, str],
    matrix: tuple[Path, str] | None,
    dependencies: Dependencies,
    written: Mapping[Path, str],
    started: str,
    printed: Answer,
    expires: float | None = None,
) -> None:
    """Write the receipt of a run; :func:`lookup` rejects one that lists reasons in ``unrepeatable``.

    ``matrix`` is the matrix file with the digest of the content that was read; None for a check. ``written``
    are the report's files with the digests of their content. ``expires``: seconds since the epoch.
    """
    receipt = {
        "format": "samebits-receipt",
        "format_version": FORMAT_VERSION,
        "matrix": matrix and [str(matrix[0].absolute()), matrix[1]],
        "expires": expires,
        "files": dependencies.files,
        "folders": dependencies.folders,
        "written": {str(path.absolute()): digest for path, digest in written.items()},
        "unrepeatable": list(dependencies.unrepeatable),
        "started": started,
        "code": printed.code,
        "lines": printed.lines,
    }
    path = _work(arguments, environ) / FOLDER / _name(arguments, environ)
    with contextlib.suppress(OSError):  # without room on the disk the same command runs again
        replace(path, seal.sealed(json.dumps(receipt, separators=(",", ":"))), lasting=False)


def _valid_answer(receipt: dict[str, Any]) -> Answer | None:
    """Return what the run of a receipt printed, if nothing that the receipt lists has changed."""
    if receipt["format"] != "samebits-receipt" or receipt["format_version"] != FORMAT_VERSION:
        return None
    if receipt["unrepeatable"] or _is_over(receipt["expires"]):
        return None
    matrix = receipt["matrix"]
    if matrix is not None and digest_of_file(Path(matrix[0])) != matrix[1]:
        return None
    if not _are_unchanged(receipt["written"]):
        return None
    files: dict[str, Identity | None] = {k: v and _identity(v) for k, v in receipt["files"].items()}
    folders = {
        folder: {name: _identity(recorded) for name, recorded in entries.items()}
        for folder, entries in receipt["folders"].items()
    }
    if changed(files, folders) is not None:
        return None
    return Answer(receipt["code"], [_notice(receipt["started"]), *receipt["lines"]])


def _is_over(expires: float | None) -> bool:
    return expires is not None and time.time() >= expires


def _identity(values: Sequence[int]) -> Identity:
    size, content, inode_change, inode = values
    return size, content, inode_change, inode


def _notice(started: str) -> str:
    return (
        f"nothing changed since the run of {started}; these are its results (--fresh runs it again)"
    )


def _are_unchanged(written: Mapping[str, str]) -> bool:
    """Return True if the report's files are as they were written; other files do not matter."""
    return all(digest_of_file(Path(path)) == digest for path, digest in written.items())


def _matrix_path(arguments: Sequence[str]) -> Path:
    """Return the matrix file that the command line names; a wrong guess finds no receipt."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False, allow_abbrev=False)
    parser.add_argument("--matrix", default="matrix.yaml")
    try:
        return expanded(parser.parse_known_args(list(arguments))[0].matrix)
    except argparse.ArgumentError:
        return Path("matrix.yaml")


def _work(arguments: Sequence[str], environ: Mapping[str, str]) -> Path:
    """Return the folder of what is kept between the runs of a command."""
    if arguments[0] == "check":
        from samebits.stacks.places import checks_folder  # noqa: PLC0415  a matrix does without

        return checks_folder(environ)
    return _matrix_path(arguments).resolve().parent / WORK


def _name(arguments: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the file of a receipt, after its command, folder, variables, source and machine."""
    names = {*PASSED_ON} - _SECRETS | {n for n in environ if n.startswith(_RESOLVER_PREFIXES)}
    variables = {name: environ[name] for name in names if name in environ}
    folder = str(Path.cwd())
    screen = _width() if arguments[0] == "check" else None
    asked = [list(arguments), folder, variables, screen]
    return f"{digest_of([*asked, source_digest(), machine_fingerprint()])[:16]}.json"


def _width() -> int | None:
    """Return the width of the terminal, for which a check prints its screen; None: standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _packages() -> list[str]:
    """Return the names and versions of the packages installed along with samebits."""
    folders = (Path(entry) for entry in sys.path if entry.endswith("site-packages"))
    return sorted(path.name for folder in folders for path in folder.glob("*.dist-info"))
