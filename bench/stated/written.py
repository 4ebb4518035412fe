"""The table of defaults, written: what the classes of a further release state, and the text of the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from bench.stated.sources import Stated
from samebits.defaults.table import FIELDS, History, Table

FORMAT_VERSION: Final = 1
_COMPACT: Final[dict[str, Any]] = {"separators": (",", ":")}


def add(table: Table, release: str, stated: Mapping[str, Stated]) -> None:
    """Add what the classes of the next release state."""
    table.__dict__.pop("_by_type", None)
    index = len(table.releases)
    table.releases.append(release)
    for name in stated:
        table.classes.setdefault(name, History())
    for name, history in table.classes.items():
        rows = _rows(stated[name]) if name in stated else {}
        for key in history.rows.keys() | rows.keys():
            _note(history, key, index, rows.get(key, ["-"]))


def _note(history: History, key: str, release: int, row: list[Any]) -> None:
    """Add a row if it differs from the last one."""
    rows = history.rows.setdefault(key, [])
    if (rows[-1][1:] if rows else ["-"]) != row:
        rows.append([release, *row])


def text(table: Table) -> str:
    """Return the table as a file has it: a line for each class."""
    lines = (
        f"{json.dumps(name)}:{json.dumps(dict(sorted(of.rows.items())), **_COMPACT)}"
        for name, of in sorted(table.classes.items())
    )
    releases = json.dumps(table.releases, **_COMPACT)
    head = f'{{"format_version":{FORMAT_VERSION},"releases":{releases}'
    return head + ',"classes":{\n' + ",\n".join(lines) + "\n}}\n"


def _rows(stated: Stated) -> dict[str, list[Any]]:
    rows: dict[str, list[Any]] = {"bases": ["=", list(stated.bases)]}
    if stated.type is not None:
        rows["type"] = ["=", stated.type]
    if stated.parts:
        rows["parts"] = ["=", stated.parts]
    if stated.aliases:
        rows["aliases"] = ["=", stated.aliases]
    if stated.keeps:
        rows["keeps"] = ["=", {name: list(needs) for name, needs in sorted(stated.keeps.items())}]
    if stated.takes:
        rows["takes"] = ["=", stated.takes]
    if stated.rope:
        rows["rope"] = ["=", stated.rope]
    if stated.renames:
        rows["renames"] = ["=", stated.renames]
    for name, value in stated.fields.items():
        needs = stated.needs.get(name)
        rows[f"{FIELDS}{name}"] = ["~", value, list(needs)] if needs else ["=", value]
    return rows | {f"{FIELDS}{name}": ["?"] for name in stated.computed}
