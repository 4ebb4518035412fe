"""``nox -s watch``: replay the night watch over transformers' main on a clone; write docs/watch.md.

``--repo DIR`` names the clone, ``--since`` and ``--until`` the days, ``--every`` the days between two nights. A
night is the last commit of the main line before 03:00 UTC. The reference is the release that the commit descends
from. A night whose report exists is not run again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from bench.machine import machine
from bench.place import ROOT, WORK
from bench.watch import page
from samebits.base import git
from samebits.bisect.history import History
from samebits.matrix import load, yamltext
from samebits.pipeline.order import Order
from samebits.pipeline.run import run_matrix
from samebits.records.report import Report
from samebits.reports import json as report_json
from samebits.reports.cell.cause import shown_cause
from samebits.stacks.places import checks_folder
from samebits.stacks.source import read as read_source
from samebits.terminal.progress import silent
from samebits.watch.causes import Group, night_of
from samebits.watch.nights import changes
from samebits.watch.records import WatchFile

MATRIX = ROOT / "examples" / "github" / "watch.yaml"
FOLDER = WORK / "watch"


def main() -> None:
    """Run the nights that have no report yet, replay all of them, and write the results and the page."""
    parser = argparse.ArgumentParser(prog="nox -s watch --", description=__doc__)
    parser.add_argument("--repo", type=Path, required=True)
    parser.add_argument("--since", type=date.fromisoformat, required=True)
    parser.add_argument("--until", type=date.fromisoformat, required=True)
    parser.add_argument("--every", type=int, default=3)
    options = parser.parse_args()
    for day, commit in nights(options.repo, options.since, options.until, options.every):
        path = FOLDER / f"{day}.json"
        if path.exists():
            continue
        report = asyncio.run(night(options.repo.absolute(), commit))
        path.write_text(report_json.render(report), "utf-8")
        counts = {str(verdict): n for verdict, n in report.counts.items() if n}
        print(day, commit[:10], report.reference, counts, f"{report.seconds:.0f} s", flush=True)
    history = History(options.repo.absolute())
    page.write(replayed(history) | {"machine": machine()})


def nights(repo: Path, since: date, until: date, every: int) -> Iterator[tuple[date, str]]:
    """Yield days with the newest commit of the main line by then."""
    day = since
    while day <= until:
        before = datetime(day.year, day.month, day.day, 3, tzinfo=UTC).isoformat()
        words = ("rev-list", "-1", "--first-parent", f"--before={before}", "main")
        yield day, git.words(repo, *words)[0]
        day += timedelta(days=every)


async def night(repo: Path, commit: str) -> Report:
    """Return the report of one night."""
    source = f"{repo}@{commit}"
    release = read_source(source).base
    content: dict[str, Any] = yaml.safe_load(MATRIX.read_text("utf-8"))
    content["environments"] = [release, {"id": "main", "transformers": source}]
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / "watch.yaml"
    matrix = load.parse(yamltext.parse(yaml.safe_dump(content).encode()), file)
    order = Order(
        matrix=file,
        level="quick",
        causes=True,
        work=checks_folder(os.environ),
        checks=True,
    )
    report, _ = await run_matrix(order, os.environ, silent, matrix=matrix)
    return report


def replayed(history: History) -> dict[str, Any]:
    """Return what each night with a report changed, and the life of each cause."""
    state, shown, causes = WatchFile(), [], dict[str, dict[str, Any]]()
    for path in sorted(FOLDER.glob("20*.json")):
        report = report_json.read(path.read_bytes())
        tonight = night_of(report)
        changed = changes(state, tonight)
        for cause, group in changed.opens:
            since = state.commit or history.end(report.reference).sha
            causes[cause.id] = {
                **cause.model_dump(mode="json", exclude={"number", "decided"}),
                "opened": path.stem,
                "since": since[:10],
                "night": tonight.commit,
                "headline": _headline(group),
                "commits": [
                    f"{c.sha[:10]} {c.title}"
                    for c in history.line(since, tonight.commit).commits[1:]
                ],
                "closed": "",
            }
        for cause in changed.closes:
            causes[cause.id] |= {"closed": path.stem, "against": tonight.reference}
        shown.append(
            {
                "day": path.stem,
                "commit": tonight.commit,
                "reference": tonight.reference,
                "counts": {str(verdict): n for verdict, n in report.counts.items() if n},
                "seconds": report.seconds,
                "cpu": round(sum(spent.cpu for spent in report.spent)),
                "opened": [cause.id for cause, _ in changed.opens],
                "edited": [cause.id for cause, _ in changed.edits],
                "closed": [cause.id for cause in changed.closes],
            }
        )
        state = changed.after
    return {"nights": shown, "causes": [*causes.values()], "open": [k.id for k in state.causes]}


def _headline(group: Group | None) -> str:
    if group is None:
        return ""
    cell = group.cells[0]
    cause = shown_cause(cell)
    return cause.headline if cause else cell.headline


if __name__ == "__main__":
    main()
