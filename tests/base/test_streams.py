"""Standard streams that are closed or full."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

CODE = """
import json, os, sys
from samebits.base import streams
streams.open_missing()
path = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
for _ in range(3):
    streams.write(sys.stdout, "a line\\n" * 10_000)
    streams.write(sys.stderr, "a line\\n")
os.write(path, json.dumps([path > 2, sys.stdin.read()]).encode())
"""


@pytest.mark.parametrize(
    "shell", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full", ">/dev/full 2>&1", "| head -1"]
)
def test_a_program_goes_on_without_them(tmp_path, shell):
    command = f'"$0" -c "$1" "$2" {shell}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", command, sys.executable, CODE, str(tmp_path / "out")],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr
    assert json.loads((tmp_path / "out").read_text()) == [True, ""]


def test_an_open_one_is_left_as_it_is(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "out")],
        input="in",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "a line\n" * 30_000
    assert done.stderr == "a line\n" * 3
    assert json.loads((tmp_path / "out").read_text()) == [True, "in"]
