"""The floors of docs/design.md: imports point downwards, and each side keeps to its own side."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from samebits.questions import questions

ROOT = Path(__file__).parents[2]

HOST_FLOORS = [
    {"base"},
    {"records", "text", "lint", "defaults"},
    {"compare"},
    {"matrix"},
    {"ladder", "diagnose", "findings", "stacks"},
    {"storage"},
    {"trace"},
    {"grafts"},
    {"jobs"},
    {"questions"},
    {"reports"},
    {"terminal"},
    {"capsules"},
    {"pipeline"},
    {"check"},
    {"gate", "bisect"},
    {"golden", "watch", "overview"},
    {"cli", "schemas", "pytest_plugin"},
    {"__main__", "manual"},
]
"""Packages of samebits/, lowest first; a package imports nothing of its own floor or above."""

PROBE_FLOORS = [
    {"process"},
    {"model"},
    {"trace"},
    {"cell", "graft", "jobs"},
    {"questions"},
]
"""Packages of probes/samebits_probe/, in the same order; probes/samebits_wire lies below both sides."""

HOST = sorted(p for p in (ROOT / "samebits").rglob("*.py") if p.name != "__init__.py")
PROBES = sorted((ROOT / "probes").rglob("*.py"))
WIRE = ROOT / "probes" / "samebits_wire"
PROBE_PACKAGE = ROOT / "probes" / "samebits_probe"


def imports(path: Path) -> set[str]:
    """Return every module that a file imports, and every name that it imports from one."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def package(path: Path, root: Path) -> str:
    """Return the first part of a file's path below ``root``, without a suffix."""
    return path.relative_to(root).with_suffix("").parts[0]


def imported_packages(path: Path, root: str) -> set[str]:
    """Return the packages of ``root`` that a file imports from."""
    return {name.split(".")[1] for name in imports(path) if name.startswith(f"{root}.")}


def floor_of(name: str, floors: list[set[str]]) -> int:
    return next(number for number, floor in enumerate(floors) if name in floor)


@pytest.mark.parametrize("path", HOST, ids=lambda p: str(p.relative_to(ROOT)))
def test_host_imports_point_downwards(path):
    importer = package(path, ROOT / "samebits")
    for imported in imported_packages(path, "samebits") - {importer}:
        lower = floor_of(imported, HOST_FLOORS) < floor_of(importer, HOST_FLOORS)
        assert lower, f"{importer} imports {imported}, which is not below it"


@pytest.mark.parametrize(
    "path",
    [p for p in PROBES if p.is_relative_to(PROBE_PACKAGE) and p.name != "__init__.py"],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_probe_imports_point_downwards(path):
    importer = package(path, PROBE_PACKAGE)
    for imported in imported_packages(path, "samebits_probe") - {importer}:
        lower = floor_of(imported, PROBE_FLOORS) < floor_of(importer, PROBE_FLOORS)
        assert lower, f"{importer} imports {imported}, which is not below it"


OF_ALL_QUESTIONS = {"question", "registry", "questions"}
"""What the core may import of samebits.questions: what all of them have in common."""


@pytest.mark.parametrize(
    "path",
    [p for p in HOST if package(p, ROOT / "samebits") not in {"questions", "bisect"}],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_the_core_knows_no_question(path):
    names = {name for name in imports(path) if name.startswith("samebits.questions.")}
    assert {name.split(".")[2] for name in names} <= OF_ALL_QUESTIONS


@pytest.mark.parametrize(
    "path",
    [
        p
        for p in PROBES
        if p.is_relative_to(PROBE_PACKAGE) and package(p, PROBE_PACKAGE) != "questions"
    ],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_the_core_of_the_probes_knows_no_question(path):
    assert not {name for name in imports(path) if name.startswith("samebits_probe.questions.")}


MAY_USE = {
    "trainer": {"edits", "training"},
    "pipelines": {"processors"},
    "crossings": {"texts", "processors"},
    "writes": {"crossings"},
    "initial": {"classes"},
}
"""Question -> the questions whose modules it uses."""


def folder_of(name):
    return name.split(".")[2]


def test_questions_know_no_other_question():
    shared = {"question", "made_models", "differing", "questions"}
    for root, top in ((ROOT / "samebits", "samebits"), (PROBE_PACKAGE, "samebits_probe")):
        folders = {p.name for p in (root / "questions").iterdir() if p.is_dir()} - {"__pycache__"}
        for name in folders:
            for path in (root / "questions" / name).rglob("*.py"):
                used = {folder_of(n) for n in imports(path) if n.startswith(f"{top}.questions.")}
                assert used - shared <= {name} | MAY_USE.get(name, set()), path


def test_both_sides_have_the_same_questions():
    host, probes = (
        {p.name for p in (root / "questions").iterdir() if p.is_dir()} - {"__pycache__"}
        for root in (ROOT / "samebits", PROBE_PACKAGE)
    )
    # what all jobs leave is asked by none of its own
    of_all_jobs = {
        question.name
        for question in questions()
        if question.options is None and not any("." in kind.name for kind in question.key.kinds)
    }
    assert host - of_all_jobs == probes


def test_every_package_has_one_floor():
    named = [name for floor in HOST_FLOORS for name in floor]
    assert sorted(named) == sorted({package(path, ROOT / "samebits") for path in HOST})


def test_every_probe_package_has_one_floor():
    named = [name for floor in PROBE_FLOORS for name in floor]
    assert sorted(named) == sorted(
        p.name for p in PROBE_PACKAGE.iterdir() if p.is_dir() and any(p.glob("*.py"))
    )


def test_no_file_imports_the_root_package():
    for path in HOST:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                assert "samebits" not in {alias.name for alias in node.names}, path


@pytest.mark.parametrize("path", HOST, ids=lambda p: str(p.relative_to(ROOT)))
def test_host_imports_no_torch_and_no_transformers(path):
    roots = {name.split(".")[0] for name in imports(path)}
    assert not roots & {"torch", "transformers", "safetensors"}


@pytest.mark.parametrize("path", PROBES, ids=lambda p: str(p.relative_to(ROOT)))
def test_probes_import_no_samebits(path):
    assert "samebits" not in {name.split(".")[0] for name in imports(path)}


@pytest.mark.parametrize("path", sorted(WIRE.glob("*.py")), ids=lambda p: p.name)
def test_what_both_sides_share_imports_the_standard_library_only(path):
    roots = {name.split(".")[0] for name in imports(path)}
    assert roots <= sys.stdlib_module_names | {"samebits_wire"}


def test_the_folder_of_probes_shadows_no_installable_module():
    # its entries come first on sys.path of a stack's interpreter
    entries = {
        path.stem
        for path in (ROOT / "probes").iterdir()
        if path.suffix in ("", ".py") and path.name[0] != "."
    }
    assert entries - {"__pycache__"} == {
        "samebits_warm",
        "stack",
        "architectures",
        "samebits_probe",
        "samebits_wire",
    }


def test_the_folder_of_the_bench_shadows_no_module_of_the_standard_library():
    # an interpreter that runs a script of it has the folder first on sys.path
    assert not {path.stem for path in (ROOT / "bench").iterdir()} & sys.stdlib_module_names


@pytest.mark.processes
def test_running_host_loads_no_torch():
    code = "import sys, samebits.cli; print(sorted({'torch', 'transformers'} & set(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_an_import_inside_a_function_counts(tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    from torch import nn\n")
    assert "torch" in imports(bad)


@pytest.mark.processes
def test_the_top_of_the_repository_holds_what_readers_expect_and_no_scratch_file():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    loose = {path for path in tracked if path and "/" not in path and not path.startswith(".")}
    documents = {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"}
    assert loose == documents | {
        "pyproject.toml",
        "noxfile.py",
        "matrix.yaml",
        "zoo.yaml",
        "action.yml",
    }
