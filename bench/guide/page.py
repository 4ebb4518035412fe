"""docs/guide.md, written from what ``nox -s guide`` measured last."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.fixes.page import table
from bench.place import ROOT

PATH = ROOT / "docs" / "guide.md"
RESULTS = Path(__file__).parent / "results.json"
PARTS = {"guide": "The migration guide", "releases": "The releases"}
HEAD = """\
# The migration guide as an exam

Written by `nox -s guide` from `bench/guide/results.json`; do not edit. transformers announced these changes itself:
in its guide of the migration to 5.0, and in the notes, pull requests and wheels of the releases since. What does
samebits show of each?

Each item of [bench/guide/cases.yaml](../bench/guide/cases.yaml) has something that the change affects: a small model
that samebits runs in a release on either side of the change, a script that `samebits lint` reads, or a config file
that `samebits defaults` reads. It has a twin, too, which the change does not affect. Nothing in samebits knows the
items. Items that affect neither results, loading, tokens, generation, saving nor training are not listed.

- *named*: a finding, the cause or a line of the traceback says what changed.
- *noticed*: a verdict, a signal or an exception shows it, and nothing names it.
- *missed*: samebits shows nothing.
- *not observable*: nothing that runs on a CPU and without a network has it.
- *false alarms*: twins of which the run says what it says of their item.
"""


def main() -> None:
    """Write the page."""
    PATH.write_text(page(json.loads(RESULTS.read_text("utf-8"))), "utf-8")


def page(results: dict[str, Any]) -> str:
    """Return docs/guide.md."""
    parts = [HEAD.strip(), _measured(results), "## Figures", _figures(results)]
    for key, title in PARTS.items():
        rows = [_row(record) for record in results[key]]
        parts += [f"## {title}", table(["", "change", "", "by, or why not"], rows)]
    return "\n\n".join(parts) + "\n"


def state(record: dict[str, Any]) -> str:
    """Return named, noticed, missed or not observable."""
    if record["unobservable"]:
        return "not observable"
    return "named" if record["named"] else "noticed" if record["found"] else "missed"


def _measured(results: dict[str, Any]) -> str:
    cores = f"{results['machine']['cores']} cores"
    if results.get("in_parts"):
        return f"Put together from runs of some items each, the last one on {results['date']}, on {cores}."
    if not results["fresh"]:
        return f"Measured {results['date']} on {cores}, with what earlier runs had captured."
    return f"Measured {results['date']} from nothing in {results['minutes']} minutes on {cores}."


def _figures(results: dict[str, Any]) -> str:
    rows = []
    for key, title in PARTS.items():
        states = [state(record) for record in results[key]]
        named, noticed = states.count("named"), states.count("noticed")
        alarms = sum(bool(record["alarm"]) for record in results[key])
        others = [states.count(name) for name in ("missed", "not observable")]
        rows.append([title, len(states), named, named + noticed, *others, alarms])
    heads = ["", "items", "named", "named or noticed", "missed", "not observable", "false alarms"]
    return table(heads, rows)


def _row(record: dict[str, Any]) -> list[str]:
    mark = state(record)
    why = record["cause"] if record["found"] else record["reason"]
    if record["alarm"]:
        why += f" **False alarm**: {record['alarm']}"
    text = f"[{record['text']}]({record['link']})" if record["link"] else record["text"]
    shown = mark if mark in {"named", "noticed"} else f"**{mark}**"
    return [record["where"], text, shown, why]
