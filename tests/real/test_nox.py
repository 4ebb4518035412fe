"""Test the README's command: nox alone is installed, samebits is a checkout."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MATRIX = """\
environments: ["4.48", "5.x"]
models:
  small:
    dtypes: [float32]
    build: {architecture: llama, seed: 1, config: {
      vocab_size: 99, hidden_size: 48, intermediate_size: 80, num_hidden_layers: 2,
      num_attention_heads: 4, num_key_value_heads: 2}}
"""


def nox(tmp_path, *arguments):
    """Run nox as a user does who has nothing else: its script environment is a new one."""
    outer = ("NOX_", "VIRTUAL_ENV", "PYTHONPATH", "PYTEST_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(outer)}
    command = [sys.executable, "-m", "nox", "-f", ROOT / "noxfile.py", "--envdir", tmp_path / "nox"]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_nox_runs_a_checkout_that_is_not_installed(tmp_path):
    (tmp_path / "matrix.yaml").write_text(MATRIX, "utf-8")
    chosen = ("--matrix", str(tmp_path / "matrix.yaml"), "--reports", str(tmp_path / "out"))
    nox(tmp_path, "-s", "matrix", "--", *chosen, "--quick")
    report = json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert [len(row["cells"]) for row in report["rows"]] == [2]
    assert report["exit_code"] == 0
    # the modules of bench import samebits and the probes' package
    assert "--no-clean" in nox(tmp_path, "-s", "recall", "--", "--help")
