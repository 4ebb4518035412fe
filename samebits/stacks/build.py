"""How does a stack get its interpreter: resolved to a lock, and built from it, by uv.

An environment is named after its lock and never changed afterwards, so two runs at once, or
a run beside an upgrade, cannot disturb each other; packages are hard links into uv's cache.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field
from uv import find_uv_bin

from samebits.base import seal
from samebits.base.atomic import replace
from samebits.base.digests import digest_of, digest_of_file
from samebits.base.errors import StackError, shown
from samebits.base.filestate import Ledger
from samebits.records.record import Record, read_record
from samebits.stacks.probes import ARCHITECTURES

if TYPE_CHECKING:
    from samebits.matrix.spec import StackSpec

Run = Callable[[list[str], str, Mapping[str, str]], "subprocess.CompletedProcess[str]"]
"""Runs a command with text on its standard input in an environment, and waits."""

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_STAMP = "samebits-stack.json"
_STRAY = 86_400
"""Seconds after which an environment that is still being built is no longer."""


class Stack(Record):
    """A stack as it was resolved and built; lies in its environment as ``samebits-stack.json``."""

    format: Literal["samebits-stack"] = "samebits-stack"
    format_version: Literal[2] = 2
    id: str
    python: str
    """Path of the interpreter."""
    lock: str
    """The whole resolution, one ``name==version`` a line."""
    lock_digest: str
    packages: dict[str, str]
    architectures: tuple[str, ...] = Field(repr=False)
    """Every model_type that its transformers knows."""

    @property
    def transformers(self) -> str:
        """The release it resolved to."""
        return self.packages["transformers"]


class Commands:
    """Runs commands to their ends; the only place where a stack is built by another program."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def __call__(
        self, command: list[str], text: str, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run one."""
        if self._ended:
            return subprocess.CompletedProcess(command, 1, "", "the run was ended")
        with subprocess.Popen(
            command,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process:
            self._running.add(process)
            try:
                out, said = process.communicate(text)
            finally:
                self._running.discard(process)
        return subprocess.CompletedProcess(command, process.returncode, out, said)

    def end(self) -> None:
        """End those that run and begin no other: the user wants no more of them."""
        self._ended = True
        for process in list(self._running):
            process.terminate()


class StackBuilder:
    """Resolves and builds stacks under one folder."""

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        *,
        exclude_newer: str | None = None,
        upgrade: bool = False,
        run: Run | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        self._ledger = ledger or Ledger()
        self._root = root
        self._environ = uv_environment(environ)
        self._exclude_newer = exclude_newer
        self._upgrade = upgrade
        self._commands = Commands()
        self._run = run or self._commands

    def end(self) -> None:
        """End what is being built."""
        self._commands.end()

    def build(self, spec: StackSpec) -> Stack:
        """Return the stack, resolved now or as it was before, with its environment in place.

        Raises:
            StackError: nothing fits the spec, or the installation failed.

        """
        lock = self.resolve(spec)
        folder = self._root / "stacks" / f"{spec.id}-{digest_of([lock, spec.python])[:12]}"
        found = _read_stamp(folder / _STAMP, spec.id) or self._install(spec, lock, folder)
        for path in (folder / _STAMP, Path(found.python)):
            self._ledger.file(path)
        return found

    def resolve(self, spec: StackSpec) -> str:
        """Return the lock of ``spec``: the newest releases that fit, or the ones chosen before.

        A resolution is kept until the spec, ``exclude-newer`` or the machine changes, or an
        upgrade is asked for; a matrix does not move under its user between two runs.

        Raises:
            StackError: nothing fits.

        """
        return self._resolved(spec.id, requirements(spec), spec.python)

    def version(self, spec: StackSpec) -> str:
        """Return the release of transformers that ``spec`` resolves to.

        Raises:
            StackError: nothing fits.

        """
        return _pinned(self.resolve(spec))["transformers"]

    def below(self, spec: StackSpec, version: str, oldest: str) -> str:
        """Return the newest release of transformers below ``version``, from ``oldest`` on.

        Asked of uv's resolver, which knows the user's index: it fits ``spec``'s torch and Python.

        Raises:
            StackError: nothing fits.

        """
        between = f"transformers>={oldest},<{version}"
        wanted = [f"torch=={release_pattern(spec.torch)}", between]
        return _pinned(self._resolved(f"below-{version}", wanted, spec.python))["transformers"]

    def _resolved(self, name: str, wanted: list[str], python: str) -> str:
        question = self._question(wanted, python)
        path = self._root / "locks" / f"{name}-{question[:12]}.txt"
        if not self._upgrade:
            self._ledger.file(path)
            if (kept := _kept_lock(path)) is not None:
                return kept
        command = [find_uv_bin(), "pip", "compile", "-", "--quiet", "--no-header"]
        command += ["--no-annotate", "--python-version", python]
        if self._exclude_newer:
            command += ["--exclude-newer", self._exclude_newer]
        lock = self._uv(command, "\n".join(wanted), f"stack {name}: no resolution")
        replace(path, seal.sealed_lines(lock))
        self._ledger.file(path)
        return lock

    def _question(self, wanted: list[str], python: str) -> str:
        links = self._environ.get("UV_FIND_LINKS", "")
        return digest_of([wanted, python, self._exclude_newer, links, sys.platform])

    def _install(self, spec: StackSpec, lock: str, folder: Path) -> Stack:
        _remove_strays(folder.parent)
        aside = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            return _move_into_place(aside, folder, self._made(spec, lock, aside, folder))
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _made(self, spec: StackSpec, lock: str, aside: Path, folder: Path) -> Stack:
        """Make the environment of ``folder`` in ``aside``."""
        what = f"stack {spec.id}: could not be built"
        self._uv(
            [
                find_uv_bin(),
                "venv",
                "--quiet",
                "--relocatable",
                "--python",
                spec.python,
                str(aside),
            ],
            "",
            what,
        )
        python = _interpreter(aside)
        lock_file = aside / "requirements.txt"
        lock_file.write_text(lock, "utf-8")
        sync = [find_uv_bin(), "pip", "sync", "--quiet", "--python", str(python), str(lock_file)]
        self._uv(sync, "", what)
        architectures = self._uv([str(python), str(ARCHITECTURES)], "", what)
        stack = Stack(
            id=spec.id,
            python=str(_interpreter(folder)),
            lock=lock,
            lock_digest=digest_of([lock, spec.python]),
            packages=_pinned(lock),
            architectures=_architectures(architectures, what),
        )
        (aside / _STAMP).write_text(seal.sealed(stack.model_dump_json(indent=1)), "utf-8")
        return stack

    def _uv(self, command: list[str], text: str, what: str) -> str:
        done = self._run(command, text, self._environ)
        if done.returncode == 0:
            return done.stdout
        said = _plain(done.stderr or done.stdout)
        msg = (
            f"{what}:\n{said}\nThis usually means that the version does not exist, that its "
            "requirements exclude each other, or that the package index is out of reach. "
            "Change the stack in matrix.yaml, or run again."
        )
        raise StackError(msg)


def requirements(spec: StackSpec) -> list[str]:
    """Return what a stack asks for: ``4.48`` and ``5.x`` are families, ``4.48.0`` is itself."""
    return [
        f"torch=={release_pattern(spec.torch)}",
        f"transformers=={release_pattern(spec.transformers)}",
        *spec.packages,
    ]


def release_pattern(version: str) -> str:
    """Return a version as a requirement says it: three numbers are exact, fewer are a family."""
    if version.endswith(".x"):
        return f"{version[:-2]}.*"
    return version if version.count(".") >= 2 else f"{version}.*"


def uv_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment uv runs in: pip's find-links passed on, no foreign environment."""
    env = {k: v for k, v in environ.items() if k not in {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"}}
    if "PIP_FIND_LINKS" in env:
        # uv reads none of pip's settings, and a CPU build of torch is often found only there
        env.setdefault("UV_FIND_LINKS", env["PIP_FIND_LINKS"])
    return env


def _interpreter(folder: Path) -> Path:
    if os.name == "nt":
        return folder / "Scripts" / "python.exe"
    return folder / "bin" / "python"


def _read_stamp(path: Path, stack_id: str) -> Stack | None:
    """Return the stack that a stamp describes; None if there is none that can be used."""
    stack = read_record(path, Stack)
    if stack is None or "transformers" not in stack.packages:
        return None
    return stack if stack.id == stack_id and Path(stack.python).exists() else None


def _move_into_place(aside: Path, folder: Path, stack: Stack) -> Stack:
    try:
        aside.rename(folder)
    except OSError:
        # another run has just built the same lock, or left a torn folder behind
        if (there := _read_stamp(folder / _STAMP, stack.id)) is not None:
            shutil.rmtree(aside, ignore_errors=True)
            return there
        shutil.rmtree(folder, ignore_errors=True)
        aside.rename(folder)
    return stack


def _architectures(said: str, what: str) -> tuple[str, ...]:
    """Return what a stack's interpreter said last: packages may have printed before."""
    try:
        return tuple(map(str, json.loads(said.strip().splitlines()[-1])["architectures"]))
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        msg = f"{what}: its transformers did not say what it knows: {shown(said)}"
        raise StackError(msg) from error


def _remove_strays(folder: Path) -> None:
    """Remove environments that a run was building when it was killed."""
    oldest = time.time() - _STRAY
    for path in folder.glob(f"*-*.{'[0-9a-f]' * 12}.tmp"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path, ignore_errors=True)


def _kept_lock(path: Path) -> str | None:
    """Return the lock that an earlier run chose; None if there is none, or none that is whole."""
    try:
        lock = seal.opened_lines(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return lock if {"torch", "transformers"} <= _pinned(lock).keys() else None


def _pinned(lock: str) -> dict[str, str]:
    """Return what a lock pins: name -> version."""
    return dict(_PINNED.findall(lock))


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip()


def probes_digest(folder: Path) -> str:
    """Return the digest of the probes' source: captures of other probes are not compared."""
    return digest_of(
        {p.relative_to(folder).as_posix(): digest_of_file(p) for p in sorted(folder.rglob("*.py"))}
    )
