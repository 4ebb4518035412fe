"""One run of samebits for the cases of a group, and what its report shows of each case."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from bench.place import Place
from bench.recall.cases import Group
from bench.recall.judge import judge
from bench.recall.parts import Part, Progress, kept

OPTIONS = ("--no-repro", "--format", "junit")


def run_group(group: Group, parent: Path, progress: Progress) -> Part:
    """Run the cases of one group; the result has a judged record with a name for each."""
    folder = parent / group.name
    matrix = group.matrix(folder)
    progress.begin(f"{len(group.cases)} cases in {', '.join(group.releases)}")

    def work() -> list[dict[str, Any]]:
        place = Place(folder, matrix)
        place.samebits(*OPTIONS)
        cells, rows = _cells(place.report()), group.rows()
        return [
            {"name": name, **judge(case, cells.get(rows[name], {}))._asdict()}
            for name, case in group.cases.items()
        ]

    asked = {name: case.model_dump(mode="json") for name, case in group.cases.items()}
    return kept(folder, {"matrix": matrix, "cases": asked}, work)


def judged(group: Group, parent: Path) -> list[dict[str, Any]]:
    """Judge what the last run of a group reported once more, without a run; a model that it had not is left out."""
    folder = parent / group.name
    try:
        report = json.loads((folder / "reports/latest/report.json").read_text("utf-8"))
        ran = yaml.safe_load((folder / "matrix.yaml").read_text("utf-8"))["models"]
    except OSError:
        return []
    cells, rows, models = _cells(report), group.rows(), group.matrix(folder)["models"]
    found = {
        name: next((row for row in ran if ran[row] == models[rows[name]]), None)
        for name in group.cases
    }
    return [
        {"name": name, **judge(group.cases[name], cells[row])._asdict()}
        for name, row in found.items()
        if row is not None and row in cells
    ]


def chosen(found: list[Group], patterns: str) -> list[Group]:
    """Return the groups with the cases of these names, each with its releases and its folder."""
    if not patterns:
        return found
    some = [
        group._replace(
            cases={
                name: case
                for name, case in group.cases.items()
                if any(fnmatchcase(name, pattern) for pattern in patterns.split(","))
            }
        )
        for group in found
    ]
    if not any(group.cases for group in some):
        raise SystemExit(f"no case has a name like {patterns}; cases.yaml has their names")
    return [group for group in some if group.cases]


def _cells(report: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return model -> release -> cell, each with the findings that its stack has for all models."""
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for row in report["rows"]:
        for cell in row["cells"]:
            rows.setdefault(row["model"], {})[cell["cell"]["stack"]] = cell
    for stack in report["stacks"]:
        for finding in stack.get("findings", ()):
            for model in finding["models"]:
                cell = rows[model][stack["id"]]
                cell["findings"] = [*cell.get("findings", ()), finding]
    return rows
