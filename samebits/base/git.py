"""What git says of a folder or a clone, by commands that run no program of its config and fetch nothing."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

_SECONDS = 300


def git(folder: Path, *words: str, text: bytes = b"") -> bytes | None:
    """Return what git prints; None without git, outside of a repository, or after an error.

    A repository may have come with a model, and its config can name programs. So only commands
    that run none may be used (``log`` would verify signatures), and nothing is fetched.
    """
    try:
        process = subprocess.run(
            ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *words],
            env={**os.environ, "GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"},
            input=text,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout if process.returncode == 0 else None


def words(folder: Path, *arguments: str) -> list[str]:
    """Return the words that git prints; [] after an error."""
    return (git(folder, *arguments) or b"").decode("utf-8", "replace").split()


def shallow(folder: Path) -> str:
    """Return what a clone without its history may lack, in words; '' if it has its history."""
    if words(folder, "rev-parse", "--is-shallow-repository") != ["true"]:
        return ""
    return ". The clone is shallow: git fetch --unshallow --tags brings what it lacks"


def tree(folder: Path, commit: str, below: str) -> dict[str, str]:
    """Return the files of a commit below a folder of the repository: relative path -> id of the blob.

    All files, if ``below`` is ''.
    """
    start = f"{below}/" if below else ""
    words = ("ls-tree", "-r", "-z", "--full-tree", commit, *(("--", start) if start else ()))
    listed = git(folder, *words) or b""
    files = {}
    for entry in filter(None, listed.decode("utf-8", "surrogateescape").split("\0")):
        about, _, path = entry.partition("\t")
        mode, kind, blob = about.split()
        if kind == "blob" and mode != "120000":
            files[path.removeprefix(start)] = blob
    return files


def blobs(folder: Path, ids: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    """Yield the contents of blobs, or of other objects such as ``COMMIT:PATH``, that the repository has."""
    asked = list(dict.fromkeys(ids))
    output = git(folder, "cat-file", "--batch", text="".join(f"{id}\n" for id in asked).encode())
    rest = memoryview(output or b"")
    for id in asked if output else ():
        end = bytes(rest[:4096]).index(b"\n")
        header = bytes(rest[:end]).decode("utf-8", "replace")
        rest = rest[end + 1 :]
        if header.endswith(" missing"):
            continue
        size = header.rpartition(" ")[2]
        yield id, bytes(rest[: int(size)])
        rest = rest[int(size) + 1 :]
