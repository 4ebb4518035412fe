"""Clean pairs: models of which two releases execute the same code, so that nothing may be accused.

What a model executes is observed in one release and looked up in the sources of the other one. A pair
is clean if every function of its forwards and of its decoding, and every function of the model's own
folder that loading it executes, has the same syntax tree with the same constants in both releases, and
if the statements outside of functions of these files are the same, too. Docstrings do not count.
"""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from bench.place import Place
from bench.recall.cases import SWITCHES, Pair, zoo
from bench.recall.judge import codes, line

EXECUTED = Path(__file__).with_name("executed.py")
OWN = "models/"
"""Where transformers keeps the code of models."""
PROMPTS = {"short": {"length": 9}, "padded": {"batch": [{"length": 5}, {"length": 13}]}}
"""One row and a padded batch: the same code gives the same bits for more of them, too."""
N_PROCESSES = 2
"""Processes that observe what models execute."""
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module
Function = tuple[str, str]
"""File below transformers/, and qualified name."""


class Accusation(NamedTuple):
    """A clean pair in which the run accuses the candidate."""

    model: str
    shown: str


class Outcome(NamedTuple):
    """What a run says of the models of two releases."""

    pair: Pair
    clean: tuple[str, ...]
    """Models of which both releases execute the same code."""
    others: dict[str, str]
    """model -> the first function that differs, or why it is not known what it executes."""
    accusations: tuple[Accusation, ...]


def matrix(pair: Pair) -> dict[str, Any]:
    """Return the matrix with every model of zoo.yaml that is built, in one dtype."""
    left_out = {"dtypes", "attention", "samples", "group", "prompts", "packages", *SWITCHES}
    models = {
        name: {key: value for key, value in entry.items() if key not in left_out}
        for name, entry in zoo().items()
        if "build" in entry
    }
    releases = (pair.reference, pair.candidate)
    return {
        "version": 1,
        "environments": [{"id": release, "transformers": release} for release in releases],
        "reference": pair.reference,
        "defaults": {"greedy": 4, "prompts": PROMPTS},
        "models": models,
    }


def judge(pair: Pair, place: Place) -> Outcome:
    """Return which pairs of a run are clean, and which of these the run accuses."""
    interpreters = place.stacks()
    known = executed(
        interpreters[pair.reference], list(place.bare_jobs(pair.reference)), place.folder
    )
    candidate = _transformers(interpreters[pair.candidate])
    clean, others, accusations = [], {}, []
    for row in place.report()["rows"]:
        model = row["model"]
        cells = {cell["cell"]["stack"]: cell for cell in row["cells"]}
        if any(cell["judged"] == "absent" for cell in cells.values()):
            continue
        job = f"{model}-{row['cells'][0]['cell']['variant']['dtype']}"
        record = known["executed"].get(job, {"failed": "it ran under no forward"})
        if found := difference(record, Path(known["root"]), candidate):
            others[model] = found
            continue
        clean.append(model)
        if shown := accused(cells[pair.reference], cells[pair.candidate]):
            accusations.append(Accusation(model, shown))
    return Outcome(pair, tuple(clean), others, tuple(accusations))


def accused(reference: dict[str, Any], candidate: dict[str, Any]) -> str:
    """Return what a run holds against a candidate that executes the reference's code; '' for nothing.

    A verdict other than identical, or a finding that the reference does not have.
    """
    verdict = candidate["judged"]
    if verdict != "identical" and verdict != reference["judged"]:
        return line(candidate)
    more = [code for code in codes(candidate) if code not in codes(reference)]
    return f"{verdict} ({', '.join(more)})" if more else ""


def executed(python: str, jobs: list[dict[str, Any]], folder: Path) -> dict[str, Any]:
    """Return what executed.py prints of these jobs in one stack, in two processes."""
    running = []
    for number in range(N_PROCESSES):
        path = folder / f"executed-{number}.json"
        path.write_text(json.dumps(jobs[number::N_PROCESSES]), "utf-8")
        command = [python, str(EXECUTED), str(path)]
        with path.with_suffix(".log").open("w", encoding="utf-8") as log:
            running.append(
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)
            )
    records: list[dict[str, Any]] = []
    for process in running:
        output, _ = process.communicate()
        if process.returncode:
            msg = f"bench/recall/executed.py ended with {process.returncode}: see {folder}"
            raise SystemExit(msg)
        records.append(json.loads(output.splitlines()[-1]))
    executed = {name: outcome for r in records for name, outcome in r["executed"].items()}
    return {"root": records[0]["root"], "executed": executed}


def _transformers(python: str) -> Path:
    (folder,) = Path(python).parents[1].glob("lib/python*/site-packages/transformers")
    return folder


def difference(record: dict[str, Any], reference: Path, candidate: Path) -> str:
    """Return the first function or file that two releases do not share; '' if they share all."""
    if "failed" in record:
        return str(record["failed"])
    functions: set[Function] = {(path, name) for path, name in record["run"]}
    functions |= {(path, name) for path, name in record["load"] if path.startswith(OWN)}
    for path, name in sorted(functions):
        tree = trees(reference / path).get(name)
        # a name that ast does not know is the module itself or made at run time: the file decides
        if tree is not None and tree != trees(candidate / path).get(name):
            return f"{name} ({path})"
    for path in sorted({path for path, _ in functions}):
        if outside(reference / path) != outside(candidate / path):
            return f"statements outside of functions ({path})"
    return ""


@cache
def outside(path: Path) -> str:
    """Return the syntax tree of a file without the bodies of functions, docstrings and imports."""
    if not path.exists():
        return ""
    return ast.dump(_Outside().visit(ast.parse(path.read_text("utf-8"))))


class _Outside(ast.NodeTransformer):
    """Remove what ``trees`` compares, what only documents, and imports."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Remove a function."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        """Remove a function."""

    def visit_Import(self, node: ast.Import) -> None:
        """Remove an import: what it gives is executed, or not."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """Remove an import."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """Remove a docstring."""
        return None if isinstance(node.value, ast.Constant) else node


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
