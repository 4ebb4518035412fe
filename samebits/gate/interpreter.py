"""The project's interpreter: which one it is, and which packages it has."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from pydantic import ValidationError

from samebits.base.checkpoint import is_checkpoint
from samebits.base.digests import digest_of
from samebits.base.errors import SamebitsError
from samebits.records.lock import SOURCE, Environment
from samebits.records.record import Record
from samebits.stacks.build import Stack
from samebits.stacks.probes import ENVIRONMENT

if TYPE_CHECKING:
    Run = Callable[[list[str]], "subprocess.CompletedProcess[str]"]

CURRENT = "current"
"""Id of the stack that is the project's own environment."""

ROOTS = ("transformers", "torch")
USED_IF_THERE = (
    "accelerate",
    "bitsandbytes",
    "causal-conv1d",
    "flash-attn",
    "flash-linear-attention",
    "kernels",
    "mamba-ssm",
    "peft",
    "pillow",
    "sentencepiece",
    "tiktoken",
    "timm",
    "torchaudio",
    "torchvision",
    "triton",
)
"""Packages that no model requires, and that transformers takes another way with."""


class InterpreterError(SamebitsError):
    """The project's interpreter does not run, or lacks torch or transformers."""


class Package(Record):
    """One installed package."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    origin: dict[str, Any] | None = None
    """Where it came from (PEP 610); None for an index."""
    modules: tuple[str, ...] = ()
    """Its top-level modules."""


class Installed(Record):
    """Everything that an interpreter has."""

    python: str
    markers: dict[str, str]
    packages: tuple[Package, ...]
    folders: tuple[str, ...] = ()
    """Where its packages lie."""
    torch_build: str = ""
    """What torch says of its build."""
    gpus: tuple[str, ...] = ()


def find_interpreter(
    named: Path | None,
    folder: Path,
    environ: Mapping[str, str],
    checkpoints: Iterable[Path] = (),
) -> Path:
    """Return the interpreter of the project in ``folder``.

    It is ``named``, else that of the active virtual environment, of ``.venv`` in the
    folder or above it, or the one that runs this program. ``checkpoints`` are the folders of models.

    Raises:
        InterpreterError: the interpreter that is named does not exist, or ``.venv`` lies in a checkpoint.

    """
    if named is not None:
        program = _program(named) if named.is_dir() else named
        if not program.exists():
            raise InterpreterError(
                f"--python {named}: there is no such interpreter: name a file such as .venv/bin/python, "
                "or the folder of a virtual environment"
            )
        return program.absolute()  # a link into another folder is what makes it an environment
    active = environ.get("VIRTUAL_ENV")
    if active and _program(Path(active)).exists():
        return _program(Path(active))
    parents = (folder.absolute(), *folder.absolute().parents)
    owner = next((parent for parent in parents if _program(parent / ".venv").exists()), None)
    if owner is None:
        return Path(sys.executable)
    _refuse_of_a_model(owner, {path.resolve() for path in checkpoints})
    return _program(owner / ".venv")


def _refuse_of_a_model(folder: Path, checkpoints: set[Path]) -> None:
    """Raise InterpreterError if a folder with ``.venv`` is a model's, or lies in one."""
    above = (folder.resolve(), *folder.resolve().parents)
    if not is_checkpoint(folder) and checkpoints.isdisjoint(above):
        return
    raise InterpreterError(
        f"{folder / '.venv'} lies in the folder of a model, so it may have come with the model, and it "
        f"was not run. If it is yours, name it: --python {folder / '.venv'}. Else activate your "
        "project's environment, or put samebits.lock into your project (--lock)"
    )


def _program(environment: Path) -> Path:
    return environment / "bin/python"


def read_interpreter(python: Path, run: Run | None = None) -> Installed:
    """Return what an interpreter has.

    Raises:
        InterpreterError: it does not run, or has no torch or transformers.

    """
    try:
        # isolated as a stack is: neither PYTHONPATH nor packages of the user's home
        process = (run or _run)([str(python), "-I", str(ENVIRONMENT)])
    except OSError as error:
        msg = f"{python} cannot be run: {error.strerror or error}. Name another one with --python"
        raise InterpreterError(msg) from error
    try:
        installed = Installed.model_validate_json(process.stdout.strip().splitlines()[-1])
    except (IndexError, ValidationError) as error:
        output = (process.stderr or process.stdout).strip()
        msg = f"{python} did not list its packages:\n{output}\nName another one with --python"
        raise InterpreterError(msg) from error
    names = {canonicalize_name(package.name) for package in installed.packages}
    if missing := [root for root in ROOTS if root not in names]:
        raise InterpreterError(
            f"{python} has no {' and no '.join(missing)}. Usually it is not the project's interpreter: "
            "name that one with --python, or activate its environment"
        )
    return installed


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", check=False
    )


def environment_of(installed: Installed, modules: Iterable[str] = ()) -> Environment:
    """Return the packages that a model's bits may depend on.

    ``modules`` are those that the model's own code imports.
    """
    by_name = _by_name(installed)
    roots = [*ROOTS, *USED_IF_THERE, *_with_modules(by_name, modules)]
    names = sorted(_closure(roots, by_name, installed.markers))
    origins = {name: by_name[name].origin for name in names}
    addresses = {n: _address(n, o) for n, o in origins.items() if o is not None and _is_public(o)}
    sources = {n: address for n, address in addresses.items() if re.fullmatch(SOURCE, address)}
    return Environment(
        python=installed.python,
        packages={str(name): by_name[name].version for name in names},
        sources=sources,
        local=tuple(n for n, origin in origins.items() if origin is not None and n not in sources),
    )


def imported_packages(installed: Installed, modules: Iterable[str]) -> list[str]:
    """Return the packages of an index that a model's own code imports, and that transformers does not bring."""
    by_name = _by_name(installed)
    brought = _closure(ROOTS, by_name, installed.markers)
    names = _with_modules(by_name, modules)
    return sorted(n for n in names if n not in brought and by_name[n].origin is None)


def _by_name(installed: Installed) -> dict[str, Package]:
    return {str(canonicalize_name(package.name)): package for package in installed.packages}


def _with_modules(by_name: Mapping[str, Package], modules: Iterable[str]) -> list[str]:
    """Return the packages that bring any of these modules."""
    imported = set(modules)
    return [name for name, package in by_name.items() if imported & set(package.modules)]


def _closure(
    roots: Iterable[str], by_name: Mapping[str, Package], markers: Mapping[str, str]
) -> set[str]:
    """Return the installed packages among the roots, and all that they require."""
    closure: set[str] = set()
    waiting = [(str(canonicalize_name(root)), frozenset[str]()) for root in roots]
    visited: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, extras = waiting.pop()
        if name not in by_name or (name, extras) in visited:
            continue
        visited.add((name, extras))
        closure.add(name)
        waiting += _required(by_name[name], extras, markers)
    return closure


def _required(
    package: Package, extras: frozenset[str], markers: Mapping[str, str]
) -> Iterator[tuple[str, frozenset[str]]]:
    for text in package.requires:
        try:
            requirement = Requirement(text)
            applies = requirement.marker is None or any(
                requirement.marker.evaluate({**markers, "extra": extra}) for extra in ("", *extras)
            )
        except (InvalidRequirement, UndefinedEnvironmentName):
            continue  # of a package that pip itself would refuse today
        if applies:
            yield str(canonicalize_name(requirement.name)), frozenset(requirement.extras)


def _is_public(origin: Mapping[str, Any]) -> bool:
    """Return True if a package came from an address that other machines reach, at one commit."""
    url = str(origin.get("url", ""))
    has_content = "archive_info" in origin or bool(_commit(origin))
    user = url.partition("://")[2].partition("/")[0].rpartition("@")[0]
    return has_content and not url.startswith("file:") and user in ("", "git")  # else a secret


def _commit(origin: Mapping[str, Any]) -> str:
    info = origin.get("vcs_info")
    return str(info.get("commit_id", "")) if isinstance(info, dict) else ""


def _address(name: str, origin: Mapping[str, Any]) -> str:
    commit, url = _commit(origin), str(origin["url"])
    part = f"#subdirectory={origin['subdirectory']}" if origin.get("subdirectory") else ""
    if not commit:
        return f"{name} @ {url}{part}"
    return f"{name} @ {origin['vcs_info']['vcs']}+{url}@{commit}{part}"


_LABEL = re.compile(r"\+[A-Za-z0-9.]+$")


def pins(environment: Environment, *, labels: bool = True) -> str:
    """Return the requirements of exactly this environment, one per line.

    Without ``labels``, any build of a version does: 2.13.0 in place of 2.13.0+cu130.
    """
    lines = [
        environment.sources.get(name) or f"{name}=={version if labels else _LABEL.sub('', version)}"
        for name, version in environment.packages.items()
    ]
    return "\n".join(lines) + "\n"


def has_labels(environment: Environment) -> bool:
    """Return True if a version names a build, as in 2.13.0+cu130."""
    return any(_LABEL.search(version) for version in environment.packages.values())


def stack_of(python: Path, environment: Environment) -> Stack:
    """Return an environment of the user's as a stack, which nobody built."""
    lock = pins(environment)
    return Stack(
        id=CURRENT,
        python=str(python),
        lock=lock,
        lock_digest=digest_of([lock, environment.python, str(python)]),
        packages=environment.packages,
        architectures=(),
    )


def machine_of(facts: Mapping[str, Any], installed: Installed) -> dict[str, Any]:
    """Return the part of a machine's facts that a lock holds."""
    names = ("platform", "cpu", "cpu_capability")
    return {name: str(facts.get(name, "")) for name in names} | {"gpus": installed.gpus}
