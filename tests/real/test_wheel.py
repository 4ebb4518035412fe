"""An installed samebits runs without its checkout: the wheel holds the probes and the schemas."""

import json
import os
import subprocess
import sys

import pytest

from tests.real.conftest import NEW, OLD, ROOT, share_stacks

MATRIX = f"""
stacks: ["{OLD}", "{NEW}"]
defaults: {{greedy: 0, relations: false, crossings: false, prompts: {{short: {{length: 5}}}}}}
models:
  llama: {{build: {{architecture: llama, config: {{hidden_size: 16, intermediate_size: 16,
    num_attention_heads: 2, num_hidden_layers: 1, vocab_size: 32}}}}}}
"""


def call(*command, folder, **more):
    # neither the checkout nor what pytest was started with may serve an import
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(
        command, cwd=folder, env=environ | more, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
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


def test_an_installed_samebits_runs_a_matrix_in_an_empty_folder(installed, stacks, tmp_path):
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    share_stacks(tmp_path / ".samebits")
    call(str(installed / "samebits"), "matrix", folder=tmp_path)
    report = json.loads((tmp_path / "reports" / "latest" / "report.json").read_text())
    assert [stack["id"] for stack in report["stacks"]] == [OLD, NEW]
    assert "llama" in (tmp_path / "reports" / "latest" / "report.md").read_text()


def test_an_installed_samebits_imports_nothing_of_the_checkout(installed, tmp_path):
    code = "import samebits.cli, samebits.stacks.probes as p; print(samebits.__file__, p.STACK)"
    files = call(str(installed / "python"), "-c", code, folder=tmp_path).split()
    assert all(file.startswith(str(installed.parent)) for file in files), files
