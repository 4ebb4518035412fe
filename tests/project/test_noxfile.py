"""What nox installs for the noxfile is what the package needs, and the sessions are there."""

import ast
import fnmatch
import re
import tomllib
from pathlib import Path

from samebits.diagnose.exit_code import INCOMPLETE

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "noxfile.py").read_text("utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def script():
    """Return the script block, read as PEP 723 says."""
    block = re.search(r"(?m)^# /// script$\n((?:^#(?: .*)?$\n)+?)^# ///$", TEXT)
    assert block is not None
    lines = block.group(1).splitlines()
    return tomllib.loads("\n".join(line.removeprefix("#").removeprefix(" ") for line in lines))


def sessions():
    """Return the name of every session, with what its decorator says."""
    found = {}
    for node in ast.parse(TEXT).body:
        for mark in getattr(node, "decorator_list", ()):
            if ast.unparse(mark).startswith("nox.session"):
                keywords = mark.keywords if isinstance(mark, ast.Call) else ()
                found[node.name] = {k.arg: ast.literal_eval(k.value) for k in keywords}
    return found


def name_of(requirement):
    return re.match(r"[A-Za-z0-9._-]+", requirement).group()


def test_the_script_needs_what_the_package_needs_and_nox():
    assert PYPROJECT["project"]["dependencies"] != []
    needed = set(script()["dependencies"])
    assert {r for r in needed if name_of(r) != "nox"} == {*PYPROJECT["project"]["dependencies"]}
    assert [name_of(r) for r in needed].count("nox") == 1


def test_the_script_runs_on_the_pythons_of_the_package():
    assert script()["requires-python"] == PYPROJECT["project"]["requires-python"]


def test_nox_is_of_the_version_that_the_file_asks_for():
    (asked,) = re.findall(r'^nox\.needs_version = "(.+)"$', TEXT, re.MULTILINE)
    assert f"nox{asked}" in script()["dependencies"]


def test_only_generated_and_planted_files_are_left_out_of_the_checks():
    """A bare folder name excludes every folder of that name: ``reports`` left out samebits/reports."""
    patterns = {*PYPROJECT["tool"]["ruff"]["extend-exclude"]}
    patterns |= {*PYPROJECT["tool"]["codespell"]["skip"].split(",")}
    parts = {part for folder in ("samebits", "probes") for part in (ROOT / folder).rglob("*")}
    names = {path.name for path in parts if "__pycache__" not in path.parts} | {
        "samebits",
        "probes",
    }
    assert not [p for p in patterns if fnmatch.filter(names - GENERATED, p)]
    own = [p for p in patterns if p.startswith(("samebits", "./samebits", "probes"))]
    assert [p.removeprefix("./") for p in own if p.removeprefix("./") != VENDORED] == []


VENDORED = "samebits/reports/html/assets/vendor"
"""Libraries as their packages have them; tests/bench/test_vendor.py hashes them."""


GENERATED = {p.name for folder in ("samebits", "probes") for p in (ROOT / folder).rglob("*.json")}
"""Schemas, the names of releases, and texts for tokenizers; left out of codespell as every JSON file
is."""


def test_the_sessions_are_there_and_say_what_they_do():
    assert {"matrix", "probe", "tests", "lint"} <= set(sessions())
    for node in ast.parse(TEXT).body:
        if isinstance(node, ast.FunctionDef):
            assert ast.get_docstring(node), node.name


def test_plain_nox_runs_what_a_contributor_needs():
    """A bare ``nox`` neither builds stacks nor writes files."""
    (listed,) = re.findall(r"^nox\.options\.sessions = (\[.*\])$", TEXT, re.MULTILINE)
    assert ast.literal_eval(listed) == ["lint", "tests"]


def test_matrix_and_probe_need_no_environment_of_nox():
    assert sessions()["matrix"]["venv_backend"] == sessions()["probe"]["venv_backend"] == "none"
    assert sessions()["probe"]["allow_parallel"]


def test_a_mistake_and_an_incomplete_run_end_nox_with_their_own_codes():
    """A session that calls error() ends nox with 1, whatever the code was."""
    (codes,) = re.findall(
        r"^    if code in (\(.*\)):\n        raise SystemExit\(code\)$", TEXT, re.MULTILINE
    )
    assert ast.literal_eval(codes) == (2, INCOMPLETE)
