"""docs/bisect.md, from results.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.place import ROOT
from samebits.text.numbers import plural

RESULTS = Path(__file__).parent / "results.json"
PAGE = ROOT / "docs" / "bisect.md"
_LINK = "https://github.com/huggingface/transformers/commit/"
_HEAD = """\
# Commits found

`nox -s bisect` gives [samebits bisect](how-to/find-the-commit.md) published regressions of transformers whose fixing
commit is known, and two releases around it. A case is *found* if that very commit is named, *wrong* if others are
and it is not. Another commit beside it that changes the model's bits, too, is counted as such. Each named commit was
tried, and so was the one before it. Seconds are of a machine of two cores that did other work as well. Cases of
[cases.yaml](../bench/bisection/cases.yaml) that the table does not have were not searched yet.

Commits of a package (`--package-repo`) are none of these cases. They were searched in timm, by hand: see
[find the commit](how-to/find-the-commit.md).
"""


def read() -> dict[str, Any] | None:
    """Return the results of earlier runs."""
    return json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else None


def page(results: dict[str, Any]) -> str:
    """Return the page."""
    cases = results["cases"]
    counts = {
        word: sum(case["outcome"] == word for case in cases)
        for word in ("found", "not found", "wrong")
    }
    lines = [
        _HEAD,
        f"{plural(len(cases), 'case')}: "
        + ", ".join(f"{n} {word}" for word, n in counts.items())
        + ".",
        "",
    ]
    lines += [
        "| case | between | commit | outcome | others named | commits | suspected | tried | s |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    lines += map(_row, cases)
    return "\n".join(lines) + "\n"


def _row(case: dict[str, Any]) -> str:
    others = [named["sha"] for named in case["named"] if named["sha"] != case["commit"]]
    failure = f": {case['failure'].splitlines()[0]}" if case["failure"] else ""
    cells = (
        case["name"],
        f"{case['from'][:10]} → {case['to'][:10]}",
        _link(case["commit"]),
        f"{case['outcome']}{failure}",
        ", ".join(map(_link, others)) or "none",
        *(f"{case[key]:,}" for key in ("n_commits", "n_suspected", "n_tried")),
        f"{case['seconds']:.0f}",
    )
    return f"| {' | '.join(cells)} |"


def _link(sha: str) -> str:
    return f"[`{sha[:10]}`]({_LINK}{sha})"


def main() -> None:
    """Write the page."""
    if (results := read()) is not None:
        PAGE.write_text(page(results), "utf-8")
