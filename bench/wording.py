"""Phrases that a change reworded on purpose, and what no two runs repeat."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_UNREPEATABLE = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:Z|[+-]\d\d:\d\d)"), "<time>"),
    (
        re.compile(r"\b\d+(?:\.\d+)? s\b|\b\d+ min(?: \d+ s)?\b|\b\d+ h(?: \d+ min)?\b"),
        "<duration>",
    ),
    # the folder of a checkpoint, which follows the code that makes it
    (re.compile(r"(?<=…/)([\w.-]+)-[0-9a-f]{12}\b"), r"\1-<digest>"),
)


class Pair(NamedTuple):
    """What a change replaced on purpose: a phrase, or the path of a key."""

    before: str
    after: str


class Wording:
    """The reworded phrases of a change, and which of them occurred so far."""

    def __init__(self, pairs: Iterable[Pair]) -> None:
        self._after = dict(pairs)
        # one pass, the longest phrase first: no replacement is replaced again
        phrases = sorted(self._after, key=len, reverse=True)
        self._phrases = re.compile("|".join(map(re.escape, phrases)) or r"(?!)")
        self._used: set[str] = set()

    def reworded(self, text: str) -> str:
        """Return a text with every reworded phrase replaced."""
        return self._phrases.sub(self._replaced, text)

    def unused(self) -> list[str]:
        """Return the phrases that occurred in no text."""
        return sorted(self._after.keys() - self._used)

    def _replaced(self, phrase: re.Match[str]) -> str:
        self._used.add(phrase[0])
        return self._after[phrase[0]]


def repeatable(text: str) -> str:
    """Return a text without times of day, durations and the digests in names of folders."""
    for pattern, replacement in _UNREPEATABLE:
        text = pattern.sub(replacement, text)
    return text


def lines(path: Path) -> list[str]:
    """Return the entries of a list in ``bench/``: its lines without empty ones and comments (#)."""
    text = path.read_text("utf-8")
    return [line for line in text.splitlines() if line.strip() and not line.startswith("#")]


def pairs(path: Path) -> list[Pair]:
    """Return the entries ``before => after`` of a list in ``bench/``."""
    return [Pair(*line.split(" => ", 1)) for line in lines(path)]
