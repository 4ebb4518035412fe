"""Short lists of layers, tensors and releases, and the paths of the report's pages and capsules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

PAGES = "models"
"""Folder of the models' pages, in the folder of report.md."""

CAPSULES = "repro"
"""Folder of the capsules, in the folder of report.md."""

LOCKS = "locks"
"""Folder of the lock files, in the folder of report.md."""

_MINOR = re.compile(r"\d+\.\d+")
_LAST_OF_4, _FIRST_OF_5 = "4.57", "5.0"

_FIRST_INDEX = re.compile(r"(?<![^.])\d+(?![^.])")


def numbered(names: Iterable[str]) -> list[str]:
    """Join names that differ only in their first number: ``model.layers.0-3.self_attn``."""
    groups: dict[tuple[str, str], list[int]] = {}
    for name in names:
        match = _FIRST_INDEX.search(name)
        key = (name[: match.start()], name[match.end() :]) if match else (name, "")
        groups.setdefault(key, []).extend([int(match[0])] if match else [])
    return [f"{before}{_ranges(numbers)}{after}" for (before, after), numbers in groups.items()]


def spanned(stacks: Iterable[str]) -> str:
    """Join names of stacks; three or more minor releases without a gap are one span, ``5.0 to 5.23``."""
    runs: list[list[str]] = []
    for stack in stacks:
        if runs and _follows(runs[-1][-1], stack):
            runs[-1].append(stack)
        else:
            runs.append([stack])
    return ", ".join(f"{r[0]} to {r[-1]}" if len(r) > 2 else ", ".join(r) for r in runs)


def _follows(earlier: str, later: str) -> bool:
    """Return True if two names are those of minor releases, and the second comes right after the first."""
    if not (_MINOR.fullmatch(earlier) and _MINOR.fullmatch(later)):
        return False
    major, minor = earlier.split(".")
    return later == f"{major}.{int(minor) + 1}" or (earlier, later) == (_LAST_OF_4, _FIRST_OF_5)


def page_path(model: str) -> str:
    """Return the path of a model's page, relative to report.md."""
    return f"{PAGES}/{quote(model, safe='', errors='backslashreplace')}.md"


def capsule_path(model: str, stack: str) -> str:
    """Return the path of the capsule of a model on a stack, relative to report.md.

    Because of the ``@`` the name can never be ``..``.
    """
    return f"{CAPSULES}/{quote(f'{model}@{stack}', safe='@', errors='backslashreplace')}"


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
