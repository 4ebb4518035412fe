"""``torch: system``: the torch that a machine has, with transformers and its needs on top.

An image for GPUs brings a torch of its own, often of a version that no index has. A stack then has an
interpreter of its own as every stack has, and behind its own packages it sees the folders of the
interpreter that has torch. A package is installed on top only if transformers needs another version of
it than the machine has.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from samebits.base.digests import digest_of
from samebits.base.errors import StackError, StackMachineError
from samebits.base.homes import expanded
from samebits.records.record import Record
from samebits.stacks.probes import ENVIRONMENT

if TYPE_CHECKING:
    import subprocess

    Run = Callable[[list[str], str, Mapping[str, str]], "subprocess.CompletedProcess[str]"]

SYSTEM = "system"
"""What matrix.yaml has as ``torch`` for the torch that the machine has."""
VARIABLE = "SAMEBITS_TORCH_PYTHON"
"""Environment variable that names the interpreter with that torch."""
_PROGRAMS = ("python3", "python")
_PTH = "samebits-system.pth"
_NEVER = 'sys_platform == "never"'


class SystemTorch(Record):
    """An interpreter of the machine that has torch."""

    python: str
    """Path of the interpreter."""
    version: str
    """Version of Python."""
    packages: dict[str, str]
    """Everything that it has: normalized name -> version."""
    folders: tuple[str, ...]
    """Folders with these packages."""
    build: str
    """Digest of what torch says of its build: versions can be equal where builds are not."""

    @property
    def constraints(self) -> str:
        """What a resolution must keep: torch is compiled against this numpy."""
        return f"numpy=={self.packages['numpy']}\n" if "numpy" in self.packages else ""

    @property
    def overrides(self) -> str:
        """Requirements that a resolution ignores, as the machine has them and no index may."""
        names = {"torch", *(name for name, v in self.packages.items() if _is_own_build(v))}
        return ignoring(names)

    @property
    def preferences(self) -> str:
        """Versions that a resolution takes wherever they fit."""
        return _lines({n: v for n, v in self.packages.items() if not _is_own_build(v)})

    def merged(self, resolved: Mapping[str, str]) -> str:
        """Return the lock of a stack: what was resolved, and all else that the machine has."""
        return _lines(
            {**self.packages, **{str(canonicalize_name(n)): v for n, v in resolved.items()}}
        )

    def on_top(self, packages: Mapping[str, str]) -> str:
        """Return the lines of a lock to install: those that the machine has in no such version."""
        return _lines({n: v for n, v in packages.items() if self.packages.get(n) != v})

    def link(self, site_packages: Path) -> None:
        """Make an environment see the machine's packages behind its own."""
        # addsitedir also reads the .pth files of these folders, which editable packages need
        calls = "; ".join(f"site.addsitedir({folder!r})" for folder in self.folders)
        (site_packages / _PTH).write_text(f"import site; {calls}\n", "utf-8")


def ignoring(names: Iterable[str]) -> str:
    """Return the lines of overrides by which a resolution ignores packages."""
    return "".join(f"{name}; {_NEVER}\n" for name in sorted(names))


def find_system_torch(environ: Mapping[str, str], run: Run) -> SystemTorch:
    """Return the first interpreter that has torch: the one that is named, else of the PATH.

    Raises:
        StackMachineError: none has it.

    """
    attempts: list[str] = []
    for program in _programs(environ):
        try:
            return _read(program, environ, run)
        except (StackError, OSError) as error:
            attempts.append(f"{program}: {error}")
    tried = "".join(f"\n  {attempt}" for attempt in attempts) or "\n  no python3 on the PATH"
    raise StackMachineError(
        "torch: system, but no interpreter of this machine has torch. Usually samebits runs in an "
        f"environment that hides it: name the interpreter in {VARIABLE}, or write a version of torch "
        f"in matrix.yaml. Tried:{tried}"
    )


def _programs(environ: Mapping[str, str]) -> Iterator[str]:
    if named := environ.get(VARIABLE):
        yield str(
            expanded(named).absolute()
        )  # a link into another folder is what makes it an environment
        return
    programs: dict[str, None] = {}
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        for name in _PROGRAMS:
            if (program := shutil.which(name, path=folder)) is not None:
                programs[program] = None
    yield from programs


def _read(program: str, environ: Mapping[str, str], run: Run) -> SystemTorch:
    """Return what an interpreter has. Raises StackError if it does not run or has no torch."""
    process = run([program, "-I", str(ENVIRONMENT)], "", environ)
    try:
        facts = json.loads(process.stdout.strip().splitlines()[-1])
        packages = {str(canonicalize_name(p["name"])): str(p["version"]) for p in facts["packages"]}
        folders = tuple(map(str, facts["folders"]))
        build = digest_of(str(facts["torch_build"]))
    except (LookupError, TypeError, ValueError) as error:
        lines = (process.stderr or process.stdout).strip().splitlines()
        msg = f"it did not list its packages ({lines[-1] if lines else 'no output'})"
        raise StackError(msg) from error
    if "torch" not in packages:
        raise StackError("it has no torch")
    return SystemTorch(
        python=program, version=facts["python"], packages=packages, folders=folders, build=build
    )


def _lines(packages: Mapping[str, str]) -> str:
    return "".join(f"{name}=={version}\n" for name, version in sorted(packages.items()))


def _is_own_build(version: str) -> bool:
    """Return True for a version that an index usually lacks, such as 2.6.0a0+ecf3bae40a.nv25."""
    try:
        parsed = Version(version)
    except InvalidVersion:
        return True
    return parsed.local is not None or parsed.is_prerelease
