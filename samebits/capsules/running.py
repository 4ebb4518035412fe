"""A capsule's scripts are run as its reader will run them: by uv alone, in a folder of their own."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from uv import find_uv_bin

from samebits.environment import PASSED_ON
from samebits.stacks import uv_environment

_TIMEOUT = 900.0
"""Seconds for one script; the first one may have to download torch."""
_STARTED = "transformers "
"""Every script says its versions before anything else."""
_OF_UV = ("UV_", "XDG_")


class Ran(NamedTuple):
    """How a script ended."""

    code: int
    output: str
    """Standard output and error."""

    @property
    def last_line(self) -> str:
        """What it said last, without this machine's folders."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return without_folders(lines[-1]) if lines else "it said nothing"


Run = Callable[[list[str], Path, Mapping[str, str]], Ran]
"""Runs a command in a folder and an environment, and waits."""


def without_folders(text: str) -> str:
    """Return ``text`` with absolute paths cut to their last part: reports are published."""
    return re.sub(r"(?<![\w:/])/(?:[^\s/'\":,()]+/)+([^\s/'\":,()]+)", r"…/\1", text)


def run_command(command: list[str], folder: Path, environment: Mapping[str, str]) -> Ran:
    """Run a command in a folder to its end; the only place where a capsule starts a process."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ran(-1, f"it did not end in {_TIMEOUT:.0f} s")
    return Ran(done.returncode, done.stdout)


def run_scripts(
    folder: Path,
    scripts: tuple[str, ...],
    environ: Mapping[str, str],
    *,
    needs_hub: bool,
    run: Run = run_command,
) -> dict[str, Ran]:
    """Run the scripts in a copy of ``folder`` elsewhere, and return how each ended.

    uv may use the network only if its cache does not hold what a script asks for.
    """
    with tempfile.TemporaryDirectory(prefix="samebits-capsule-") as name:
        copy = Path(name).resolve() / "capsule"
        shutil.copytree(folder, copy)
        environment = script_environment(environ, copy.parent / "modules", needs_hub=needs_hub)
        try:
            return {script: _run(script, copy, environment, run) for script in scripts}
        finally:
            for script in scripts:
                _remove_environment(script, copy, environment, run)


def script_environment(
    environ: Mapping[str, str], modules: Path, *, needs_hub: bool
) -> dict[str, str]:
    """Return what a script may see: as much as a probe, uv's own settings, and no set threads.

    Nothing is fixed as it is for probes: the reader of a capsule fixes nothing either.
    """
    seen = {
        name: value
        for name, value in uv_environment(environ).items()
        if name in PASSED_ON or name.startswith(_OF_UV)
    }
    offline = {} if needs_hub else {"HF_HUB_OFFLINE": "1"}
    return seen | offline | {"HF_MODULES_CACHE": str(modules)}


def _run(script: str, folder: Path, environment: Mapping[str, str], run: Run) -> Ran:
    command = [find_uv_bin(), "run", "--quiet", "--script", script]
    ran = run([*command[:2], "--offline", *command[2:]], folder, environment)
    if ran.code != 0 and _STARTED not in ran.output:
        ran = run(command, folder, environment)
    return Ran(ran.code, ran.output.replace(str(folder), "."))


def _remove_environment(
    script: str, folder: Path, environment: Mapping[str, str], run: Run
) -> None:
    """Remove what uv installed for a script whose folder is about to go: it keeps it for ever."""
    command = [find_uv_bin(), "python", "find", "--offline", "--script", script]
    found = run(command, folder, environment)
    python = Path(found.output.strip())
    made = python.parent.parent
    if found.code == 0 and made.parent.name.startswith("environments-"):
        shutil.rmtree(made, ignore_errors=True)
