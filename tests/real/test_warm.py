"""A run whose environments stay in memory: the next one uses them and says the same as a run without."""

import json
import tempfile
from pathlib import Path

import pytest

from samebits.stacks import warm
from tests.real.conftest import NEW, OLD, ROOT, run_samebits, share_stacks

pytestmark = pytest.mark.long  # for changes of stacks/warm.py

HEALTHY = "path: '{custom}/healthy', trust_remote_code: true"
MATRIX = f"""\
environments: ["{OLD}", "{NEW}"]
defaults: {{changes: false}}
models:
  healthy: {{{HEALTHY}}}
  broken: {{{HEALTHY}, patch: ['{{custom}}/head-mask.diff']}}
""".replace("{custom}", str(ROOT / "tests" / "custom"))


@pytest.fixture
def keepers(monkeypatch):
    """Return the folder of sockets; the path of a folder of a test is too long for one."""
    with tempfile.TemporaryDirectory() as name:
        monkeypatch.setenv("XDG_RUNTIME_DIR", name)
        yield Path(name, "samebits")
        warm.keepers(Path(name, "samebits"), end=True)


def rows_without_times(path):
    rows = json.loads(path.read_text())["rows"]
    for row in rows:
        for integrity in row["integrity"].values():
            del integrity["seconds"]
    return rows


def test_a_run_in_kept_processes_says_the_same(tmp_path, keepers, stacks):
    reports = {}
    for name, words in {"cold": (), "first": ("--warm", "5"), "second": ("--warm", "5")}.items():
        folder = tmp_path / name
        folder.mkdir()
        share_stacks(folder / ".samebits")
        (folder / "matrix.yaml").write_text(MATRIX)
        done = run_samebits(ROOT / "probes" / "stack.py", folder, "matrix", "--quick", *words)
        assert done.returncode == 1, done.stderr
        reports[name] = rows_without_times(folder / "reports" / "latest" / "report.json")
    assert [keeper.runs for keeper in warm.keepers(keepers)] == [2, 2]
    assert reports["cold"] == reports["first"] == reports["second"]
