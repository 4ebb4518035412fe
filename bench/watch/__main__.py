"""``nox -s watch``: replay the night watch over transformers' main on a clone; write docs/watch.md.

``--repo DIR`` names the clone, ``--since`` and ``--until`` the days, ``--every`` the days between two nights. A
night is the last commit of the main line before 03:00 UTC. The reference is the release that the commit descends
from. A night whose report exists is not run again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bench.place import ROOT, WORK
from samebits.base import git
from samebits.matrix import load, yamltext
from samebits.pipeline.order import Order
from samebits.pipeline.run import run_matrix
from samebits.reports import json as report_json
from samebits.stacks.places import checks_folder
from samebits.stacks.source import read as read_source
from samebits.terminal.progress import silent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits.records.report import Report

MATRIX = ROOT / "examples" / "github" / "watch.yaml"
FOLDER = WORK / "watch"


def main() -> None:
    """Run the nights that have no report yet, and replay all of them."""
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
        start, cpu = time.monotonic(), _cpu()
        report = asyncio.run(night(options.repo.absolute(), commit))
        path.write_text(report_json.render(report), "utf-8")
        seconds = f"{time.monotonic() - start:.0f} s, {_cpu() - cpu:.0f} s of CPU"
        counts = {str(verdict): n for verdict, n in report.counts.items() if n}
        print(day, commit[:10], report.reference, counts, seconds, flush=True)


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


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
