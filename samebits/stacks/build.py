"""Builder of stacks: uv resolves a stack to a lock and builds an environment from it.

An environment is named after its lock and never changed afterwards, so concurrent runs, or a run
during an upgrade, cannot disturb each other. Packages are hard links into uv's cache.

The packages of the probes, which is BLAKE3, are in a folder of their own in the environment. They are
no part of the lock, and nothing that the stack resolves or imports can depend on them.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import Field
from uv import find_uv_bin

from samebits.base import seal
from samebits.base.atomic import replace
from samebits.base.digests import digest_of, digest_of_file
from samebits.base.errors import StackError, shown
from samebits.base.filestate import Dependencies
from samebits.matrix.spec import StackSpec
from samebits.records.record import Record, read_record
from samebits.stacks.probes import ARCHITECTURES
from samebits.stacks.system import SYSTEM, SystemTorch, find_system_torch

Run = Callable[[list[str], str, Mapping[str, str]], "subprocess.CompletedProcess[str]"]
"""Runs a command with text on its standard input in an environment, and waits."""

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_PLAIN_PIN = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+(\s*;.*)?")
_STAMP = "samebits-stack.json"
PROBE_PACKAGES = "samebits-packages"
"""Folder in an environment with the packages of the probes, which no path of Python contains; see
probes/samebits_probe/process/hashing.py."""
_PROBE_REQUIREMENTS = ("blake3>=0.3.3,<2",)
"""Any release does, as all compute the same hash. The bound is low for old Pythons, and for users
whose settings of uv exclude new packages."""
_NO_STACK = (
    "Usually the release does not exist, its requirements contradict each other, or the package "
    "index cannot be reached. Change the stack in matrix.yaml (of samebits check: --from or --to), "
    "or check the network and run again."
)
_NO_BLAKE3 = "the package blake3, with which samebits hashes tensors, could not be installed"
_HOW_TO_GET_BLAKE3 = (
    "Usually the package index cannot be reached, or has no wheel of it for this Python and "
    "platform. Check the network and run again, or name a folder with a wheel in UV_FIND_LINKS."
)
_STALE_AFTER = 86_400
"""Seconds after which an unfinished environment is a leftover of a killed run."""


class Stack(Record):
    """A resolved and built stack, stored in its environment as ``samebits-stack.json``."""

    format: Literal["samebits-stack"] = "samebits-stack"
    format_version: Literal[2] = 2
    id: str
    python: str
    """Path of the interpreter."""
    lock: str
    """The whole resolution, one ``name==version`` per line."""
    lock_digest: str
    packages: dict[str, str]
    architectures: tuple[str, ...] = Field(repr=False)
    """Every model_type that its transformers release knows."""
    system: SystemTorch | None = Field(default=None, repr=False)
    """The interpreter whose torch it uses; None if it has its own."""

    @property
    def transformers(self) -> str:
        """The release of transformers that it resolved to."""
        return self.packages["transformers"]


class Commands:
    """Runs commands and waits for them; every external program that builds a stack runs here."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._ended = False

    def __call__(
        self, command: list[str], text: str, env: Mapping[str, str]
    ) -> subprocess.CompletedProcess[str]:
        """Run a command and wait for it."""
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
                output, errors = process.communicate(text)
            finally:
                self._running.discard(process)
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def end(self) -> None:
        """Terminate running commands and start no more, because the user ended the run."""
        self._ended = True
        for process in list(self._running):
            process.terminate()


class StackBuilder:
    """Resolves and builds stacks; locks lie in ``root``, environments in ``stacks``."""

    def __init__(
        self,
        root: Path,
        environ: Mapping[str, str],
        *,
        exclude_newer: str | None = None,
        upgrade: bool = False,
        run: Run | None = None,
        dependencies: Dependencies | None = None,
        stacks: Path | None = None,
        max_age: float | None = None,
    ) -> None:
        self._dependencies = dependencies or Dependencies()
        self._locks = root / "locks"
        self._stacks = stacks or root / "stacks"
        self._max_age = max_age
        self._environ = uv_environment(environ)
        self._exclude_newer = exclude_newer
        self._upgrade = upgrade
        self._commands = Commands()
        self._run = run or self._commands
        self._system: SystemTorch | None = None

    def end(self) -> None:
        """Stop all builds."""
        self._commands.end()

    def build(self, spec: StackSpec) -> Stack:
        """Return the stack with its environment in place, resolved now or in an earlier run.

        Raises:
            StackError: nothing fits the spec, or the installation failed.

        """
        lock, system = self.resolve(spec), self._system_of(spec)
        digest = _lock_digest(lock, spec, system)
        if system is not None:
            digest = digest_of([digest, system.python, *system.folders])  # they can move
            self._dependencies.mark_unrepeatable("torch is the machine's, which may change it")
        folder = self._stacks / f"{spec.id}-{digest[:12]}"
        stack = _read_stamp(folder / _STAMP, spec.id) or self._install(spec, lock, folder, system)
        self._add_probe_packages(stack)
        for path in (folder / _STAMP, Path(stack.python)):
            self._dependencies.file(path)
        return stack

    def rebuild(self, stack_id: str, lock: str, python: str) -> Stack:
        """Return the stack of exactly these packages, built now or in an earlier run.

        ``lock`` has a requirement per line, of one version each. Nothing is resolved.

        Raises:
            StackError: one of them cannot be installed.

        """
        spec = StackSpec.model_construct(id=stack_id, transformers="", python=python)
        folder = self._stacks / f"{stack_id}-{digest_of([lock, python])[:12]}"
        stack = _read_stamp(folder / _STAMP, stack_id) or self._install(spec, lock, folder)
        self._add_probe_packages(stack)
        return stack

    def probe_packages(self, python: str, version: str) -> Path:
        """Return a folder with the packages of the probes for an interpreter of the user's.

        Its environment is left as it is. Raises StackError.
        """
        target = self._stacks.parent / PROBE_PACKAGES / digest_of([python, version])[:12]
        self._install_probe_packages(python, target, f"{python}")
        return target

    def resolve(self, spec: StackSpec) -> str:
        """Return the lock of ``spec``: the newest releases that fit, or those of an earlier run.

        A lock is reused until the spec, ``exclude-newer`` or the platform changes, or the user asks
        for an upgrade. So the releases of a matrix do not change between two runs. With ``max_age``,
        in seconds, an older lock is reused only if nothing can be resolved.

        Raises:
            StackError: nothing fits.

        """
        return self._resolve_lock(spec, spec.id, requirements(spec))

    def lock_path(self, spec: StackSpec) -> Path:
        """Return the path of the lock of a stack with its own torch, whether or not there is one."""
        digest = self._resolution_digest(requirements(spec), spec, None)
        return self._locks / f"{spec.id}-{digest[:12]}.txt"

    def version(self, spec: StackSpec) -> str:
        """Return the release of transformers that ``spec`` resolves to.

        Raises:
            StackError: nothing fits.

        """
        return pinned_versions(self.resolve(spec))["transformers"]

    def below(self, spec: StackSpec, version: str, oldest: str) -> str:
        """Return the newest release of transformers below ``version``, from ``oldest`` on.

        uv's resolver chooses it. It uses the user's index and respects ``spec``'s torch and Python.

        Raises:
            StackError: nothing fits.

        """
        release_range = f"transformers>={oldest},<{version}"
        requirements_below = [*_torch(spec), release_range]
        return pinned_versions(self._resolve_lock(spec, f"below-{version}", requirements_below))[
            "transformers"
        ]

    def installed(self, spec: StackSpec, package: str) -> str | None:
        """Return the release of a package that ``spec`` resolves to; None if it does not have it.

        Raises:
            StackError: nothing fits.

        """
        version = pinned_versions(self.resolve(spec)).get(package)
        return None if version is None else Version(version).public

    def newest(self, spec: StackSpec, requirement: str) -> str | None:
        """Return the newest release of a package that fits the rest of ``spec``; None if none does.

        ``requirement`` may bound its releases, as ``tokenizers<0.22``.
        """
        package = canonicalize_name(Requirement(requirement).name)
        others = [
            line
            for line in requirements(spec)
            if canonicalize_name(Requirement(line).name) != package
        ]
        try:
            lock = self._resolve_lock(spec, f"newest-{package}", [*others, requirement])
        except StackError:
            return None
        return Version(pinned_versions(lock)[package]).public

    def _system_of(self, spec: StackSpec) -> SystemTorch | None:
        """Return the machine's torch if ``spec`` asks for it. Raises StackError if there is none."""
        if spec.torch != SYSTEM:
            return None
        if self._system is None:
            self._system = find_system_torch(self._environ, self._run)
        return self._system

    def _resolve_lock(self, spec: StackSpec, name: str, requirement_lines: list[str]) -> str:
        system = self._system_of(spec)
        digest = self._resolution_digest(requirement_lines, spec, system)
        path = self._locks / f"{name}-{digest[:12]}.txt"
        cached = None
        if not self._upgrade:
            self._dependencies.file(path)
            cached = _kept_lock(path)
            if cached is not None and not is_old(path, self._max_age):
                return cached
        command = [uv_program(), "pip", "compile", "-", "--quiet", "--no-header"]
        command += ["--no-annotate", "--python-version"]
        command += [spec.python if system is None else system.version]
        if self._exclude_newer:
            command += ["--exclude-newer", self._exclude_newer]
        error_prefix = f"stack {name}: no set of packages fits"
        try:
            lock = self._resolved(command, requirement_lines, error_prefix, system)
        except StackError:
            if cached is not None:  # an old lock, without a network
                return cached
            raise
        replace(path, seal.sealed_lines(lock))
        self._dependencies.file(path)
        return lock

    def _resolved(
        self,
        command: list[str],
        requirement_lines: list[str],
        error_prefix: str,
        system: SystemTorch | None,
    ) -> str:
        """Return a new lock; on a machine's torch, it has all that the machine has."""
        text = "\n".join(requirement_lines)
        if system is None:
            return self._uv(command, text, error_prefix)
        with tempfile.TemporaryDirectory(prefix="samebits-lock-") as folder:
            output = Path(folder) / "lock.txt"
            files = {
                "--override": (Path(folder) / "overrides.txt", system.overrides),
                "--constraint": (Path(folder) / "constraints.txt", system.constraints),
                "--output-file": (output, system.preferences),  # uv prefers the versions in it
            }
            for option, (path, content) in files.items():
                path.write_text(content, "utf-8")
                command = [*command, option, str(path)]
            self._uv(command, text, error_prefix)
            return system.merged(pinned_versions(output.read_text("utf-8")))

    def _resolution_digest(
        self, requirement_lines: list[str], spec: StackSpec, system: SystemTorch | None
    ) -> str:
        links = self._environ.get("UV_FIND_LINKS", "")
        python = spec.python if system is None else system.model_dump(mode="json")
        return digest_of([requirement_lines, python, self._exclude_newer, links, sys.platform])

    def _install(
        self, spec: StackSpec, lock: str, folder: Path, system: SystemTorch | None = None
    ) -> Stack:
        _remove_leftovers(folder.parent)
        temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:12]}.tmp")
        try:
            stack = self._build_environment(spec, lock, temporary, folder, system)
            return _move_into_place(temporary, folder, stack)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _build_environment(
        self,
        spec: StackSpec,
        lock: str,
        temporary: Path,
        folder: Path,
        system: SystemTorch | None,
    ) -> Stack:
        """Build the environment for ``folder`` in ``temporary`` and return its stack."""
        error_prefix = f"stack {spec.id}: could not be built"
        self._uv(
            [
                uv_program(),
                "venv",
                "--quiet",
                "--relocatable",
                "--python",
                spec.python if system is None else system.python,
                str(temporary),
            ],
            "",
            error_prefix,
        )
        python = _interpreter(temporary)
        lock_file = temporary / "requirements.txt"
        packages = pinned_versions(lock)
        lock_file.write_text(lock if system is None else system.on_top(packages), "utf-8")
        sync = [uv_program(), "pip", "sync", "--quiet", "--python", str(python), str(lock_file)]
        self._uv(sync, "", error_prefix)
        if system is not None:
            system.link(_site_packages(temporary))
        output = self._uv([str(python), str(ARCHITECTURES)], "", error_prefix)
        stack = Stack(
            id=spec.id,
            python=str(_interpreter(folder)),
            lock=lock,
            lock_digest=_lock_digest(lock, spec, system),
            packages=packages,
            architectures=_architectures(output, error_prefix),
            system=system,
        )
        (temporary / _STAMP).write_text(seal.sealed(stack.model_dump_json(indent=1)), "utf-8")
        return stack

    def _add_probe_packages(self, stack: Stack) -> None:
        """Install the packages of the probes in a stack's environment, unless it has them.

        ``exclude_newer`` does not apply: it dates what is observed, and every release of these
        packages gives the same results.
        """
        folder = Path(stack.python).parents[1]
        aside = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:12]}.tmp")
        target = folder / PROBE_PACKAGES
        self._install_probe_packages(stack.python, target, f"stack {stack.id}", aside)

    def _install_probe_packages(
        self, python: str, target: Path, subject: str, temporary: Path | None = None
    ) -> None:
        if _has_probe_packages(target):
            return
        temporary = temporary or target.with_name(f"{target.name}.{uuid.uuid4().hex[:12]}.tmp")
        temporary.parent.mkdir(parents=True, exist_ok=True)
        command = [uv_program(), "pip", "install", "--quiet", "--no-deps", "--python"]
        command += [python, "--target", str(temporary), *_PROBE_REQUIREMENTS]
        try:
            self._uv(command, "", f"{subject}: {_NO_BLAKE3}", _HOW_TO_GET_BLAKE3)
            if not _has_probe_packages(target):
                shutil.rmtree(target, ignore_errors=True)  # files are missing in it
            temporary.rename(target)
        except OSError:
            if not _has_probe_packages(target):  # another run has just installed them
                raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _uv(self, command: list[str], text: str, error_prefix: str, remedy: str = _NO_STACK) -> str:
        process = self._run(command, text, self._environ)
        if process.returncode == 0:
            return process.stdout
        output = without_colors(process.stderr or process.stdout)
        msg = f"{error_prefix}:\n{output}\n{remedy}"
        raise StackError(msg)


def _has_probe_packages(folder: Path) -> bool:
    """Return True if BLAKE3 is there: its Python module and the extension that it loads."""
    package = folder / "blake3"
    extensions = (*package.glob("blake3*.so"), *package.glob("blake3*.pyd"))
    return (package / "__init__.py").is_file() and bool(extensions)


def requirements(spec: StackSpec) -> list[str]:
    """Return the requirements of a stack.

    ``4.48`` and ``5.x`` are families of releases, ``4.48.0`` is one release.
    """
    return [
        *_torch(spec),
        f"transformers=={release_pattern(spec.transformers)}",
        *spec.packages,
    ]


def _torch(spec: StackSpec) -> list[str]:
    return [] if spec.torch == SYSTEM else [f"torch=={release_pattern(spec.torch)}"]


def _lock_digest(lock: str, spec: StackSpec, system: SystemTorch | None) -> str:
    python = spec.python if system is None else [SYSTEM, system.version, system.build]
    return digest_of([lock, python])


def release_pattern(version: str) -> str:
    """Return the version of a requirement: three numbers are exact, fewer are a family."""
    if version.endswith(".x"):
        return f"{version[:-2]}.*"
    return version if version.count(".") >= 2 else f"{version}.*"


def uv_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return uv's environment variables: with pip's find-links, without an active virtualenv."""
    env = {k: v for k, v in environ.items() if k not in {"VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME"}}
    if "PIP_FIND_LINKS" in env:
        # uv ignores pip's settings, and a CPU build of torch is often available only there
        env.setdefault("UV_FIND_LINKS", env["PIP_FIND_LINKS"])
    return env


def uv_program() -> str:
    """Return uv's program: that of the package uv, else the one on the PATH."""
    try:
        return find_uv_bin()
    except FileNotFoundError as error:
        if (program := shutil.which("uv")) is not None:
            return program
        msg = "uv, which makes the environments, is not installed: pip install uv"
        raise StackError(msg) from error


def _interpreter(folder: Path) -> Path:
    if os.name == "nt":
        return folder / "Scripts" / "python.exe"
    return folder / "bin" / "python"


def _site_packages(folder: Path) -> Path:
    if os.name == "nt":
        return folder / "Lib" / "site-packages"
    return next(folder.glob("lib/python3*/site-packages"))


def _read_stamp(path: Path, stack_id: str) -> Stack | None:
    """Return the stack that a stamp describes; None if there is no usable one."""
    stack = read_record(path, Stack)
    if stack is None or "transformers" not in stack.packages:
        return None
    return stack if stack.id == stack_id and Path(stack.python).exists() else None


def _move_into_place(temporary: Path, folder: Path, stack: Stack) -> Stack:
    try:
        temporary.rename(folder)
    except OSError:
        # another run has just built the same lock, or left an incomplete folder
        if (existing := _read_stamp(folder / _STAMP, stack.id)) is not None:
            shutil.rmtree(temporary, ignore_errors=True)
            return existing
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
    return stack


def _architectures(output: str, error_prefix: str) -> tuple[str, ...]:
    """Return the architectures in the last line of output; packages may print lines before it."""
    try:
        return tuple(map(str, json.loads(output.strip().splitlines()[-1])["architectures"]))
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        msg = (
            f"{error_prefix}: transformers did not list its architectures. "
            f"Its output was: {shown(output)}"
        )
        raise StackError(msg) from error


def _remove_leftovers(folder: Path) -> None:
    """Remove incomplete environments of killed runs."""
    cutoff = time.time() - _STALE_AFTER
    for path in folder.glob(f"*-*.{'[0-9a-f]' * 12}.tmp"):
        with contextlib.suppress(OSError):
            if path.stat().st_mtime < cutoff:
                shutil.rmtree(path, ignore_errors=True)


def is_old(lock: Path, max_age: float | None) -> bool:
    """Return True if a lock was written more than ``max_age`` seconds ago; None: never too old."""
    return max_age is not None and time.time() - lock.stat().st_mtime > max_age


def _kept_lock(path: Path) -> str | None:
    """Return the lock of an earlier run; None if there is none or it is damaged."""
    try:
        lock = seal.opened_lines(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return lock if {"torch", "transformers"} <= pinned_versions(lock).keys() else None


def is_plain_lock(text: str) -> bool:
    """Return True if a lock file is whole and pins versions of an index, and nothing else.

    A lock from another machine has to be: a line with an address would install what is there.
    """
    try:
        lines = seal.opened_lines(text).splitlines()
    except ValueError:
        return False
    return bool(lines) and all(_PLAIN_PIN.fullmatch(line) for line in lines if line.strip())


def pinned_versions(lock: str) -> dict[str, str]:
    """Return the pinned versions of a lock: name -> version."""
    return dict(_PIN.findall(lock))


def without_colors(text: str) -> str:
    """Return what a program printed without its codes for colors."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text).strip()


def probes_digest(folder: Path) -> str:
    """Return the digest of the probes' source; captures of different probes are not compared."""
    return digest_of(
        {p.relative_to(folder).as_posix(): digest_of_file(p) for p in sorted(folder.rglob("*.py"))}
    )
