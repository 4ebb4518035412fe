"""Prints the table of README.md from the report of a run of matrix.yaml here.

nox -s matrix -- --matrix tests/custom/matrix.yaml
python tests/custom/table.py reports/latest/report.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SAME = "the same bits"


def header(diff: Path) -> str:
    """Return what the comment at the top of a diff says."""
    lines = diff.read_text("utf-8").splitlines()
    said = [line.removeprefix("# ") for line in lines if line.startswith("# ")]
    return " ".join(said)


def answer(cell: dict[str, Any]) -> str:
    """Return what one release made of a model, in a few words."""
    if failure := cell.get("failure"):
        message = failure["message"].partition("\n")[0].strip()
        return f"fails in {failure['phase']}: `{failure['type']}: {message}`"
    if unstable := cell.get("unstable"):
        return f"unstable: {unstable[0].partition(' · ')[0]}"
    if cell["verdict"] in {"identical", "reference"}:
        return SAME
    names = [s["signal"] for s in cell["signals"] if s["outcome"] == "differs"]
    missing = [s["signal"] for s in cell["signals"] if s["outcome"] == "one side only"]
    differing = names or missing
    figure = cell["figure"].removeprefix(f"{differing[0]} ") if differing else cell["figure"]
    return f"{cell['judged']}: {', '.join(differing)} {figure}".strip()


def row(name: str, said: str, cells: list[dict[str, Any]]) -> str:
    """Return a line of the table; releases that answer alike stand together."""
    grouped: dict[str, list[str]] = {}
    for cell in cells:
        grouped.setdefault(answer(cell), []).append(cell["cell"]["stack"])
    if list(grouped) == [SAME]:
        return f"| {name} | {said} | {SAME} in all |"
    told = [f"{', '.join(stacks)}: {text}" for text, stacks in grouped.items()]
    return f"| {name} | {said} | {'; '.join(told)} |".replace("\\|", "|")


def diffs() -> dict[str, Path]:
    """Return the diff that makes each model of matrix.yaml, the last one, by the model's name."""
    found: dict[str, Path] = {}
    for path in sorted(HERE.glob("*.diff")):
        name = path.name.removesuffix(".diff")
        found[name.replace(".repair", "-repaired")] = path
    for path in sorted((HERE / "open-sci-ref").glob("*.diff")):
        name = path.stem.replace("repair", "open-sci-ref-repaired").replace("all", "open-sci-ref")
        found[name] = path
    return found


def main(report: Path) -> None:
    """Print the table."""
    known = diffs()
    sys.stdout.write("| diff | what it is | what happens |\n|---|---|---|\n")
    told = json.loads(report.read_text("utf-8"))
    for found in told["rows"]:
        path = known.get(found["model"])
        if path is not None:
            name = path.relative_to(HERE).as_posix().removesuffix(".diff")
            sys.stdout.write(row(name, header(path), found["cells"]) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
