"""docs/watch.md, from results.json and from what was read of each cause by hand, judged.yaml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from bench.place import ROOT
from samebits.text.numbers import plural

RESULTS = Path(__file__).parent / "results.json"
JUDGED = Path(__file__).parent / "judged.yaml"
PAGE = ROOT / "docs" / "watch.md"
FORMAT_VERSION = 1
_LINK = "https://github.com/huggingface/transformers/commit/"
_HEAD = """\
# The night watch, replayed

`nox -s watch` runs the models of [watch.yaml](../examples/github/watch.yaml) at commits of transformers' main, each
against the release that it descends from, and gives the reports to [samebits watch](how-to/night-watch.md)
in their order. Each cause was then judged by reading the commits between two nights
([judged.yaml](../bench/watch/judged.yaml)): *true*, if a commit changes what the models compute; *false*, if none does.
"""


def write(results: dict[str, Any]) -> None:
    """Write the results, and the page."""
    content = {"format": "samebits-watch-replay", "format_version": FORMAT_VERSION, **results}
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    PAGE.write_text(page(content, yaml.safe_load(JUDGED.read_text("utf-8")) or {}), "utf-8")


def read() -> dict[str, Any]:
    """Return the results of the last replay."""
    results: dict[str, Any] = json.loads(RESULTS.read_text("utf-8"))
    return results


def page(results: dict[str, Any], judged: dict[str, Any]) -> str:
    """Return the page."""
    nights, causes = results["nights"], results["causes"]
    cpu, wall = (sum(night[key] for night in nights) for key in ("cpu", "seconds"))
    verdicts = [judged.get(cause["id"], {}).get("verdict", "not judged") for cause in causes]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in sorted(set(verdicts)))
    closed = sum(bool(cause["closed"]) for cause in causes)
    head = (
        f"{plural(len(nights), 'night')} from {nights[0]['day']} to {nights[-1]['day']}: {plural(len(causes), 'cause')} "
        f"opened ({counts or 'none'}), {closed} closed, {len(results['open'])} open at the end. "
        f"It took at least {cpu / 60:.0f} minutes of CPU (a night with 0 had its results from a run that was interrupted), "
        f"{wall / 60:.0f} minutes on a machine of two cores that did other work as well."
    )
    lines = [
        _HEAD,
        head,
        "",
        "| cause | models | opened | closed | judged | commit |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_cause(cause, judged.get(cause["id"], {})) for cause in causes]
    lines += ["", "## What was read", ""]
    lines += [_read(cause, judged.get(cause["id"], {})) for cause in causes]
    lines += ["", judged.get("about", "").rstrip(), "", "## Nights", ""]
    lines += [
        "| night | main | against | models that differ | opened | closed | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_night(night) for night in nights]
    return "\n".join(lines) + "\n"


def _cause(cause: dict[str, Any], judged: dict[str, Any]) -> str:
    commit = f"[`{judged['commit']}`]({_LINK}{judged['commit']})" if "commit" in judged else ""
    cells = (
        f"`{cause['id']}`, {cause['kind']}",
        ", ".join(cause["models"]),
        cause["opened"],
        cause["closed"] or "open",
        judged.get("verdict", "not judged"),
        commit,
    )
    return f"| {' | '.join(cells)} |"


def _read(cause: dict[str, Any], judged: dict[str, Any]) -> str:
    n = plural(len(cause["commits"]), "commit")
    return (
        f"- `{cause['id']}`, {n} since the night before. {judged.get('why', 'Not judged.').strip()}"
    )


def _night(night: dict[str, Any]) -> str:
    quiet = {"reference", "identical", "rounding"}
    differ = sum(n for verdict, n in night["counts"].items() if verdict not in quiet)
    cells = (
        night["day"],
        f"[`{night['commit']}`]({_LINK}{night['commit']})",
        night["reference"],
        str(differ),
        *(", ".join(f"`{id}`" for id in night[key]) for key in ("opened", "closed")),
        str(night["cpu"]),
    )
    return f"| {' | '.join(cells)} |"
