"""Takes the place of probes/stack.py in the tests: one import of a release serves many runs.

It is probes/samebits_warm.py, with three differences. With arguments a fork runs a script, or ``-c`` code. A run with other
variables than usual gets probes/stack.py itself, and so does every run where there is no Linux. And the keepers end
with the process of the tests.

The file is run by a link in a folder named after the process of the tests, which has the sockets of the keepers.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).absolute().parent
PROBES = Path(__file__).resolve().parents[2] / "probes"
ENVIRONMENT = Path(sys.prefix).resolve()
"""The folder of the stack, to which the projects of tests have links."""
OF_A_CHECK = {"SAMEBITS_ACCELERATE", "SAMEBITS_PILLOW"}
"""Variables of a file of tests/inside/: no import depends on them."""
IDLE = 3600.0
"""Seconds; the tests are over before."""

sys.path[0] = str(PROBES)
import samebits_warm as warm

warm.OF_A_RUN |= OF_A_CHECK


def main(words: list[str]) -> None:
    """Pass standard streams and variables on to a fork of the keeper, and end as it ends."""
    variables = {name: os.environ[name] for name in os.environ.keys() - warm.OF_A_RUN}
    is_usual = bool(words) or variables == json.loads((HERE / "usual.json").read_text())
    if sys.platform != "linux" or not is_usual:
        os.execv(sys.executable, [sys.executable, *(words or [str(PROBES / "stack.py")])])
    place = HERE / f"{hashlib.sha256(str(ENVIRONMENT).encode()).hexdigest()[:8]}.keeper"
    command = [str(ENVIRONMENT / "bin" / "python"), __file__, "--keep", str(place)]
    order = {"variables": dict(os.environ), "folder": str(Path.cwd()), "seconds": IDLE}
    with warm.connected(place, command) as keeper:
        warm.end_as(warm.handed_over(keeper, order | {"words": words}))


class TestsKeeper(warm.Keeper):
    """A keeper that ends with the process of the tests."""

    _tests = int(HERE.name.rpartition("-")[2])

    def _is_over(self) -> bool:
        return not _exists(self._tests) or super()._is_over()


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def run_script(words: list[str]) -> None:
    """Run a script, or code, as the fork's own program."""
    import stack

    stack.gc.freeze()  # as before each job: a collection would copy the pages of all that was imported
    stack.gc.enable()
    stack._separate_remote_code()
    stack.inherit_orphans()
    if words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        sys.path[0] = ""
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
        return
    sys.argv = words
    sys.path[0] = str(Path(words[0]).parent)
    runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--keep"]:
        warm.keep(Path(sys.argv[2]), TestsKeeper, run_script)
    else:
        main(sys.argv[1:])
