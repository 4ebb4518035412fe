"""The floors of docs/design.md: imports point downwards, and each side stays on its side."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FLOORS = [
    {"seal"},
    {
        "errors",
        "record",
        "environment",
        "decisions",
        "aside",
        "ledger",
        "pruning",
        "mapped",
        "redaction",
    },
    {"fingerprint", "costs"},
    {"receipt"},
    {
        "words",
        "tensor",
        "yamltext",
        "patching",
        "invariant",
        "provenance",
        "sourcecode",
        "finding",
        "tokenizing",
        "usage",
    },
    {"evidence", "band", "failures"},
    {"capture", "matrix", "ulp", "invariance"},
    {"ladder", "trace", "graft", "capsule", "feed"},
    {"comparison", "crossing", "matrixfile", "store", "plan", "stacks", "probing"},
    {"formcheck", "metrics", "document", "checkpoints", "releases"},
    {"keptrows", "trimming", "jobs", "unwritten"},
    {"config", "cells", "crossings", "feeds"},
    {"comparing", "findings", "tracing"},
    {"compare"},
    {"diagnosing"},
    {"diagnose", "reports", "laddering"},
    {"ladders", "thirdlook", "grafting"},
    {"capsules"},
    {"spoken", "schemas"},
    {"progress", "summary"},
    {"laboratory"},
    {"run"},
    {"cli", "sessions"},
    {"__main__"},
]
"""Lowest first; a module imports nothing of its own floor or of one above it."""


def imports(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def noun(path: Path) -> str:
    return path.relative_to(ROOT / "samebits").with_suffix("").parts[0]


def floor_of(name: str) -> int:
    return next(i for i, floor in enumerate(FLOORS) if name in floor)


def own_imports(path: Path) -> set[str]:
    """Return the modules of samebits that a file imports, packages by their own name."""
    return {name.split(".")[1] for name in imports(path) if name.startswith("samebits.")} & NOUNS


HOST = [p for p in sorted((ROOT / "samebits").rglob("*.py")) if p.name != "__init__.py"]
NOUNS = {noun(path) for path in HOST}
PROBES = sorted((ROOT / "probes").glob("*.py"))


@pytest.mark.parametrize("path", HOST, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downwards(path):
    mine = noun(path)
    for other in own_imports(path) - {mine}:
        assert floor_of(other) < floor_of(mine), f"{mine} imports {other}, which is not below it"


def test_every_module_stands_on_one_floor():
    named = [name for floor in FLOORS for name in floor]
    assert sorted(named) == sorted(NOUNS)


def test_no_file_imports_the_package_itself():
    for path in HOST:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            assert "samebits" not in names, path
            if isinstance(node, ast.ImportFrom) and node.module == "samebits":
                assert {alias.name for alias in node.names} <= NOUNS, path


@pytest.mark.parametrize("path", HOST, ids=lambda p: str(p.relative_to(ROOT)))
def test_host_imports_no_torch_and_no_transformers(path):
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & {"torch", "transformers", "safetensors"}


@pytest.mark.parametrize("path", PROBES, ids=lambda p: p.name)
def test_probes_import_no_samebits(path):
    assert "samebits" not in {name.split(".")[0] for name in imports(path)}


@pytest.mark.parametrize("path", PROBES, ids=lambda p: p.name)
def test_probes_shadow_nothing_that_can_be_installed(path):
    assert path.name.startswith("probe_")


def test_no_probe_has_two_modules_by_one_name():
    assert len({p.stem for p in PROBES}) == len(PROBES)


@pytest.mark.processes
def test_running_host_loads_no_torch():
    code = "import sys, samebits.cli; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_the_check_itself_sees_an_import_inside_a_function(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from torch import nn\n")
    assert "torch" in imports(bad)
