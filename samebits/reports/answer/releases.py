"""Releases as a sentence names them."""

from __future__ import annotations

import re

_MINOR = re.compile(r"(\d+)\.(\d+)")
_LAST_OF_4, _FIRST_OF_5 = (4, 57), (5, 0)

from samebits.records.report import Report
from samebits.text.names import spanned


def release(stack: str, report: Report) -> str:
    """Return the name of a stack; of a family such as ``5.x``, and of a checkout, the version that it stands for."""
    has = version(stack, report)
    return has if stack.endswith(".x") or "+" in has else stack


def version(stack: str, report: Report) -> str:
    """Return the release of transformers that a stack has."""
    listed = (entry.transformers for entry in report.stacks if entry.id == stack)
    return next(listed, None) or stack


def distinct(stack: str, report: Report) -> str:
    """Return the version of a stack; its name where another stack has that version, as in a scan of a package."""
    has = version(stack, report)
    shared = sum(entry.transformers == has for entry in report.stacks) > 1
    return stack if shared else has


def are_neighbours(earlier: str, later: str, report: Report) -> bool:
    """Return True if no minor release lies between two stacks; of versions that are not known, too."""
    ends = [_MINOR.match(version(stack, report)) for stack in (earlier, later)]
    if ends[0] is None or ends[1] is None:
        return True
    (major, minor), (next_major, next_minor) = (map(int, end.groups()) for end in ends if end)
    if major == next_major:
        return next_minor - minor <= 1
    return (major, minor, next_major, next_minor) == (*_LAST_OF_4, *_FIRST_OF_5)


def listed(stacks: list[str], report: Report) -> str:
    """Return several stacks in one phrase."""
    return spanned(release(stack, report) for stack in stacks)
