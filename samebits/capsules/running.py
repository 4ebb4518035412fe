"""A capsule's scripts are run as its reader will run them: by uv alone, in a folder of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import NamedTuple

from uv import find_uv_bin

from samebits.base.redaction import without_folders
from samebits.stacks.build import uv_environment
from samebits.stacks.environment import PASSED_ON

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
    def began(self) -> bool:
        """True if the script itself ran: uv had installed what it asks for."""
        return _STARTED in self.output

    @property
    def last_line(self) -> str:
        """What it said last, without this machine's folders."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return without_folders(lines[-1]) if lines else "it said nothing"


Run = Callable[[list[str], Path, Mapping[str, str]], Ran]
"""Runs a command in a folder and an environment, and waits."""


class Commands:
    """Runs commands to their ends; the only place where a capsule starts a process."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = Event()

    def __call__(self, command: list[str], folder: Path, environment: Mapping[str, str]) -> Ran:
        """Run one in a folder and an environment."""
        if self._ended.is_set():
            return Ran(-1, "the run was ended")
        with subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # uv starts Python, and both are to end
        ) as process:
            self._running.add(process)
            if self._ended.is_set():  # meanwhile
                _kill(process)
            try:
                said, _ = process.communicate(timeout=_TIMEOUT)
            except subprocess.TimeoutExpired:
                _kill(process)
                return Ran(-1, f"it did not end in {_TIMEOUT:.0f} s")
            finally:
                self._running.discard(process)
        return Ran(process.returncode, said)

    def end(self) -> None:
        """End those that run and begin no other: a Ctrl-C must not wait for minutes."""
        self._ended.set()
        for process in list(self._running):
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """End a command with all that it started."""
    if not hasattr(os, "killpg"):
        process.kill()
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Place:
    """A folder elsewhere, in which one capsule after the other is run.

    It stays the same for a run, because uv makes an environment for each path: the second capsule
    finds the release that the first one installed, and its compiled modules. Closing removes both
    the folder and those environments, which uv would keep for ever.
    """

    def __init__(self, environ: Mapping[str, str], run: Run | None = None) -> None:
        self._environ = environ
        self._commands = Commands()
        self._command = run or self._commands
        self._root = Path(tempfile.mkdtemp(prefix="samebits-capsule-")).resolve()
        self._made: set[Path] = set()

    def run(self, folder: Path, scripts: tuple[str, ...], *, needs_hub: bool) -> dict[str, Ran]:
        """Run the scripts in a copy of ``folder`` and return how each ended.

        uv may use the network only if its cache does not hold what a script asks for.
        """
        copy, modules = self._root / "capsule", self._root / "modules"
        for old in (copy, modules):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(folder, copy)
        environment = script_environment(self._environ, modules, needs_hub=needs_hub)
        return {script: self._run(script, copy, environment) for script in scripts}

    def close(self) -> None:
        """End what runs, and remove everything that the scripts left."""
        self._commands.end()
        for path in (self._root, *self._made):
            shutil.rmtree(path, ignore_errors=True)

    def _run(self, script: str, folder: Path, environment: Mapping[str, str]) -> Ran:
        command = [find_uv_bin(), "run", "--quiet", "--script", script]
        ran = self._command([*command[:2], "--offline", *command[2:]], folder, environment)
        if ran.code != 0 and not ran.began:
            ran = self._command(command, folder, environment)
        self._remember(script, folder, environment)
        return Ran(ran.code, ran.output.replace(str(folder), "."))

    def _remember(self, script: str, folder: Path, environment: Mapping[str, str]) -> None:
        """Note the environment that uv made for a script."""
        command = [find_uv_bin(), "python", "find", "--offline", "--script", script]
        found = self._command(command, folder, environment)
        made = Path(found.output.strip()).parent.parent
        if found.code == 0 and made.parent.name.startswith("environments-"):
            self._made.add(made)


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
