"""samebits alone answers at once: it imports nothing that a command needs."""

import subprocess
import sys

import pytest

from samebits.overview import NO_COMMAND

STARTED = """
import sys
from samebits.__main__ import main

sys.argv[1:] = sys.argv[2:]
try:
    main()
finally:
    print(*(name for name in sys.modules if name.startswith("samebits.")), file=sys.stderr)
"""


@pytest.mark.processes
@pytest.mark.parametrize("words", [[], ["-h"], ["--help"], ["--version"]], ids=" ".join)
def test_the_overview_imports_no_command(words):
    command = [sys.executable, "-c", STARTED, "samebits", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == (0 if words else NO_COMMAND)
    assert "samebits" in done.stdout
    imported = {name.split(".")[1] for name in done.stderr.split()}
    assert imported == {"__main__", "base", "overview"}
