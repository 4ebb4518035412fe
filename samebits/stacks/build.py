"""Builder of stacks: uv resolves a stack to a lock and builds an environment from it.

A lock has the hash of every wheel. An environment is named after its lock and never changed
afterwards, so concurrent runs, or a run during an upgrade, cannot disturb each other. One that is not
as it was installed is left as it is, and built again under another name. Packages are hard links into
uv's cache.

The packages of the probes, which is BLAKE3, are in a folder of their own in the environment. They are
no part of the lock, and nothing that the stack resolves or imports can depend on them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import Field

from samebits.base.digests import digest_of, digest_of_file
from samebits.base.errors import SamebitsError, StackError, StackMachineError, shown
from samebits.base.filestate import is_older
from samebits.matrix import known
from samebits.matrix.spec import StackSpec
from samebits.matrix.values import id_of_release, is_source, split_source
from samebits.records.record import Record, read_record
from samebits.stacks import contents, package_source, uv
from samebits.stacks import source as sources
from samebits.stacks.installer import Failure, Installer, filled, kept_lock
from samebits.stacks.lock import FORM, is_lock, lines_of, pinned_versions, pins_only, without
from samebits.stacks.probes import ARCHITECTURES
from samebits.stacks.system import SYSTEM, SystemTorch, find_system_torch
from samebits_wire import seal
from samebits_wire.atomic import replace
from samebits_wire.places import PROBE_PACKAGES, STAMP

_PROBE_REQUIREMENTS = ("blake3>=0.3.3,<2",)
"""Any release does, as all compute the same hash. The bound is low for old Pythons, and for users
whose settings of uv exclude new packages."""
_NOT_RESOLVED = "its packages could not be resolved"
_NO_STACK = (
    "Usually the release does not exist, or its requirements contradict each other. Change the environment "
    "in matrix.yaml (of samebits check: --from or --to)."
)
_MACHINE = (
    "Usually the network, the package index, the disk or memory is the reason: run the same command "
    "again when it is mended."
)
_OTHER_FILES = (
    "The index has other files of this version than when the lock was made. If that is right, "
    "--upgrade makes a new lock."
)
_DAMAGED = (
    "the environment {id} was damaged and is built again: {}. Results that were computed in "
    "it are not used"
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
    format_version: Literal[3] = 3
    id: str
    python: str
    """Path of the interpreter."""
    lock: str
    """The whole resolution, one ``name==version`` per line, with hashes and where it comes from."""
    lock_digest: str
    """Digest of the lock, and of how often its environment was found to be damaged."""
    packages: dict[str, str]
    architectures: tuple[str, ...] = Field(repr=False)
    """Every model_type that its transformers release knows."""
    system: SystemTorch | None = Field(default=None, repr=False)
    """The interpreter whose torch it uses; None if it has its own."""
    source: str | None = Field(default=None, repr=False, exclude=True)
    """Folder with the transformers that stands for the environment's own; not kept with the environment."""
    base: str | None = Field(default=None, repr=False, exclude=True)
    """The environment's own release of transformers, if another one stands for it."""
    commit: str | None = Field(default=None, repr=False, exclude=True)
    """Folder with one commit of a user's package, which comes before the environment's own packages."""

    @property
    def transformers(self) -> str:
        """The release of transformers that it resolved to."""
        return self.packages["transformers"]

    @property
    def installed(self) -> dict[str, str]:
        """Its packages as they are installed: with its own transformers, if another one stands for it."""
        return self.packages | ({"transformers": self.base} if self.base else {})


class StackBuilder:
    """Resolves and builds stacks; locks lie in ``root``, environments in ``stacks``."""

    def __init__(self, root: Path, installer: Installer, *, stacks: Path | None = None) -> None:
        self._installer = installer
        self._locks = root.absolute() / "locks"
        self._stacks = (stacks or root / "stacks").absolute()
        self._system: SystemTorch | None = None
        self._base_lock = threading.Lock()
        """Several sources run in one environment, which is built once."""

    def end(self) -> None:
        """Stop all builds."""
        self._installer.end()

    def build(self, spec: StackSpec) -> Stack:
        """Return the stack with its environment in place, resolved now or in an earlier run.

        Raises:
            StackError: nothing fits the spec, or the installation failed.

        """
        if spec.commit:
            return self._with_commit(spec)
        if is_source(spec.transformers):
            return self._with_source(spec)
        lock, system = self.resolve(spec), self._system_of(spec)
        digest = _lock_digest(lock, spec, system)
        if system is not None:
            digest = digest_of([digest, system.python, *system.folders])  # they can move
            self._installer.dependencies.mark_unrepeatable(
                "torch is the machine's, which may change it"
            )
        stack = self._environment(spec, lock, digest, system)
        self._add_probe_packages(stack)
        self._installer.dependencies.file(Path(stack.python))
        return stack

    def _with_source(self, spec: StackSpec) -> Stack:
        """Return the environment of a release, in which the transformers of a source comes first."""
        source = sources.read(spec.transformers)
        stack = self._below(spec, source)
        if not split_source(spec.transformers)[1]:
            self._installer.dependencies.mark_unrepeatable("a source of transformers can change")
        folder = sources.copied(
            source, self._stacks.parent, self._installer, transformers_folder(stack)
        )
        pin = f"transformers=={source.version}  # from {source.digest}, on {stack.transformers}\n"
        return stack.model_copy(
            update={
                "id": spec.id,
                "source": str(folder),
                "base": stack.transformers,
                "packages": stack.packages | {"transformers": source.version},
                "lock": f"{without(stack.lock, ['transformers']).rstrip()}\n{pin}",
                "lock_digest": digest_of([stack.lock_digest, source.digest]),
                "architectures": self._known_to(folder, stack, spec.id),
            }
        )

    def _with_commit(self, spec: StackSpec) -> Stack:
        """Return the environment of a release, before whose packages a commit of a user's package comes."""
        source = package_source.source(spec.commit)
        with self._base_lock:
            stack = self.build(_without_commit(spec))
        folder = sources.copied(source, self._stacks.parent, self._installer)
        digest = digest_of([stack.lock_digest, source.name, source.release, source.digest])
        return stack.model_copy(
            update={"id": spec.id, "commit": str(folder), "lock_digest": digest}
        )

    def _below(self, spec: StackSpec, source: sources.Source) -> Stack:
        """Return the environment in which a source runs: that of the release before it, or of the one behind.

        Raises:
            StackError: both lack something that it needs.

        """
        lacks: list[str] = []
        for release in (spec.base,) if spec.base else (source.base, source.next):
            with self._base_lock:
                base = (
                    self.build(_on(spec, release))
                    if not lacks or self._exists(spec, release)
                    else None
                )
            if base is None:
                continue
            if not (unmet := source.unmet(base.packages, spec.python)):
                return base
            lacks.append(f"that of {base.transformers} lacks {', '.join(unmet)}")
        raise StackError(
            f"environment {spec.id}: no environment of a release has what transformers {source.version} needs: "
            f"{'; '.join(lacks)}. Name a release that has it: {{transformers: …, base: RELEASE}}"
        )

    def _exists(self, spec: StackSpec, release: str) -> bool:
        return bool(known.of_family(release)) or self.newest_release(spec, release) is not None

    def _known_to(self, folder: Path, stack: Stack, id: str) -> tuple[str, ...]:
        """Return the architectures that the transformers in a folder knows."""
        command = [stack.python, str(ARCHITECTURES), str(folder)]
        output = self._installer.call(command, "", _failure(f"environment {id}"))
        return _architectures(output, f"environment {id}")

    def rebuild(self, stack_id: str, lock: str, python: str) -> Stack:
        """Return the stack of exactly these packages, built now or in an earlier run.

        ``lock`` has a requirement per line, of one version each. Nothing is resolved.

        Raises:
            StackError: one of them cannot be installed.

        """
        spec = StackSpec.model_construct(id=stack_id, transformers="", python=python)
        lock = self._pinned_lock(spec, lock)
        stack = self._environment(spec, lock, digest_of([lock, python]), None)
        self._add_probe_packages(stack)
        return stack

    def _pinned_lock(self, spec: StackSpec, pins: str) -> str:
        """Return the lines of exactly these packages with hashes, which are kept as a lock is."""
        digest = digest_of([pins, spec.python, self._installer.links, FORM])
        path = self._locks / f"{spec.id}-{digest[:12]}.txt"
        if (lock := kept_lock(path, is_lock)) is not None:
            return lock
        failure = _failure(f"environment {spec.id}: {_NOT_RESOLVED}")
        lock = self._installer.hashed(pins, spec.python, failure, deps=False, dated=False)
        replace(path, seal.sealed_lines(lock))
        return lock

    def _environment(
        self, spec: StackSpec, lock: str, digest: str, system: SystemTorch | None
    ) -> Stack:
        """Return the stack of a lock in an environment that is as it was installed."""
        folder, own = self._installer.folder(
            self._stacks, spec.id, digest, _DAMAGED.replace("{id}", spec.id)
        )
        lock_digest = _lock_digest(lock, spec, system)
        if own != digest:
            lock_digest = digest_of([lock_digest, own])

        def make(temporary: Path) -> Stack:
            _remove_leftovers(folder.parent)
            stack = self._build_environment(spec, lock, temporary, folder, system)
            return stack.model_copy(update={"lock_digest": lock_digest})

        return self._installer.kept(folder, STAMP, partial(_read_stamp, stack_id=spec.id), make)

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
        spec = release_of(spec)
        return self._resolve_lock(spec, spec.id, requirements(spec))

    def lock_path(self, spec: StackSpec) -> Path:
        """Return the path of the lock of a stack with its own torch, whether or not there is one."""
        spec = release_of(spec)
        digest = self._resolution_digest(requirements(spec), spec, None)
        return self._locks / f"{spec.id}-{digest[:12]}.txt"

    def version(self, spec: StackSpec) -> str:
        """Return the release of transformers that ``spec`` resolves to.

        Raises:
            StackError: nothing fits.

        """
        if is_source(spec.transformers):
            return sources.read(spec.transformers).version
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

    def newest_release(self, spec: StackSpec, family: str) -> str | None:
        """Return the newest release of transformers that the index has of a family; None for none.

        An empty ``family`` is all releases. Without an answer of the index the result is None, too.
        """
        if is_source(family):
            return sources.read(family).version
        pattern = f"=={release_pattern(family)}" if family else ""
        failure = _failure(f"environment {spec.id}")
        try:
            lock = self._installer.newest(f"transformers{pattern}", spec.python, failure)
        except StackError:
            return None
        return pinned_versions(lock).get("transformers")

    def may_know(self, spec: StackSpec, name: str) -> bool:
        """Return False if a stack's release surely has no model_type and no class of this name.

        The stack is built for the answer, as its run would; if that fails, the answer is True.
        """
        try:
            stack = self.build(spec)
        except StackError:
            return True
        return name in stack.architectures or _has_class(stack, name)

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
        spec, package = release_of(spec), canonicalize_name(Requirement(requirement).name)
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
            self._system = find_system_torch(self._installer.environ, self._installer.run)
        return self._system

    def _resolve_lock(self, spec: StackSpec, name: str, requirement_lines: list[str]) -> str:
        system = self._system_of(spec)
        digest = self._resolution_digest(requirement_lines, spec, system)
        return self._installer.lock(
            self._locks / f"{name}-{digest[:12]}.txt",
            _is_stack_lock,
            partial(self._resolved, spec, name, "\n".join(requirement_lines), system),
            serves=lambda error: isinstance(error, StackError),
        )

    def _resolved(
        self, spec: StackSpec, name: str, requirement_lines: str, system: SystemTorch | None
    ) -> str:
        """Return a new lock; on a machine's torch, it has all that the machine has."""
        failure = _failure(f"environment {name}: {_NOT_RESOLVED}")
        if system is None:
            return self._installer.hashed(requirement_lines, spec.python, failure)
        versions = self._installer.resolve(
            requirement_lines,
            system.version,
            failure,
            overrides=system.overrides,
            constraints=system.constraints,
            preferred=system.preferences,
        )
        merged = system.merged(pinned_versions(versions))
        on_top = system.on_top(pinned_versions(merged))
        return self._installer.with_hashes(merged, on_top, system.version, failure)

    def _resolution_digest(
        self, requirement_lines: list[str], spec: StackSpec, system: SystemTorch | None
    ) -> str:
        python = spec.python if system is None else system.model_dump(mode="json")
        question = [requirement_lines, python, self._installer.exclude_newer]
        return digest_of([*question, self._installer.links, sys.platform, FORM])

    def _build_environment(
        self,
        spec: StackSpec,
        lock: str,
        temporary: Path,
        folder: Path,
        system: SystemTorch | None,
    ) -> Stack:
        """Build the environment for ``folder`` in ``temporary`` and return its stack."""
        error_prefix = f"environment {spec.id}: could not be built"
        failure = _failure(error_prefix)
        base = spec.python if system is None else system.python
        venv = ("venv", "--quiet", "--relocatable", "--python", base, str(temporary))
        self._installer.uv(*venv, failure=failure)
        python = str(interpreter_of(temporary))
        lock_file = temporary / "requirements.txt"
        packages = pinned_versions(lock)
        on_top = lock if system is None else lines_of(lock, system.on_top(packages))
        lock_file.write_text(on_top, "utf-8")
        sync = ["pip", "sync", "--quiet", "--python", python, str(lock_file)]
        files = self._installer.install(sync, temporary, failure)
        if system is not None:
            system.link(_site_packages(temporary))
        output = self._installer.call([python, str(ARCHITECTURES)], "", failure)
        stack = Stack(
            id=spec.id,
            python=str(interpreter_of(folder)),
            lock=lock,
            lock_digest="",
            packages=packages,
            architectures=_architectures(output, error_prefix),
            system=system,
        )
        contents.write(temporary, contents.listed(temporary, files))
        contents.record_bytecode(temporary)
        return stack

    def _add_probe_packages(self, stack: Stack) -> None:
        """Install the packages of the probes in a stack's environment, unless it has them.

        ``exclude_newer`` does not apply: it dates what is observed, and every release of these
        packages gives the same results.
        """
        folder = environment_folder(stack)
        self._install_probe_packages(
            stack.python, folder / PROBE_PACKAGES, f"environment {stack.id}", aside=folder
        )

    def _install_probe_packages(
        self, python: str, target: Path, subject: str, aside: Path | None = None
    ) -> None:
        if self._installer.damage(target) is None:
            return
        failure = _failure(f"{subject}: {_NO_BLAKE3}", _HOW_TO_GET_BLAKE3)
        with filled(target, lambda: contents.damage(target) is None, aside) as temporary:
            lines = _PROBE_REQUIREMENTS
            files = self._installer.install_into(temporary, python, lines, failure, own=False)
            contents.write(temporary, files)


def _failure(error_prefix: str, remedy: str = _NO_STACK) -> Failure:
    """Return what makes the error of a call of uv."""

    def failure(process: subprocess.CompletedProcess[str]) -> SamebitsError:
        output = uv.last_words(process)
        if uv.is_about_packages(output):
            return StackError(f"{error_prefix}: no set of packages fits:\n{output}\n{remedy}")
        advice = _MACHINE if remedy is _NO_STACK else remedy
        if uv.is_about_hashes(output):
            advice = _OTHER_FILES
        # the advice first, as a screen cuts what uv says of each cause
        return StackMachineError(f"{error_prefix}. {advice}\n{output}")

    return failure


def requirements(spec: StackSpec) -> list[str]:
    """Return the requirements of a stack.

    ``4.48`` and ``5.x`` are families of releases, ``4.48.0`` is one release.
    """
    return [
        *_torch(spec),
        f"transformers=={release_pattern(spec.transformers)}",
        *spec.packages,
    ]


def release_of(spec: StackSpec) -> StackSpec:
    """Return the stack of the release in whose environment a source runs; any other one as it is.

    Raises:
        StackError: there is no such source.

    """
    if spec.commit:
        spec = _without_commit(spec)
    if not is_source(spec.transformers):
        return spec
    return _on(spec, spec.base or sources.read(spec.transformers).base)


def _on(spec: StackSpec, release: str) -> StackSpec:
    return spec.model_copy(update={"id": release, "transformers": release, "base": None})


def _without_commit(spec: StackSpec) -> StackSpec:
    update = {"id": id_of_release(spec.transformers), "commit": ""}
    return spec.model_copy(update=update)


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


def environment_folder(stack: Stack) -> Path:
    """Return the folder of a stack's environment."""
    return Path(stack.python).parent.parent


def transformers_folder(stack: Stack) -> Path:
    """Return the folder of the transformers that a stack runs."""
    if stack.source is not None:
        return Path(stack.source) / "transformers"
    return _site_packages(environment_folder(stack)) / "transformers"


def own_folder(stack: Stack) -> Path:
    """Return the folder of a stack's environment, or copy of sources, for files whose name starts with ``samebits-``."""
    return Path(stack.source).parent if stack.source is not None else environment_folder(stack)


def interpreter_of(folder: Path) -> Path:
    """Return the interpreter of the environment in a folder."""
    return folder / "bin" / "python"


def _site_packages(folder: Path) -> Path:
    return next(folder.glob("lib/python3*/site-packages"))


def _has_class(stack: Stack, name: str) -> bool:
    """Return True if a modeling file of a stack's release binds a name, or there is no such file."""
    models = transformers_folder(stack) / "models"
    files = [*models.glob("*/modeling_*.py")]
    binds = re.compile(rf"^(class {re.escape(name)}\b|{re.escape(name)}\s*=)", re.MULTILINE)
    return not files or any(binds.search(file.read_text("utf-8")) for file in files)


def _read_stamp(path: Path, stack_id: str) -> Stack | None:
    """Return the stack that a stamp describes; None if there is no usable one."""
    stack = read_record(path, Stack)
    if stack is None or "transformers" not in stack.packages or stack.id != stack_id:
        return None
    python = interpreter_of(path.parent)  # the stamp of a copied folder names the original's
    return stack.model_copy(update={"python": str(python)}) if python.exists() else None


def _architectures(output: str, error_prefix: str) -> tuple[str, ...]:
    """Return the architectures in the last line of output; packages may print lines before it."""
    try:
        return tuple(map(str, json.loads(output.strip().splitlines()[-1])["architectures"]))
    except (LookupError, TypeError, ValueError, RecursionError) as error:
        raise StackError(
            f"{error_prefix}: transformers did not list its architectures. "
            f"Its output was: {shown(output)}"
        ) from error


def _remove_leftovers(folder: Path) -> None:
    """Remove incomplete environments of killed runs, and the files of damaged ones."""
    cutoff = time.time() - _STALE_AFTER
    contents.remove_damaged(folder, cutoff)
    for path in folder.glob(f"*-*.{'[0-9a-f]' * 12}.tmp"):
        if is_older(path, cutoff):
            shutil.rmtree(path, ignore_errors=True)


def _is_stack_lock(lock: str) -> bool:
    return {"torch", "transformers"} <= pinned_versions(lock).keys() and pins_only(lock)


def probes_digest(folder: Path) -> str:
    """Return the digest of the probes' source; captures of different probes are not compared."""
    return digest_of(
        {p.relative_to(folder).as_posix(): digest_of_file(p) for p in sorted(folder.rglob("*.py"))}
    )
