"""docs/recall.md and the sentence of README.md, written from what ``nox -s recall`` measured last."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from bench.fixes import page as drawn
from bench.place import ROOT

PATH = ROOT / "docs" / "recall.md"
README = ROOT / "README.md"
RESULTS = Path(__file__).parent / "results.json"
BEGIN, END = "<!-- recall: written by nox -s recall -->", "<!-- end of recall -->"

HEAD = """\
# Recall

Written by `nox -s recall` from `bench/recall/results.json`; do not edit. How many published regressions of
transformers does samebits find, and does it accuse code that did not change?

## Method

Each case of [bench/recall/cases.yaml](../bench/recall/cases.yaml) is an issue or a pull request, a small model
that shows it without a network, releases that have the regression and releases that do not. samebits runs the
model in all of them. Nothing in samebits knows the cases: it reads the same kind of matrix.yaml as from a user.

- *found*: under a bad release, the run shows a signal, a finding or an exception that the case expects. A
  signal counts only if the verdict fails the run, so rounding finds nothing.
- *named*: besides, the run has the right finding, or its cause or traceback has the right function or file.
- *release*: every bad release of the case shows it, and no good one does. Where the last bad release and the
  first good one have none between them, this is the exact release ("neighbours" in the table).
- *held out*: neither zoo.yaml nor a test had this regression when it entered the file. The other cases are
  known to the project, some since its rules were written, so they show what is kept rather than what is new.

A *clean pair* is a model and two releases that execute the same code for it: all functions of its forwards and
of its decoding, and the model's own functions of its construction, have the same syntax trees and constants.
The run finds these pairs in the sources. They run with `--quick`, which makes all verdicts and only some findings.
Any verdict but *identical*, and any finding that only the candidate has, is a false alarm.
"""


def main() -> None:
    """Write the page and the sentence from results.json."""
    results = json.loads(RESULTS.read_text("utf-8"))
    PATH.write_text(page(results), "utf-8")
    README.write_text(with_sentence(README.read_text("utf-8"), results), "utf-8")


def page(results: dict[str, Any]) -> str:
    """Return docs/recall.md."""
    cases = results["cases"]
    parts = [
        HEAD.strip(),
        _measured(results),
        "## Figures",
        drawn.table(["", "cases", "found", "named", "release"], _figures(cases)),
        "## Cases",
        drawn.table(["case", "area", "bad", "good", "found", "named", "release"], _cases(cases)),
    ]
    if missing := [case for case in cases if case["reason"]]:
        parts += ["## What is missing", *(_missing(case) for case in missing)]
    parts += ["## Clean pairs", *_clean(results["clean"])]
    if (fixes := drawn.read()) is not None:
        parts += drawn.section(fixes)
    return "\n\n".join(parts) + "\n"


def _measured(results: dict[str, Any]) -> str:
    """Return when and how long; a run that reuses captures of earlier ones takes any time."""
    cores = f"{results['machine']['cores']} cores"
    if not results.get("fresh"):
        return f"Measured {results['date']} on {cores}, with what earlier runs had captured."
    return f"Measured {results['date']} from nothing in {results['minutes']} minutes on {cores}."


def with_sentence(readme: str, results: dict[str, Any]) -> str:
    """Return README.md with the figures between its two marks."""
    pattern = f"{re.escape(BEGIN)}.*?{re.escape(END)}"
    if not re.search(pattern, readme, flags=re.DOTALL):
        raise SystemExit(f"README.md has no {BEGIN} … {END}")
    return re.sub(
        pattern, lambda _: f"{BEGIN}\n{sentence(results)}\n{END}", readme, flags=re.DOTALL
    )


def sentence(results: dict[str, Any]) -> str:
    """Return the figures in words, in lines as README.md has them."""
    cases = results["cases"]
    n_pairs = sum(len(pair["clean"]) for pair in results["clean"])
    n_alarms = sum(len(pair["accusations"]) for pair in results["clean"])
    found, named = (sum(case[key] for case in cases) for key in ("found", "named"))
    start = (
        f"Of {len(cases)} published regressions of transformers, samebits finds {found} and names the cause of "
        f"{named}"
    )
    alarms = {0: "no false alarm", 1: "1 false alarm"}.get(n_alarms, f"{n_alarms} false alarms")
    clean = (
        f",\nwith {alarms} in {n_pairs} pairs of releases that execute the same code"
        if n_pairs
        else ""
    )
    fixes = drawn.read()
    more = f"\n{drawn.sentence(fixes)}" if fixes else ""
    return f"{start}{clean} ([docs/recall.md](docs/recall.md)).{more}"


def _figures(cases: list[dict[str, Any]]) -> list[list[Any]]:
    groups = {
        "all": cases,
        "held out": [case for case in cases if case["held_out"]],
        "neighbouring releases": [case for case in cases if case["neighbours"]],
    }
    areas = Counter(case["area"] for case in cases)
    groups |= {area: [case for case in cases if case["area"] == area] for area in areas}
    return [
        [
            name,
            len(group),
            *(sum(case[key] for case in group) for key in ("found", "named", "released")),
        ]
        for name, group in groups.items()
    ]


def _cases(cases: list[dict[str, Any]]) -> list[list[str]]:
    return [
        [
            f"[{case['name']}]({case['link']}): {case['symptom']}",
            case["area"] + (", held out" if case["held_out"] else ""),
            ", ".join(case["bad"]) + (" (neighbours)" if case["neighbours"] else ""),
            ", ".join(case["good"]),
            _mark(case["found"]),
            _mark(case["named"])
            + (f": {case['cause']}" if case["named"] and case["cause"] else ""),
            _mark(case["released"]),
        ]
        for case in cases
    ]


def _mark(yes: bool) -> str:
    return "yes" if yes else "**no**"


def _missing(case: dict[str, Any]) -> str:
    return f"- [{case['name']}]({case['link']}): {case['reason']}"


def _clean(pairs: list[dict[str, Any]]) -> list[str]:
    rows: list[list[Any]] = [
        [
            f"{pair['reference']} and {pair['candidate']}",
            len(pair["clean"]),
            len(pair["others"]),
            len(pair["accusations"]),
        ]
        for pair in pairs
    ]
    total = ["all", *(sum(row[i] for row in rows) for i in (1, 2, 3))]
    parts = [drawn.table(["releases", "clean pairs", "other code", "false alarms"], [*rows, total])]
    parts += [
        f"- {model}, {pair['reference']} and {pair['candidate']}: {shown}"
        for pair in pairs
        for model, shown in pair["accusations"].items()
    ]
    return parts
