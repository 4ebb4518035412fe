"""Text of a lock: one package per line, with its version or address and the hashes of its wheels."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from samebits_wire import seal

FORM = 2
"""Form of locks, which is part of their names: 2 has hashes."""
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_PLAIN_PIN = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9._+!-]+(\x20--hash=sha256:[0-9a-f]{64})*(\x20\x20#\x20from\x20[\x20-~]*)?"
)
LINE = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(==|\x20@\x20)[!-\[\]-~]+(\x20--hash=sha256:[0-9a-f]{64})*(\x20\x20#\x20from\x20[\x20-~]*)?"
)
"""A line of a lock: a package and where it is, without options of uv."""


def is_lock(text: str) -> bool:
    """Return True if each line names a package, and none is an option of uv."""
    return all(map(LINE.fullmatch, text.splitlines()))


def pins_only(text: str) -> bool:
    """Return True if a lock pins versions of an index, and nothing else."""
    # str.splitlines has more line breaks than uv
    return bool(text) and all(map(_PLAIN_PIN.fullmatch, text.splitlines()))


def is_plain_lock(text: str) -> bool:
    """Return True if a lock file is whole and pins versions of an index, and nothing else.

    A lock from another machine has to be: a line with an address would install what is there.
    """
    try:
        return pins_only(seal.opened_lines(text))
    except ValueError:
        return False


def pinned_versions(lock: str) -> dict[str, str]:
    """Return the pinned versions of a lock: name -> version."""
    return dict(_PIN.findall(lock))


def package_of(line: str) -> str:
    """Return the name of the package in a line of a lock, as uv writes names."""
    match = re.match(r"[A-Za-z0-9._-]+", line)
    return re.sub(r"[-_.]+", "-", match.group()).lower() if match else ""


def lines_of(lock: str, pins: str) -> str:
    """Return the lines of a lock with the packages of other lines."""
    names = pinned_versions(pins).keys()
    return joined(line for line in lock.splitlines() if pinned_versions(line).keys() & names)


def without(lock: str, names: Collection[str]) -> str:
    """Return a lock without the entries of some packages."""
    entries = re.split(r"^(?=\w)", lock, flags=re.MULTILINE)
    return "".join(entry for entry in entries if package_of(entry) not in names)


def joined(lines: Iterable[str]) -> str:
    """Return lines as one text."""
    return "".join(f"{line}\n" for line in lines)
