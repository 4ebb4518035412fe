"""Which types and releases the atlas has, and the matrices that ask for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bench.coverage.page import FACTS
from bench.tiny import matrix
from samebits.questions import questions
from samebits.records.question import switches

RELEASES = ("4.48.3", "4.51.3", "4.54.1", "4.57.6", "5.0.0", "5.3.0", "5.13.1", "5.24.0")
"""The newest patch of some minors since 4.48: the last one of 4.x, the first and the newest one of 5.x among them."""
PART = 40
"""Types of one run: what it holds in memory, and what a run that is stopped loses at most."""


def types() -> list[str]:
    """Return the types whose forward ran when coverage was measured, those of the oldest releases first."""
    measured: dict[str, Any] = json.loads(FACTS.read_text("utf-8"))["types"]
    runs = {
        name: [release for release, failures in facts["runs"].items() if not failures[0]]
        for name, facts in measured.items()
    }
    return sorted((name for name in runs if runs[name]), key=lambda name: (-len(runs[name]), name))


def parts(names: Sequence[str], size: int = PART) -> Iterator[list[str]]:
    """Yield the types of each run."""
    for first in range(0, len(names), size):
        yield [*names[first : first + size]]


def of_border(
    names: Iterable[str], releases: tuple[str, str], older: Sequence[str] = ()
) -> dict[str, Any]:
    """Return a matrix.yaml of types that change between two releases: causes, and what shows the side that is right.

    ``older``: the releases of the atlas up to these. The oldest one that knows a type makes its checkpoint, as in the
    run that shows the step: one that a later release saved may not show it. They run no model.
    """
    makers = [release for release in older if release not in releases]
    shows_side = {question.name for question in questions() if question.contradicts is not None}
    asked = [word for word, key in switches().items() if key.name in shows_side]
    reason = "makes checkpoints"
    return matrix(names, [*makers, *releases]) | {
        "defaults": {"questions": asked},
        "reference": releases[0],
        "exclude": [{"model": "*", "environment": maker, "reason": reason} for maker in makers],
    }
