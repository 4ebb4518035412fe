"""Runs the scripts of a capsule as a reader would: with uv, in a folder of their own."""

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

from samebits.stacks import uv
from samebits.stacks.environment import PASSED_ON
from samebits_wire.folders import without_folders

_TIMEOUT = 900.0
"""Seconds for one script; the first one may have to download torch."""
_FIRST_WORD = "transformers "
"""Start of the first line that every script prints."""
_UV_PREFIXES = ("UV_", "XDG_")


class ScriptResult(NamedTuple):
    """How a script ended."""

    code: int
    output: str
    """Standard output and error."""

    @property
    def has_started(self) -> bool:
        """True if the script itself ran: uv had installed its packages."""
        return _FIRST_WORD in self.output

    @property
    def last_line(self) -> str:
        """The last line of its output, without the folders of this machine."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return without_folders(lines[-1]) if lines else "it printed nothing"


Run = Callable[[list[str], Path, Mapping[str, str]], ScriptResult]
"""Runs a command in a folder and an environment, and waits."""


class Commands:
    """Runs commands until they end. Capsules start processes only here."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = Event()

    def __call__(
        self, command: list[str], folder: Path, environment: Mapping[str, str]
    ) -> ScriptResult:
        """Run one in a folder and an environment."""
        if self._stopped.is_set():
            return ScriptResult(-1, "the run was ended")
        with subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # uv starts Python, and _kill must end both
        ) as process:
            self._running.add(process)
            if self._stopped.is_set():  # since the check above
                _kill(process)
            try:
                output, _ = process.communicate(timeout=_TIMEOUT)
            except subprocess.TimeoutExpired:
                _kill(process)
                return ScriptResult(-1, f"it did not end in {_TIMEOUT:.0f} s")
            finally:
                self._running.discard(process)
        return ScriptResult(process.returncode, output)

    def end(self) -> None:
        """End the running commands and start no more: a Ctrl-C must not wait for minutes."""
        self._stopped.set()
        for process in list(self._running):
            _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    """End a command and all processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Place:
    """A temporary folder in which one capsule after the other runs.

    The folder stays the same during a run, because uv makes an environment for each path. The
    second capsule reuses the release that the first one installed, with its compiled modules.
    Closing removes the folder and those environments, which uv would keep.
    """

    def __init__(self, environ: Mapping[str, str], run: Run | None = None) -> None:
        self._environ = environ
        self._commands = Commands()
        self._command = run or self._commands
        self._root = Path(tempfile.mkdtemp(prefix="samebits-capsule-")).resolve()
        (self._root / "uv.toml").touch()  # else uv would read one of a folder above
        self._environments: set[Path] = set()

    def run(
        self, folder: Path, scripts: tuple[str, ...], *, needs_hub: bool
    ) -> dict[str, ScriptResult]:
        """Run the scripts in a copy of ``folder`` and return how each ended.

        uv may use the network only if its cache lacks packages of a script.
        """
        copy, modules = self._root / "capsule", self._root / "modules"
        for old in (copy, modules):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(folder, copy)
        environment = script_environment(self._environ, modules, needs_hub=needs_hub)
        return {script: self._run(script, copy, environment) for script in scripts}

    def close(self) -> None:
        """End the running scripts and remove everything that they left."""
        self._commands.end()
        for path in (self._root, *self._environments):
            shutil.rmtree(path, ignore_errors=True)

    def _run(self, script: str, folder: Path, environment: Mapping[str, str]) -> ScriptResult:
        command = [find_uv_bin(), "run", "--quiet", "--script", script]
        result = self._command([*command[:2], "--offline", *command[2:]], folder, environment)
        if result.code != 0 and not result.has_started:
            result = self._command(command, folder, environment)
        self._record_environment(script, folder, environment)
        return ScriptResult(result.code, result.output.replace(str(folder), "."))

    def _record_environment(
        self, script: str, folder: Path, environment: Mapping[str, str]
    ) -> None:
        """Record the environment that uv made for a script, so that closing removes it."""
        command = [find_uv_bin(), "python", "find", "--offline", "--script", script]
        result = self._command(command, folder, environment)
        environment_folder = Path(result.output.strip()).parent.parent
        if result.code == 0 and environment_folder.parent.name.startswith("environments-"):
            self._environments.add(environment_folder)


def script_environment(
    environ: Mapping[str, str], modules: Path, *, needs_hub: bool
) -> dict[str, str]:
    """Return the environment of a script: the variables that a probe may see, and uv's settings.

    Numbers of threads and the like are not set as they are for probes, because the reader of a
    capsule does not set them either.
    """
    variables = {
        name: value
        for name, value in uv.environment(environ).items()
        if name in PASSED_ON or name.startswith(_UV_PREFIXES)
    }
    offline = {} if needs_hub else {"HF_HUB_OFFLINE": "1"}
    return variables | offline | {"HF_MODULES_CACHE": str(modules)}
