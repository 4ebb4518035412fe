"""``samebits warm``: the environments that runs with ``--warm`` left in memory, and their end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from tabulate import tabulate

from samebits.base.options import Option
from samebits.records.record import Record
from samebits.stacks import warm
from samebits.stacks.warm import Keeper
from samebits.text.numbers import plural
from samebits_wire.places import STAMP

HELP = """\
List the environments that runs with --warm left in memory, with the memory that each takes.

Each ends by itself when no run has used it for the minutes that --warm named, or when the machine is short
of memory: then the one that was used least recently is the first. Other users cannot reach them.
"""
NOTHING = "No environment is in memory. A run with --warm MINUTES keeps its environments there."
_COLUMNS = ("environment", "transformers", "memory", "runs", "")
_MEGABYTE = 1 << 20


class WarmOptions(Record):
    """The options of ``samebits warm``."""

    end: Annotated[bool, Option()] = False
    """End them. One that a run uses ends after that run."""


def lines(options: WarmOptions, environ: Mapping[str, str]) -> list[str]:
    """Return the lines to print; with ``end`` the processes end."""
    folder = warm.home(environ)
    keepers = warm.keepers(folder, end=options.end) if folder else []
    if not keepers:
        return [NOTHING]
    if options.end:
        total = _megabytes(sum(keeper.memory for keeper in keepers))
        return [f"Ended {plural(len(keepers), 'environment')}, which held {total}."]
    rows = [_row(keeper) for keeper in keepers]
    return tabulate(rows, _COLUMNS, disable_numparse=True).splitlines()


def _row(keeper: Keeper) -> tuple[str, ...]:
    folder = Path(keeper.environment)
    state = f"ends in {keeper.ends_in / 60:.0f} min"
    if keeper.running:
        state = f"used by {plural(keeper.running, 'run')}"
    memory = _megabytes(keeper.memory)
    return folder.name, _transformers(folder), memory, f"{keeper.runs:,}", state


def _transformers(folder: Path) -> str:
    """Return the release of transformers of an environment; '?' if it does not say."""
    try:
        return str(json.loads((folder / STAMP).read_text("utf-8"))["packages"]["transformers"])
    except (OSError, ValueError, LookupError, TypeError):
        return "?"


def _megabytes(n_bytes: int) -> str:
    return f"{n_bytes / _MEGABYTE:,.0f} MiB"
