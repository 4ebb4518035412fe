"""Packages of a model, beside those of a stack: resolved and installed in a folder of their own.

The folder comes last on Python's path, and holds only what the stack does not have. uv resolves it
with every version of the stack's lock as a constraint. So a package never moves transformers, torch
or anything else of the stack, and models without packages run in the environment as it was.
"""

from __future__ import annotations

import re
import shutil
import sys
import uuid
from typing import TYPE_CHECKING, Literal, NamedTuple

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from pydantic import Field

from samebits.base import seal
from samebits.base.atomic import replace
from samebits.base.digests import digest_of, digest_of_file
from samebits.base.errors import SamebitsError
from samebits.base.filestate import Dependencies
from samebits.base.redaction import without_folders
from samebits.matrix.values import is_path_of_package
from samebits.records.record import Record, read_record
from samebits.stacks.build import (
    Commands,
    Run,
    Stack,
    is_old,
    pinned_versions,
    uv_environment,
    uv_program,
    without_colors,
)

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_STAMP = "samebits-packages.json"
_FOLDER = "site-packages"
"""Name of the folder on the path; paths of source files are shown from it on."""
_IGNORED = frozenset(
    {"__pycache__", "build", "dist", "node_modules", "reports", "venv"},
)
"""Folders of a package's source that are no part of it; as are those that begin with a dot."""
_IGNORED_ENDINGS = (".egg-info", ".pyc")
_MAX_SENTENCES = 4
_REMEDY = (
    "Write versions that both accept as packages: of the stack, such as stacks: [{transformers: "
    '"4.48", packages: ["numpy<2"]}]; this changes the stack for all models.'
)
_CONTRADICTION = ("no solution found", "unsatisfiable")
_NO_PACKAGES = (
    "Usually a name is misspelt, the package index cannot be reached, or the package cannot be built "
    "here. Change packages: in matrix.yaml (of samebits check: --package), or check the network and "
    "run again."
)


class PackagesError(SamebitsError):
    """Packages of a model could not be installed beside a stack."""

    exit_code = 1

    def __init__(self, message: str, *, contradicts: bool) -> None:
        super().__init__(message)
        self.contradicts = contradicts
        """True if their requirements and the stack's exclude each other, which is a result."""


class Added(Record):
    """Installed packages, stored beside their folder as ``samebits-packages.json``."""

    format: Literal["samebits-packages"] = "samebits-packages"
    format_version: Literal[1] = 1
    lock: str
    """What was added: ``name==version`` or ``name @ …`` per line, with the hash of local ones."""
    packages: dict[str, str]
    """Name -> version."""
    local: tuple[str, ...] = ()
    """Names of those that come from this machine, which nobody else can install."""


class ExtendedStack(Stack):
    """A stack with the packages of a model; its lock and packages are those of both together."""

    folder: str
    """Folder with the packages, for the end of the path."""
    added: Added
    wheels: dict[str, str] = Field(default_factory=dict)
    """Name -> path of the wheel of a package of this machine."""


class _Local(NamedTuple):
    """A package from a folder or a file of this machine."""

    wheel: Path
    name: str
    version: str
    digest: str
    """Digest of its source."""


class PackageBuilder:
    """Resolves and installs packages of models; locks and folders lie in ``root``."""

    def __init__(
        self,
        root: Path,
        matrix_folder: Path,
        environ: Mapping[str, str],
        *,
        exclude_newer: str | None = None,
        upgrade: bool = False,
        max_age: float | None = None,
        run: Run | None = None,
        dependencies: Dependencies | None = None,
    ) -> None:
        self._root = root / "packages"
        self._matrix_folder = matrix_folder
        self._environ = uv_environment(environ)
        self._exclude_newer = exclude_newer
        self._upgrade = upgrade
        self._max_age = max_age
        self._commands = Commands()
        self._run = run or self._commands
        self._dependencies = dependencies or Dependencies()

    def end(self) -> None:
        """Stop all installations."""
        self._commands.end()

    def extend(self, stack: Stack, python: str, packages: Sequence[str]) -> ExtendedStack:
        """Return the stack with packages that matrix.yaml lists; ``python`` is its version.

        Raises:
            PackagesError: they contradict the stack, or could not be installed.

        """
        local = [self._local(stack, package) for package in packages if is_path_of_package(package)]
        indexed = [package for package in packages if not is_path_of_package(package)]
        lines = self._resolve(stack, python, indexed, local)
        added = _added(lines, local)
        key = digest_of([stack.lock_digest, added.lock])
        folder = self._root / f"{stack.id}-{key[:12]}"
        if read_record(folder / _STAMP, Added) != added:
            self._install(stack, lines, added, folder)
        self._dependencies.file(folder / _STAMP)
        fields = {name: getattr(stack, name) for name in Stack.model_fields}
        fields |= {
            "lock": f"{stack.lock.rstrip()}\n# packages of the model\n{added.lock}",
            "lock_digest": key,
            "packages": stack.packages | added.packages,
        }
        wheels = {package.name: str(package.wheel) for package in local}
        return ExtendedStack(**fields, folder=str(folder / _FOLDER), added=added, wheels=wheels)

    def _resolve(
        self, stack: Stack, python: str, indexed: list[str], local: list[_Local]
    ) -> list[str]:
        """Return the lines of everything to install, without what the stack has."""
        question = [indexed, [[p.name, p.digest] for p in local], stack.lock_digest, python]
        links = self._environ.get("UV_FIND_LINKS", "")
        digest = digest_of([*question, self._exclude_newer, links, sys.platform])
        path = self._root / "locks" / f"{stack.id}-{digest[:12]}.txt"
        cached = None if self._upgrade else _kept_lines(path)
        self._dependencies.file(path)
        if cached is None or is_old(path, self._max_age):
            cached = self._new_lines(stack, python, indexed, local, cached)
            replace(path, seal.sealed_lines("".join(f"{line}\n" for line in cached)))
            self._dependencies.file(path)
        # a wheel's path may be another one today, and a line of a lock is not installed twice
        paths = {p.name: f"{p.name} @ {p.wheel.resolve().as_uri()}" for p in local}
        return [paths.get(_name(line), line) for line in cached]

    def _new_lines(
        self,
        stack: Stack,
        python: str,
        indexed: list[str],
        local: list[_Local],
        cached: list[str] | None,
    ) -> list[str]:
        constraints = self._root / "locks" / f"{stack.id}-{stack.lock_digest[:12]}.constraints"
        replace(constraints, "".join(f"{n}=={v}\n" for n, v in sorted(stack.packages.items())))
        command = [uv_program(), "pip", "compile", "-", "--quiet", "--no-header", "--no-annotate"]
        if stack.system is not None:
            overrides = constraints.with_suffix(".overrides")
            replace(overrides, stack.system.overrides)
            python, command = stack.system.version, [*command, "--override", str(overrides)]
        command += ["--python-version", python, "--constraints", str(constraints)]
        if self._exclude_newer:
            command += ["--exclude-newer", self._exclude_newer]
        wheels = [f"{p.name} @ {p.wheel.resolve().as_uri()}" for p in local]
        try:
            output = self._uv(command, "\n".join([*indexed, *wheels]), stack)
        except PackagesError as error:
            if cached is None or error.contradicts:
                raise
            return cached  # an old lock, without a network
        lines = [line.strip() for line in output.splitlines()]
        return [
            line for line in lines if line and line[0] != "#" and _name(line) not in stack.packages
        ]

    def _local(self, stack: Stack, package: str) -> _Local:
        """Return a package of this machine, as a wheel that is built from it once per content."""
        source = (self._matrix_folder / package).resolve()
        digest = self._digest(source)
        folder = (
            self._root / "wheels" / f"{source.name}-{digest_of([digest, stack.lock_digest])[:12]}"
        )
        wheel = next(folder.glob("*.whl"), None)
        if wheel is None:
            wheel = self._built_wheel(stack, source, folder)
        name, version = _name_and_version(wheel)
        return _Local(wheel, name, version, digest)

    def _built_wheel(self, stack: Stack, source: Path, folder: Path) -> Path:
        temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:12]}.tmp")
        temporary.mkdir(parents=True)
        try:
            if source.suffix == ".whl":
                shutil.copy2(source, temporary / source.name)
            else:
                command = [uv_program(), "build", "--quiet", "--wheel", "--python", stack.python]
                self._uv([*command, "--out-dir", str(temporary), str(source)], "", stack)
            _move(temporary, folder, lambda: any(folder.glob("*.whl")))
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        wheel = next(folder.glob("*.whl"), None)
        if wheel is None:
            msg = f"{source.name}: its build made no wheel. {_NO_PACKAGES}"
            raise PackagesError(msg, contradicts=False)
        return wheel

    def _digest(self, source: Path) -> str:
        """Return the digest of a package's source, which the run depends on from now on."""
        self._dependencies.file(source)
        if source.is_file():
            return digest_of([source.name, digest_of_file(source)])
        digests = {}
        for path in _source_files(source):
            self._dependencies.file(path)
            if path.is_file():
                digests[path.relative_to(source).as_posix()] = digest_of_file(path)
        return digest_of(digests)

    def _install(self, stack: Stack, lines: list[str], added: Added, folder: Path) -> None:
        temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:12]}.tmp")
        target = temporary / _FOLDER
        target.mkdir(parents=True)
        try:
            if lines:
                command = [uv_program(), "pip", "install", "--quiet", "--no-deps", "--python"]
                command += [stack.python, "--target", str(target), "--requirements", "-"]
                self._uv(command, "\n".join(lines), stack)
            (temporary / _STAMP).write_text(seal.sealed(added.model_dump_json(indent=1)), "utf-8")
            _move(temporary, folder, lambda: read_record(folder / _STAMP, Added) == added)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def _uv(self, command: list[str], text: str, stack: Stack) -> str:
        process = self._run(command, text, self._environ)
        if process.returncode == 0:
            return process.stdout
        raise _error(process, stack)


def _error(process: subprocess.CompletedProcess[str], stack: Stack) -> PackagesError:
    output = without_folders(without_colors(process.stderr or process.stdout))
    beside = f"transformers {stack.transformers} and the other packages of stack {stack.id}"
    if not any(words in output.casefold() for words in _CONTRADICTION):
        msg = f"the model's packages could not be installed beside {beside}:\n{output}\n{_NO_PACKAGES}"
        return PackagesError(msg, contradicts=False)
    reason = _sentence(output)
    return PackagesError(
        f"its packages cannot be installed beside {beside}: {reason} {_REMEDY}", contradicts=True
    )


def _sentence(output: str) -> str:
    """Return the end of uv's explanation of a contradiction as one line, without its drawing.

    It goes through the versions of a package from old to new, so its end is about the newest.
    """
    text = " ".join(re.sub(r"[^\x00-\x7f]+", " ", output).split())
    start = re.search(r"\bBecause\b", text)
    sentences = (text[start.start() :] if start else text).split(". ")
    return ". ".join(sentences[-_MAX_SENTENCES:]).removeprefix("And because ")


def _added(lines: list[str], local: list[_Local]) -> Added:
    by_name = {package.name: package for package in local}
    listed, versions = [], {}
    for line in lines:
        name = _name(line)
        package = by_name.get(name)
        if package is None:
            listed.append(line)
            versions[name] = pinned_versions(line).get(name) or line.partition("@")[2].strip()
        else:
            listed.append(f"{name}=={package.version}  # of this machine, {package.digest}")
            versions[name] = package.version
    text = "".join(f"{line}\n" for line in listed)
    return Added(
        lock=text, packages=versions, local=tuple(sorted(by_name.keys() & versions.keys()))
    )


def _name(line: str) -> str:
    """Return the name of the package in a line of a lock, as uv writes names."""
    match = re.match(r"[A-Za-z0-9._-]+", line)
    return re.sub(r"[-_.]+", "-", match.group()).lower() if match else ""


def _name_and_version(wheel: Path) -> tuple[str, str]:
    try:
        name, version, _, _ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        msg = f"{wheel.name} is not the name of a wheel, which is NAME-VERSION-py3-none-any.whl: {error}"
        raise PackagesError(msg, contradicts=False) from error
    return str(name), str(version)


def _kept_lines(path: Path) -> list[str] | None:
    """Return the lines of an earlier resolution; None if there is none or it is damaged."""
    try:
        return seal.opened_lines(path.read_text("utf-8")).splitlines()
    except (OSError, ValueError):
        return None


def _source_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a package's source and the folders that hold them, in order."""
    for path in sorted(folder.iterdir()):
        is_ignored = path.name in _IGNORED or path.name.startswith(".")
        if is_ignored or path.name.endswith(_IGNORED_ENDINGS):
            continue
        yield path
        if path.is_dir():
            yield from _source_files(path)


def _move(temporary: Path, folder: Path, is_whole: Callable[[], bool]) -> None:
    """Rename a finished folder, unless another run has just made the same one."""
    try:
        temporary.rename(folder)
    except OSError:
        if is_whole():
            return
        shutil.rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
