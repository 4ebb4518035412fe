"""The table of names of `samebits lint` against releases that import them.

To be run after a change of samebits/lint/names.json or of what reads it.
"""

import ast
import os
import sys
from pathlib import Path

import pytest

from samebits.lint.names import table
from samebits.matrix.spec import StackSpec
from samebits.stacks.build import StackBuilder
from samebits.stacks.installer import Installer

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "lint"))
import make_names


@pytest.fixture(scope="module", params=["4.48", "4.57", "5.2", "5.x"])
def answers(request):
    """Return the column of a release, its folder, and (module, name) -> why it cannot be imported."""
    builder = StackBuilder(ROOT / ".samebits", Installer(os.environ))
    spec = StackSpec(id=request.param, transformers=request.param, torch="2.13.0", python="3.11")
    python = Path(builder.build(spec).python)
    (folder,) = python.parents[1].glob("lib/*/site-packages/transformers")
    (metadata,) = folder.parent.glob("transformers-*.dist-info")
    release = ".".join(metadata.name.split("-")[1].split(".")[:2])
    if release not in table()["releases"]:
        pytest.skip(f"the table has no release {release}; write it again")
    modules = {module: list(rows) for module, rows in table()["names"].items()}
    reasons = {(m, n): reason for m, n, reason in make_names.ask(python, modules)}
    return table()["releases"].index(release), folder, reasons


def rows(place, mark):
    for module, names in table()["names"].items():
        yield from ((module, name) for name, mask in names.items() if mask[place] == mark)


def test_no_row_says_missing_where_the_name_can_be_imported(answers):
    place, _, reasons = answers
    absent = list(rows(place, "0"))
    assert absent
    assert [row for row in absent if not reasons[row]] == []


def test_a_name_that_its_module_always_binds_can_be_imported(answers):
    """Names in a branch and lazy modules are not certain; optional packages are a few per cent."""
    place, folder, reasons = answers
    certain = [row for row in rows(place, "1") if always_bound(folder, *row)]
    assert certain
    failed = {row: reasons[row] for row in certain if reasons[row]}
    assert len(failed) < len(certain) / 20, failed


def always_bound(folder, module, name):
    path = folder.joinpath(*module.split(".")[1:])
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.exists():
        return False
    text = path.read_text("utf-8")
    if "_LazyModule" in text:
        return False
    tree = ast.parse(text)
    tree.body = [node for node in tree.body if not isinstance(node, (ast.If, ast.Try, ast.With))]
    return name in {bound for bound, _ in make_names.bound_names(tree)}
