"""docs/reliability.md promises nothing that no test provokes."""

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "reliability.md"
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE.read_text("utf-8"))))


def functions(path):
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_test_that_is_named_exists(file, name):
    paths = [p for p in TESTS.rglob("*.py") if p.as_posix().endswith(f"/{file}")]
    (path,) = [p for p in paths if ".samebits" not in p.parts]
    assert name in functions(path)


def test_every_fault_names_a_test():
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|")]
    faults = [row for row in rows if not row.startswith(("| fault |", "|---"))]
    assert len(faults) > 30
    for row in faults:
        assert row.count(" | ") == 2, row
        assert re.search(r"`[\w/]+\.py::test_\w+` \|$", row), row


def test_every_test_of_faults_is_named():
    """A promise that is kept and not written down is one that nobody knows of."""
    written = {name for _, name in NAMED}
    path = TESTS / "real" / "test_real_faults.py"
    assert {name for name in functions(path) if name.startswith("test_")} <= written
