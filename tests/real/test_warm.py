"""A run whose environments stay in memory: the next one uses them and says the same as a run without."""

import json
import os

import pytest

from samebits.stacks import warm
from tests.real.conftest import NEW, OLD, ROOT, run_samebits, share_stacks

CUSTOM = ROOT / "tests" / "custom"
MATRIX = f"""\
stacks: ["{OLD}", "{NEW}"]
defaults: {{path: '{CUSTOM / "healthy"}', trust_remote_code: true}}
models:
  healthy: {{}}
  broken: {{patch: ['{CUSTOM / "head-mask.diff"}']}}
"""


@pytest.fixture
def environ(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield os.environ
    warm.keepers(tmp_path / "samebits", end=True)


def test_a_run_in_kept_processes_says_the_same(tmp_path, environ, stacks):
    reports = {}
    for name, words in {"cold": (), "first": ("--warm", "5"), "second": ("--warm", "5")}.items():
        folder = tmp_path / name
        folder.mkdir()
        share_stacks(folder / ".samebits")
        (folder / "matrix.yaml").write_text(MATRIX)
        done = run_samebits(ROOT / "probes" / "stack.py", folder, "matrix", "--quick", *words)
        assert done.returncode == 1, done.stderr
        text = (folder / "reports" / "latest" / "report.json").read_text()
        reports[name] = json.loads(text)["rows"]
    kept = warm.keepers(tmp_path / "samebits")
    assert [keeper.runs for keeper in kept] == [2, 2]
    assert reports["cold"] == reports["first"] == reports["second"]
