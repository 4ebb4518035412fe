"""``nox -s fixes``: prove the cases of the draws, check each artefact without a hint, write docs/recall.md.

``--cases NAMES`` takes some cases only (shas, separated by commas), ``--draw N`` one draw, ``--level NAME`` one
level; results.json keeps the others. A part that has ended is not run again until samebits, the probes or the
script of its case change; ``--fresh`` begins from nothing. ``--prove`` only proves.

Levels: *default* is ``samebits check FOLDER --from BEFORE --to AFTER``. *all* is the same model in a matrix with
every question switched on, and ``--deep --causes``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from bench.fixes import page, proof
from bench.fixes.draw import DRAWS
from bench.fixes.judge import judge
from bench.machine import machine
from bench.place import CODE, Place
from bench.recall import page as recall
from bench.recall.parts import Part, Progress, kept
from bench.took import run
from samebits.questions import QUESTIONS
from samebits.records.question import switches

REVIEWED = Path(__file__).parent / "reviewed.yaml"
"""What a person read in a report that the judge cannot read: sha -> level -> figures and why."""
LEVELS = ("default", "all")
FORMAT_VERSION = 1
_INSIDE = ("bench/fixes/inside",)
_REFUSED = 2
"""Exit code of samebits for a folder or an option that it does not take."""


def main() -> None:
    """Run, print, and write the results after a whole run."""
    parser = argparse.ArgumentParser(prog="nox -s fixes --", description=__doc__)
    parser.add_argument("--cases", default="")
    parser.add_argument("--draw", type=int)
    parser.add_argument("--level", choices=LEVELS)
    parser.add_argument("--prove", action="store_true")
    parser.add_argument("--fresh", action="store_true")
    options = parser.parse_args()
    if options.fresh:
        shutil.rmtree(proof.FOLDER / "parts", ignore_errors=True)
    wanted = {*filter(None, options.cases.split(","))}
    chosen = [
        (draw, commit)
        for draw, commit in proven()
        if (not wanted or commit["sha"] in wanted) and options.draw in (None, draw)
    ]
    levels = () if options.prove else (options.level,) if options.level else LEVELS
    progress = Progress(len(chosen) * (1 + len(levels)))
    for draw, commit in chosen:
        case = record(draw, commit, levels, progress)
        if levels:  # after each: a run that is stopped keeps its cases
            write(merged(page.read(), case))
    recall.main()


def write(cases: list[dict[str, Any]]) -> None:
    """Write results.json."""
    results = {
        "format": "samebits-fixes",
        "format_version": FORMAT_VERSION,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "cases": cases,
    }
    page.RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


def merged(earlier: dict[str, Any] | None, case: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cases of earlier runs with one that ran now; each level keeps its last run."""
    cases = {old["sha"]: old for old in (earlier["cases"] if earlier else ())}
    before = cases.get(case["sha"], {}).get("levels", {})
    cases[case["sha"]] = case | {"levels": before | case["levels"]}
    order = [commit["sha"] for _, commit in proven()]
    return [cases[sha] for sha in order if sha in cases]


def proven() -> list[tuple[int, dict[str, Any]]]:
    """Return the cases of all draws in their order, each with the seed of its draw."""
    draws = (yaml.safe_load(path.read_text("utf-8")) for path in sorted(DRAWS.glob("*.yaml")))
    return [
        (draw["seed"], commit)
        for draw in draws
        for commit in draw["order"]
        if commit.get("status") == "proven"
    ]


def record(
    draw: int, commit: dict[str, Any], levels: tuple[str, ...], progress: Progress
) -> dict[str, Any]:
    """Prove one case and return what samebits shows of it at each level."""
    sha = commit["sha"]
    path = proof.CASES / f"{sha}.py"
    case = proof.read(path)
    asked = {"script": _script(path)}
    progress.begin(f"{sha} {commit['subject'][:70]}: proof")
    folder = proof.FOLDER / "parts" / sha
    part = kept(folder, asked, lambda: proof.prove(path), sources=_INSIDE)
    progress.end(
        part, "proven" if part.result["proven"] else "NOT PROVEN: both releases show the same"
    )
    found: dict[str, Any] = {}
    for level in levels:
        progress.begin(f"{sha} {case.before} → {case.after}: {level}")
        part = _checked(sha, path, level, asked)
        progress.end(part, f"{_word(part.result)}: {part.result['shown']}")
        found[level] = part.result | reviewed().get(sha, {}).get(level, {})
    return {
        "sha": sha,
        "draw": draw,
        "subject": commit["subject"],
        "symptom": case.symptom,
        "area": case.area,
        "before": case.before,
        "after": case.after,
        "levels": found,
    }


def _script(path: Path) -> str:
    """Return a script without its expectation, on which no run depends."""
    start, _, rest = path.read_text("utf-8").partition("\nCASE = ")
    return start + rest.partition("\n}\n")[2] + repr(proof.read(path).runs)


def _checked(sha: str, path: Path, level: str, asked: dict[str, str]) -> Part:
    case = proof.read(path)

    def work() -> dict[str, Any]:
        artefact = proof.make(path, case)
        return _default(artefact, case) if level == "default" else _all(artefact, case)

    folder = proof.FOLDER / "parts" / f"{sha}-{level}"
    sources = ("samebits", "probes", *_INSIDE)
    part = kept(folder, asked | {"level": level}, work, sources=sources)
    outcome = judge(case, part.result)
    record = {**outcome._asdict(), "silent": outcome.silent, "exit_code": part.result["exit_code"]}
    return part._replace(result=record)


def _default(artefact: Path, case: proof.Case) -> dict[str, Any]:
    """Return the report of a check as a user starts it: no option says what to look for."""
    reports = artefact.with_name("reports")
    shutil.rmtree(reports, ignore_errors=True)
    command = [
        sys.executable, "-m", "samebits", "check", str(artefact), "--from", case.before, "--to", case.after,
        "--reports", str(reports), "--no-repro", *case.options,
    ]  # fmt: skip
    env = os.environ | CODE
    took = run(command, artefact.with_name("check.log"), env=env, may_fail=True)
    return _read(reports / "report.json", took.code)


def _all(artefact: Path, case: proof.Case) -> dict[str, Any]:
    """Return the report of a matrix of one model with every question on."""
    place = Place(artefact.with_name("all"), matrix_of_all(artefact, case))
    took = place.samebits("--no-repro", "--deep", "--causes")
    return _read(place.folder / "reports" / "latest" / "report.json", took.code)


def matrix_of_all(artefact: Path, case: proof.Case) -> dict[str, Any]:
    """Return a matrix of one model with every question on."""
    entry: dict[str, Any] = {"path": str(artefact), **dict.fromkeys(switches(), True)}
    if case.options:
        entry["trust_remote_code"] = True
    stacks = [{"id": release, "transformers": release} for release in (case.before, case.after)]
    return {
        "version": 1,
        "environments": stacks,
        "reference": case.before,
        "models": {"model": entry},
    }


def _read(path: Path, code: int) -> dict[str, Any]:
    if code == _REFUSED:  # the folder is none that samebits takes: nothing is shown
        return {"exit_code": code, "rows": [], "stacks": []}
    if not path.exists():  # a result like "shows nothing" would be kept
        raise SystemExit(f"samebits ended with {code} and wrote no {path}: see the log beside it")
    report: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return report


def reviewed() -> dict[str, Any]:
    """Return what a person read in reports."""
    if not REVIEWED.exists():
        return {}
    return yaml.safe_load(REVIEWED.read_text("utf-8")) or {}


def _word(result: dict[str, Any]) -> str:
    order = ("named", "found", "listed")
    return next((word for word in order if result[word]), "silent")


if __name__ == "__main__":
    assert QUESTIONS  # importing them registers their keys
    main()
