"""``nox -s same-code``: how often two releases in a row execute the same code.

If two releases execute the same functions on the same bytes, the second forward need not run. For
every stack of the checkout, this counts the architectures of which each executed function has the
same syntax tree, docstrings aside, in the neighbouring release. Sources of neighbours are downloaded.
"""

from __future__ import annotations

import ast
import json
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.place import WORK

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
NEIGHBOURS = {"4.48": "4.49.0", "4.57": "4.56.2", "5.2": "5.3.0", "5.23": "5.22.2"}
"""Minor release -> a release next to it."""
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module


def main() -> None:
    """Print a line for each stack and part, then the totals."""
    counts = {"forward": [0, 0], "decode": [0, 0]}
    with tempfile.TemporaryDirectory() as folder:
        for python in sorted(WORK.glob("stacks/*/bin/python")):
            record = executed(python)
            release = NEIGHBOURS.get(record["release"].rpartition(".")[0])
            if release is None:
                continue
            neighbour = download(release, Path(folder) / release)
            for part, count in counts.items():
                changes = {
                    name: changed(functions[part], Path(record["root"]), neighbour)
                    for name, functions in record["executed"].items()
                }
                count[0] += sum(not differing for differing, _ in changes.values())
                count[1] += len(changes)
                print(f"{record['release']} and {release}, {part}: {summary(changes)}")
    if not counts["forward"][1]:
        msg = "no stack is built; build the stacks first: nox -s matrix"
        raise SystemExit(msg)
    for part, (same, pairs) in counts.items():
        print(f"{part}: the same code in {same} of {pairs} pairs")


def executed(python: Path) -> dict[str, Any]:
    """Return what executed.py prints in one stack."""
    command = [str(python), str(HERE / "executed.py")]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=WORK).stdout
    record: dict[str, Any] = json.loads(output.splitlines()[-1])
    return record


def download(release: str, folder: Path) -> Path:
    """Return the folder of transformers of a release, without its dependencies."""
    command = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
    subprocess.run([*command, f"transformers=={release}"], check=True)
    return folder / "transformers"


def changed(functions: list[tuple[str, str]], root: Path, neighbour: Path) -> tuple[int, int]:
    """Return how many of these functions differ in the neighbour, and how many there are."""
    differing = sum(
        tree is None or tree != trees(neighbour / path).get(name)
        for path, name in functions
        for tree in [trees(root / path).get(name)]
    )
    return differing, len(functions)


def summary(changes: dict[str, tuple[int, int]]) -> str:
    """Return ``llama 3 of 31, …``: changed functions of those executed."""
    return ", ".join(f"{name} {changed} of {total}" for name, (changed, total) in changes.items())


@cache
def trees(path: Path) -> dict[str, str]:
    """Return qualified name -> syntax tree of every function of a file; {} if there is no file."""
    return dict(_trees(ast.parse(path.read_text("utf-8")), "")) if path.exists() else {}


def _trees(scope: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _trees(node, prefix)
            continue
        name = prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from _trees(node, f"{name}.")
            continue
        yield from _trees(node, f"{name}.<locals>.")
        yield name, ast.dump(_without_docstrings(node))


def _without_docstrings(function: Scope) -> Scope:
    for node in ast.walk(function):
        if isinstance(node, Scope) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return function


if __name__ == "__main__":
    main()
