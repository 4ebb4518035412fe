"""Names of layers and tensors, with those joined that differ in one number alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGES = "models"
"""Folder of the models' pages, beside report.md."""

CAPSULES = "repro"
"""Folder of the capsules, beside report.md."""

_FIRST_INDEX = re.compile(r"(?<![^.])\d+(?![^.])")


def numbered(names: Iterable[str]) -> list[str]:
    """Return the names with runs of numbers joined: ``model.layers.0-3.self_attn``."""
    groups: dict[tuple[str, str], list[int]] = {}
    for name in names:
        found = _FIRST_INDEX.search(name)
        key = (name[: found.start()], name[found.end() :]) if found else (name, "")
        groups.setdefault(key, []).extend([int(found[0])] if found else [])
    return [f"{before}{_ranges(numbers)}{after}" for (before, after), numbers in groups.items()]


def page_path(model: str) -> str:
    """Return where the page of a model lies, relative to report.md."""
    return f"{PAGES}/{quote(model, safe='', errors='backslashreplace')}.md"


def capsule_path(model: str, stack: str) -> str:
    """Return where the capsule of a model on a stack lies, relative to report.md.

    The ``@`` in its middle keeps the name from being ``..``.
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
