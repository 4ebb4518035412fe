"""Which functions ran on the way to a cause on both sides and are not the same source."""

from __future__ import annotations

import difflib
import textwrap
from itertools import islice
from typing import TYPE_CHECKING

from samebits.records.trace import SourceDiff

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.trace import Function, Trace

LONGEST = 60
"""Lines of one diff."""
MOST = 3
_PASSING_ON = (
    "transformers/utils/",
    "transformers/generation/",
    "transformers/modeling_layers.py",
)
"""Files whose functions wrap a model and compute nothing of it."""


def diffs(reference: Trace, candidate: Trace) -> tuple[SourceDiff, ...]:
    """Return the diffs of the functions around the looked-at operations, innermost first."""
    return tuple(islice(_diffs(reference, candidate), MOST))


def _diffs(reference: Trace, candidate: Trace) -> Iterator[SourceDiff]:
    for one, other in _paired(reference, candidate):
        left, right = (
            textwrap.dedent(trace.texts[number]).splitlines()
            for trace, number in ((reference, one), (candidate, other))
        )
        lines = list(difflib.unified_diff(left, right, n=2, lineterm=""))[2:]
        if lines:
            yield SourceDiff(
                function=candidate.functions[other].name,
                reference=_place(reference.functions[one]),
                candidate=_place(candidate.functions[other]),
                diff="\n".join(lines[:LONGEST]),
                cut=max(0, len(lines) - LONGEST),
            )


def _paired(reference: Trace, candidate: Trace) -> Iterator[tuple[int, int]]:
    """Yield functions of one name that differ, then the innermost that only one side has."""
    left, right = _told(reference), _told(candidate)
    for name, number in right.items():
        other = left.get(name)
        if other is None:
            continue
        digests = reference.functions[other].digest, candidate.functions[number].digest
        if digests[0] != digests[1] or not digests[0]:
            yield other, number
    mine = next((number for name, number in left.items() if name not in right), None)
    theirs = next((number for name, number in right.items() if name not in left), None)
    if mine is not None and theirs is not None:
        yield mine, theirs


def _told(trace: Trace) -> dict[str, int]:
    """Return the functions around what was looked at, innermost first, by name."""
    numbers = dict.fromkeys(number for look in trace.looks.values() for number in look.chain)
    return {
        trace.functions[number].name: number
        for number in numbers
        if trace.texts.get(number) and not _passes_on(trace.functions[number])
    }


def _passes_on(function: Function) -> bool:
    return function.file.startswith(_PASSING_ON) or "<locals>" in function.name


def _place(function: Function) -> str:
    return f"{function.file}:{function.line}"
