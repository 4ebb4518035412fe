"""Which releases a check compares: from the one that saved the model to the newest."""

from __future__ import annotations

import re
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

from samebits.base.errors import SamebitsError, nearest, shown
from samebits.matrix import known
from samebits.matrix.load import age
from samebits.matrix.values import is_source

NEWEST = "5.x"
MINORS = tuple(dict.fromkeys(version.rpartition(".")[0] for version in known.releases()))
"""The minor releases that samebits knows, oldest first. A newer one may be named, too."""
USUAL = ("4.48", "4.57", "5.2", NEWEST)
"""The stacks of a matrix that names none."""

_FAMILY = re.compile(r"\d+(\.\d+){1,2}|\d+\.x", re.ASCII)


class ReleaseError(SamebitsError):
    """A release on the command line is none, or the releases are in the wrong order."""


class Span(NamedTuple):
    """The releases of a check, oldest first, and why they are these."""

    stacks: tuple[str, ...]
    reason: str


def span(saved_with: str | None, first: str | None, last: str | None) -> Span:
    """Return the releases to compare. ``first`` and ``last`` are those that the user names.

    Raises:
        ReleaseError: a name is no release, or ``first`` is newer than ``last``.

    """
    for option, text in (("--from", first), ("--to", last)):
        if text is not None and not is_source(text):
            _check(option, text)
    end = last or NEWEST
    if first is not None:
        return _ordered(first, end, "as named")
    saved = minor_of(saved_with)
    if saved is None:
        before = tuple(id_ for id_ in USUAL if age(id_) < age(end))
        text = "config.json names no release: the reference is the oldest that knows the model"
        return Span((*before, end), text)
    if age(saved) < age(_newest_known(end)):
        return _ordered(saved, end, _why(saved_with, saved))
    before = tuple(id_ for id_ in USUAL if age(id_) < age(saved) and age(id_) < age(end))
    if not before:
        raise ReleaseError(
            f"--to {end} is the oldest release that samebits supports, so there is none to compare "
            "it with: name a newer one"
        )
    text = f"it was saved with {saved_with}, which is no older than {end}"
    return Span((before[-1], end), text)


def minor_of(version: str | None) -> str | None:
    """Return the minor release nearest to a version that config.json names; None for no version."""
    try:
        parsed = Version(version or "")
    except InvalidVersion:
        return None
    minor = f"{parsed.major}.{parsed.minor}"
    if age(minor) > age(MINORS[-1]) and not parsed.is_prerelease:
        return minor
    before = [release for release in MINORS if age(release) <= age(minor)]
    return before[-1] if before else MINORS[0]


def _why(saved_with: str | None, minor: str) -> str:
    if saved_with is not None and saved_with.startswith(f"{minor}."):
        return f"saved with {saved_with}"
    return f"saved with {saved_with}; the nearest release that samebits supports is {minor}"


def _ordered(first: str, last: str, reason: str) -> Span:
    if first == last:
        return Span((first,), reason)
    if age(first) > age(last):
        msg = f"--from {first} is newer than --to {last}: swap them, or name another one"
        raise ReleaseError(msg)
    return Span((first, last), reason)


def _newest_known(release: str) -> str:
    """Return the newest known minor release of a family such as 5.x; any other name as it is."""
    major, _, minor = release.partition(".")
    members = [release for release in MINORS if release.partition(".")[0] == major]
    return members[-1] if minor == "x" and members else release


def _check(option: str, text: str) -> None:
    if not _FAMILY.fullmatch(text):
        raise ReleaseError(
            f"{option} {shown(text)} is no release of transformers: write 4.57 (its newest patch), "
            f"4.57.1, {NEWEST}, a folder with a checkout, such as ../transformers, or a clone and all 40 digits "
            "of a commit, ../transformers@0123…"
        )
    minor = ".".join(text.split(".")[:2])
    if age(minor) < age(MINORS[0]):
        msg = f"{option} {text} is too old: samebits supports transformers from {MINORS[0]} on"
        raise ReleaseError(msg)
    is_family = minor.endswith(".x") or minor in MINORS
    if not is_family and age(minor) < age(MINORS[-1]):
        msg = f"{option} {text}: there is no such release of transformers; {nearest(minor, MINORS)}"
        raise ReleaseError(msg)
