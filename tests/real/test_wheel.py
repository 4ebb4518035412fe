"""An installed samebits runs without its checkout: the wheel holds the probes and the schemas."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from samebits.base.finding_pages import finding_page
from samebits.base.patches import write_patched
from samebits.questions.registry import rules
from tests.real.conftest import NEW, OLD, ROOT, SHARED, share_stacks

CUSTOM = ROOT / "tests" / "custom"


def call(*command, folder, code=0, **more):
    # neither the checkout nor what pytest was started with may serve an import
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        command, cwd=folder, env=environ | more, capture_output=True, text=True, check=False
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Build the wheel, install it into an environment of its own, return that one's programs."""
    folder = tmp_path_factory.mktemp("wheel")
    links = {"UV_FIND_LINKS": os.environ.get("UV_FIND_LINKS", os.environ.get("PIP_FIND_LINKS", ""))}
    uv = [sys.executable, "-m", "uv"]
    call(*uv, "build", "--wheel", "--out-dir", "dist", str(ROOT), folder=folder, **links)
    call(*uv, "venv", "--python", sys.executable, "environment", folder=folder)
    programs = folder / "environment" / ("Scripts" if os.name == "nt" else "bin")
    (wheel,) = (folder / "dist").glob("*.whl")
    python = str(programs / "python")
    call(*uv, "pip", "install", "--python", python, str(wheel), folder=folder, **links)
    return programs


@pytest.fixture(scope="module")
def cache(tmp_path_factory, stacks):
    """Return a cache folder with the stacks of the checkout, and its locks as if resolved now."""
    folder = tmp_path_factory.mktemp("cache")
    (folder / "stacks").symlink_to(SHARED["stacks"])
    shutil.copytree(SHARED["locks"], folder / "checks" / "locks", copy_function=shutil.copyfile)
    return folder


@pytest.fixture
def models(tmp_path):
    """Make an empty folder with a model of custom code, and a copy with a defect."""
    shutil.copytree(CUSTOM / "healthy", tmp_path / "healthy")
    write_patched(CUSTOM / "healthy", [CUSTOM / "inv-freq-buffer.diff"], tmp_path / "defect")
    return tmp_path


def test_check_names_a_defect_and_its_line_in_an_empty_folder(installed, cache, models):
    words = ("check", "defect", "--quick", "--from", OLD)
    samebits, environ = str(installed / "samebits"), {"SAMEBITS_CACHE": str(cache)}
    refused = call(samebits, *words, folder=models, code=2, **environ)
    assert refused == ""  # its code runs only if somebody says so
    words = (*words, "--trust-remote-code")
    lines = call(samebits, *words, folder=models, code=1, **environ).splitlines()
    assert any(
        line.startswith("defect  ") and "every load gives different" in line for line in lines
    )
    text = " ".join(" ".join(lines).split())
    assert "modeling_tiny.py:" in text.partition(" where ")[2].partition(" right ")[0]
    assert " is wrong: a non-persistent buffer holds uninitialised memory (SB301)" in text
    assert "without a buffer" in text.partition(" do ")[2]
    assert (models / "reports" / "check" / "defect" / "report.md").is_file()
    assert {path.name for path in models.iterdir()} == {"healthy", "defect", "reports"}


def test_the_functions_that_are_named_are_never_those_of_the_installed_probes(
    installed, cache, tmp_path
):
    words = ("check", "type:llama", "--quick", "--from", OLD, "--to", NEW)
    environ = {"SAMEBITS_CACHE": str(cache)}
    call(str(installed / "samebits"), *words, folder=tmp_path, **environ)
    facts = (tmp_path / "reports" / "check" / "llama" / "report.json").read_text()
    assert "samebits_probe" not in facts
    assert "sdpa_attention_forward" in facts


@pytest.mark.long
def test_init_and_matrix_accuse_no_healthy_model(installed, cache, models):
    samebits, environ = str(installed / "samebits"), {"SAMEBITS_CACHE": str(cache)}
    call(samebits, "init", "--trust-remote-code", folder=models)
    share_stacks(models / ".samebits")
    words = ("matrix", "--models", "healthy", "--environments", f"{OLD},{NEW}", "--quick")
    assert "matrix.yaml: " in call(samebits, *words, folder=models, **environ)
    latest = models / "reports" / "latest"
    report = json.loads((latest / "report.json").read_text())
    assert [stack["id"] for stack in report["stacks"]] == [OLD, NEW]
    assert "healthy" in (latest / "report.md").read_text()
    assert "healthy" in (latest / "report.html").read_text()
    assets = latest / "html" / "assets"
    for path in (ROOT / "samebits" / "reports" / "html" / "assets").rglob("*.js"):
        assert (assets / path.name).is_file() or (assets / "vendor" / path.name).is_file()
    checked = ("check", "healthy", "--quick", "--from", OLD, "--trust-remote-code")
    assert "healthy  " in call(samebits, *checked, folder=models, **environ)


def test_an_installed_samebits_imports_nothing_of_the_checkout(installed, tmp_path):
    code = "import samebits.cli, samebits.stacks.probes as p; print(samebits.__file__, p.STACK)"
    files = call(str(installed / "python"), "-c", code, folder=tmp_path).split()
    assert all(file.startswith(str(installed.parent)) for file in files), files


def test_an_installed_samebits_has_the_texts_of_findings(installed, tmp_path):
    code = (
        "import samebits.base.finding_pages as p; from samebits.questions.registry import rules\n"
        "print(p.PAGES, len([r.text for r in rules()]), rules()[0].text.remedy)"
    )
    said = call(str(installed / "python"), "-c", code, folder=tmp_path).strip()
    folder, number, first = said.split(" ", 2)
    assert folder.startswith(str(installed.parent))
    assert (int(number), first) == (len(rules()), finding_page(rules()[0].code).remedy)
