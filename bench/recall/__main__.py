"""``nox -s recall``: run the cases and the clean pairs, and write docs/recall.md.

``--cases NAMES`` runs some cases only (names or patterns, separated by commas) and ``--no-clean`` no clean
pairs; then nothing but .samebits/recall/part.json is written. A run consists of parts, one for the cases of the
same releases and one for each clean pair. A part that has ended is not run again until samebits, the probes or
its cases change, so a run that was stopped goes on where it was; ``--fresh`` begins from nothing.
"""

from __future__ import annotations

import argparse
import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from bench.machine import machine
from bench.place import WORK, Place
from bench.recall import clean, page
from bench.recall.cases import Case, Group, Pair, groups, read
from bench.recall.parts import Part, Progress, kept
from bench.recall.run import OPTIONS, chosen, run_group

FOLDER = WORK / "recall"
FORMAT_VERSION = 1


def main() -> None:
    """Run, print, and write the page after a whole run."""
    parser = argparse.ArgumentParser(prog="nox -s recall --", description=__doc__)
    parser.add_argument("--cases", default="", help="names or patterns, separated by commas")
    parser.add_argument("--no-clean", action="store_true", help="leave the clean pairs out")
    parser.add_argument("--fresh", action="store_true", help="reuse nothing of earlier runs")
    options = parser.parse_args()
    if options.fresh:
        shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    cases = read()
    of_cases = chosen(groups(cases.cases, cases.together), options.cases)
    pairs = () if options.no_clean else cases.clean
    order = [*cases.cases]
    results: dict[str, Any] = {
        "format": "samebits-recall",
        "format_version": FORMAT_VERSION,
        "date": datetime.now(UTC).date().isoformat(),
        "minutes": 0,
        "fresh": True,
        "machine": machine(),
        "cases": [],
        "clean": [],
    }
    progress = Progress(len(of_cases) + len(pairs))
    for group in of_cases:
        part = run(group, progress)
        results["cases"] += part.result
        results["cases"].sort(key=lambda record: order.index(record["name"]))
        _write(results, FOLDER / "part.json", progress)
    for pair in pairs:
        results["clean"].append(run_pair(pair, progress).result)
        _write(results, FOLDER / "part.json", progress)
    print(page.page(results))
    if not options.cases and not options.no_clean:
        _write(results, page.RESULTS, progress)
        page.main()


def _write(results: dict[str, Any], path: Path, progress: Progress) -> None:
    results["minutes"] = round(progress.seconds / 60)
    results["fresh"] = progress.is_fresh
    path.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def run(group: Group, progress: Progress) -> Part:
    """Run the cases of one group and return what the report shows of each."""
    part = run_group(group, FOLDER, progress)
    part.result[:] = [
        _record(record["name"], cast("Case", group.cases[record["name"]]), record)
        for record in part.result
    ]
    lost = [record["name"] for record in part.result if not record["named"]]
    progress.end(part, f"not found or not named: {', '.join(lost) or 'none'}")
    return part


def run_pair(pair: Pair, progress: Progress) -> Part:
    """Run all models in two releases and return which pairs are clean, and which are accused."""
    folder = FOLDER / f"clean-{pair.reference}-{pair.candidate}"
    matrix = clean.matrix(pair)
    progress.begin(f"clean pairs in {pair.reference} and {pair.candidate}")

    def work() -> dict[str, Any]:
        place = Place(folder, matrix)
        place.samebits(*OPTIONS, "--quick")
        outcome = clean.judge(pair, place)
        return {
            "reference": pair.reference,
            "candidate": pair.candidate,
            "clean": list(outcome.clean),
            "others": outcome.others,
            "accusations": {entry.model: entry.shown for entry in outcome.accusations},
        }

    part = kept(folder, {"matrix": matrix}, work)
    n_clean, accused = len(part.result["clean"]), ", ".join(part.result["accusations"])
    progress.end(part, f"{n_clean} clean pairs, false alarms: {accused or 'none'}")
    return part


def _record(name: str, case: Case, outcome: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "link": case.link,
        "symptom": case.symptom,
        "area": case.area,
        "held_out": case.held_out,
        "neighbours": case.neighbours,
        "good": list(case.good),
        "bad": list(case.bad),
        **outcome,
    }


if __name__ == "__main__":
    main()
