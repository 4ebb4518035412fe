"""``nox -s bisect``: find the commits of published regressions on a clone of transformers; write docs/bisect.md.

The models are those of bench/recall and bench/fixes. ``--repo DIR`` names the clone. A case that
results.json has is not searched again, unless ``--cases NAMES`` names it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from bench.bisection import page
from bench.fixes import proof
from bench.machine import machine
from bench.place import WORK
from bench.recall.cases import SWITCHES, groups, read
from samebits.base.errors import SamebitsError
from samebits.bisect import command
from samebits.bisect.history import History
from samebits.matrix import load, yamltext

CASES = Path(__file__).parent / "cases.yaml"
FOLDER = WORK / "bisect"
FORMAT_VERSION = 1


def main() -> None:
    """Run, print, and write the results after each case: a run that is stopped keeps them."""
    parser = argparse.ArgumentParser(prog="nox -s bisect --", description=__doc__)
    parser.add_argument("--repo", type=Path, required=True)
    parser.add_argument("--cases", default="")
    options = parser.parse_args()
    cases = yaml.safe_load(CASES.read_text("utf-8"))["cases"]
    known = {case["name"] for case in (page.read() or {"cases": []})["cases"]}
    named = [*filter(None, options.cases.split(","))]
    for name in named or [name for name in cases if name not in known]:
        result = searched(name, cases[name], options.repo.absolute())
        print(name, result["outcome"], result["named"], result["failure"], flush=True)
        write(result, [*cases])
    page.main()


def searched(name: str, case: Mapping[str, Any], repo: Path) -> dict[str, Any]:
    """Return what a search for one case finds."""
    history = History(repo)
    first, last = (history.end(str(case[key])).sha for key in ("from", "to"))
    matrix = load.parse(
        yamltext.parse(_matrix(name, case, (first, last), repo)), FOLDER / "matrix.yaml"
    )
    options = command.Options(model=name, first=first, last=last, repo=repo, base=case.get("base"))
    say = partial(print, " ", file=sys.stderr, flush=True)
    known = history.end(case["commit"]).sha
    try:
        found = asyncio.run(command.bisected(matrix, options, os.environ, say, explains=False))
    except SamebitsError as error:
        return _record(name, case, known, [], 0, 0, 0, 0.0, str(error))
    named = [(c.sha, c.title, c.is_proven) for c in found.culprits]
    figures = (found.n_commits, found.n_suspected, found.n_tried, found.seconds)
    return _record(name, case, known, named, *figures, found.failure)


def _record(
    name: str,
    case: Mapping[str, Any],
    known: str,
    named: list[tuple[str, str, bool]],
    n_commits: int,
    n_suspected: int,
    n_tried: int,
    seconds: float,
    failure: str,
) -> dict[str, Any]:
    shas = [sha for sha, _, _ in named]
    outcome = (
        "found"
        if known in shas
        else "wrong"
        if any(proven for *_, proven in named)
        else "not found"
    )
    return {
        "name": name,
        "from": str(case["from"]),
        "to": str(case["to"]),
        "commit": known,
        "outcome": outcome,
        "named": [{"sha": sha, "title": title, "proven": proven} for sha, title, proven in named],
        "n_commits": n_commits,
        "n_suspected": n_suspected,
        "n_tried": n_tried,
        "seconds": seconds,
        "failure": failure,
    }


def _matrix(name: str, case: Mapping[str, Any], ends: tuple[str, str], repo: Path) -> bytes:
    """Return the text of a matrix with the model of a case, and both ends as environments."""
    model = _of_fix(name) if "fix" in case else _of_recall(case.get("model", name))
    environments = [{"id": sha[:10], "transformers": f"{repo}@{sha}"} for sha in ends]
    if isinstance(recipe := model.get("build"), dict) and "environment" in recipe:
        model["build"] = recipe | {"environment": ends[1][:10]}
    content = {
        "version": 1,
        "environments": environments,
        "defaults": dict.fromkeys(SWITCHES, False),
        "models": {"model": model},
    }
    FOLDER.mkdir(parents=True, exist_ok=True)
    return json.dumps(content).encode()


def _of_recall(name: str) -> dict[str, Any]:
    group = next(group for group in groups(read().cases) if name in group.cases)
    models: dict[str, dict[str, Any]] = group.matrix(FOLDER)["models"]
    return {key: value for key, value in models[name].items() if key not in SWITCHES}


def _of_fix(name: str) -> dict[str, Any]:
    path = proof.CASES / f"{name}.py"
    artefact = proof.make(path, proof.read(path))
    return {"path": os.path.relpath(artefact, FOLDER)}


def write(result: dict[str, Any], order: list[str]) -> None:
    """Write results.json with one case anew."""
    earlier = page.read() or {"cases": []}
    cases = {case["name"]: case for case in earlier["cases"]} | {result["name"]: result}
    content = {
        "format": "samebits-bisect",
        "format_version": FORMAT_VERSION,
        "machine": machine(),
        "cases": [cases[name] for name in order if name in cases],
    }
    page.RESULTS.write_text(json.dumps(content, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
