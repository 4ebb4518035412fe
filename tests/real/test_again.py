"""A real run, again: nothing is computed twice, and a checkpoint that changed is noticed."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.conftest import share_stacks

pytestmark = pytest.mark.long  # for changes of storage/receipt.py and of caches

ROOT = Path(__file__).parents[2]
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:|\d\d:\d\d UTC")
MATRIX = """\
environments: ["4.48", "5.x"]
defaults: {greedy: 2, questions: [save_load, usage], prompts: {short: {length: 9}}}
models:
  healthy: {path: healthy, trust_remote_code: true}
  one-ulp: {path: one-ulp, trust_remote_code: true}
expected:
  - {model: one-ulp, environment: "5.x", reason: planted}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, planted, stacks):
    made = tmp_path_factory.mktemp("again")
    for name, defect in (("healthy", "none"), ("one-ulp", "one ulp")):
        shutil.copytree(planted(defect), made / name)
    (made / "matrix.yaml").write_text(MATRIX)
    share_stacks(made / ".samebits")
    return made


def samebits(folder):
    """Run the matrix in a process of its own; return what it printed, and the report's pages."""
    command = [sys.executable, "-m", "samebits", "matrix"]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    latest = folder / "reports" / "latest"
    pages = {path.name: path.read_text() for path in sorted(latest.rglob("*.md"))}
    return done.stdout.splitlines(), pages, done.stderr


def without_times(pages):
    """Return the pages without when they were written and how long it took."""
    return {
        name: [line for line in text.splitlines() if not TIME.search(line)]
        for name, text in pages.items()
    }


def test_the_same_again_is_served_and_a_changed_checkpoint_is_run(folder):
    lines, pages, _ = samebits(folder)
    again, same, said = samebits(folder)
    assert again[0].startswith("nothing changed since ")
    assert again[1:] == lines
    assert (same, said) == (pages, "")
    shutil.rmtree(folder / ".samebits" / "receipts")
    kept, compared, _ = samebits(folder)
    assert kept == lines
    assert without_times(compared) == without_times(pages)
    path = folder / "healthy" / "model.safetensors"
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    captures = folder / ".samebits" / "captures"
    n = {name: len(list((captures / name).rglob("?.json"))) for name in ("healthy", "one-ulp")}
    after, _, said = samebits(folder)
    assert not after[0].startswith("nothing changed")
    assert "4 of 4 runs" in said
    assert len(list((captures / "healthy").rglob("?.json"))) == 2 * n["healthy"]
    assert len(list((captures / "one-ulp").rglob("?.json"))) == n["one-ulp"]
