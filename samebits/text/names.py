"""Short lists of layer and tensor names, and the paths of the report's pages and capsules."""

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

_FIRST_INDEX = re.compile(r"(?<![^.])\d+(?![^.])")


def numbered(names: Iterable[str]) -> list[str]:
    """Join names that differ only in their first number: ``model.layers.0-3.self_attn``."""
    groups: dict[tuple[str, str], list[int]] = {}
    for name in names:
        match = _FIRST_INDEX.search(name)
        key = (name[: match.start()], name[match.end() :]) if match else (name, "")
        groups.setdefault(key, []).extend([int(match[0])] if match else [])
    return [f"{before}{_ranges(numbers)}{after}" for (before, after), numbers in groups.items()]


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
