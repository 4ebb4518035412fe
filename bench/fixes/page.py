"""The part of docs/recall.md about cases that nobody chose, from what ``nox -s fixes`` measured last."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from tabulate import tabulate

RESULTS = Path(__file__).parent / "results.json"
DRAWS = Path(__file__).parent / "draws"
PULLS = "https://github.com/huggingface/transformers/commit"
Z = 1.959964
"""Quantile of the normal distribution for 95 %."""

HEAD = """\
## Cases that nobody chose

Written by `nox -s fixes -- --draw N` from `bench/fixes/`. The cases above are regressions that somebody reported. These are drawn at random from
the fix commits of transformers since 4.48 whose subject and files say computation, loading, tokenizer, processor, generation or loss. The
drawn order is the draw: each commit is either *proven*, or skipped with a reason. It is proven by a script of transformers and torch alone, on a
tiny checkpoint, whose output differs between the last release without the fix and the first one with it. What counts as found was written
down before samebits ran. Then `samebits check FOLDER --from BEFORE --to AFTER` gets the folder, and no hint.

- *found*: a verdict that fails the run, a finding or a fact of the report shows the difference.
- *named*: what shows it names the function, the file or the defect.
- *listed*: it is among the first ten changes that the page lists as not run.
- *silent*: neither found nor listed. This is what a reader of *passes* does not learn.
"""


def section(results: dict[str, Any]) -> list[str]:
    """Return the blocks of the page."""
    parts = [HEAD.strip(), f"Measured {results['date']} on {results['machine']['cores']} cores."]
    parts += [_table(["", "cases", "found", "named", "listed", "silent"], _figures(results))]
    for level in results["levels"]:
        rows = [_case(case, level) for case in results["cases"]]
        header = ["commit", "releases", "found", "named", "listed", "the report shows"]
        parts += [f"### Each case, level {level}", _table(header, rows)]
    return [*parts, "### Skipped commits", *_skipped({case["draw"] for case in results["cases"]})]


def sentence(results: dict[str, Any]) -> str:
    """Return the figures of the default level in words."""
    n, figures = len(results["cases"]), counts(results, "default")
    low, high = interval(figures["found"], n)
    return (
        f"Of {n} fix commits that were drawn at random, a check without a hint finds {figures['found']}\n"
        f"(95 % interval {low:.0%} to {high:.0%}) and says nothing of {figures['silent']}."
    )


def counts(results: dict[str, Any], level: str) -> dict[str, int]:
    """Return in how many cases a level finds, names, lists, and says nothing."""
    shown = [case["levels"][level] for case in results["cases"]]
    return {key: sum(s[key] for s in shown) for key in ("found", "named", "listed", "silent")}


def interval(hits: int, n: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson, 1927)."""
    share = hits / n
    middle = share + Z**2 / (2 * n)
    half = Z * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    return max(0.0, (middle - half) / (1 + Z**2 / n)), min(1.0, (middle + half) / (1 + Z**2 / n))


def _figures(results: dict[str, Any]) -> list[list[Any]]:
    n = len(results["cases"])
    return [
        [level, n, *(_share(count, n) for count in counts(results, level).values())]
        for level in results["levels"]
    ]


def _share(count: int, n: int) -> str:
    low, high = interval(count, n)
    return f"{count} ({low:.0%} to {high:.0%})"


def _case(case: dict[str, Any], level: str) -> list[str]:
    shown = case["levels"][level]
    marks = [
        "yes" if shown[key] else "no" if key == "listed" else "**no**"
        for key in ("found", "named", "listed")
    ]
    text = shown["because"] or shown.get("why") or shown["shown"]
    name = f"[{case['sha']}]({PULLS}/{case['sha']}): {case['symptom']}"
    return [name, f"{case['before']} → {case['after']}", *marks, _cell(text)]


def _cell(text: str) -> str:
    """Return a text for a cell of a table."""
    short = " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
    return short if len(short) <= 160 else f"{short[:159]}…"


def _skipped(draws: set[int]) -> list[str]:
    reasons: Counter[str] = Counter()
    n = 0
    for draw in sorted(draws):
        for commit in yaml.safe_load((DRAWS / f"{draw}.yaml").read_text("utf-8"))["order"]:
            n += "status" in commit
            if commit.get("status") == "skipped":
                reasons[commit["reason"].partition(":")[0]] += 1
    listed = "; ".join(f"{reason} {count}" for reason, count in reasons.most_common())
    start = f"{sum(reasons.values())} of the first {n} commits were skipped ({listed})"
    return [f"{start}; bench/fixes/draws has each with its reason."]


def _table(header: list[str], rows: list[list[Any]]) -> str:
    return tabulate(rows, header, tablefmt="github", disable_numparse=True)


def read() -> dict[str, Any] | None:
    """Return the results; None before the first run."""
    if not RESULTS.exists():
        return None
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    return results
