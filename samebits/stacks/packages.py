"""Packages of a model, beside those of a stack: resolved and installed in folders of their own.

What the stack does not have comes last on Python's path. What it has in another version than the
packages need comes before the stack's own, but only for packages that decide no bits: ``STAYS`` lists
those that never move. The environment of a stack is never changed, and models without packages run
in it as it was.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from pydantic import Field

from samebits.base.digests import digest_of, digest_of_file
from samebits.base.errors import SamebitsError
from samebits.matrix.values import is_path_of_package
from samebits.records.record import Record, read_record
from samebits.stacks import contents, uv
from samebits.stacks.build import Stack, environment_folder
from samebits.stacks.installer import Failure, Installer, filled
from samebits.stacks.lock import FORM, is_lock, joined, package_of, pinned_versions, without
from samebits.stacks.system import ignoring
from samebits_wire.folders import without_folders
from samebits_wire.places import COMMIT_VARIABLE, INSTEAD, PACKAGES_VARIABLE

STAYS = {
    "torch": "computes",
    "triton": "computes on GPUs",
    "numpy": "computes in processors, in tables of positions and in torch's own conversions",
    "scipy": "computes in processors",
    "pillow": "resizes images",
    "torchvision": "resizes images",
    "torchaudio": "computes in processors of sounds",
    "transformers": "is what is compared",
    "tokenizers": "makes token ids",
    "sentencepiece": "makes token ids",
    "tiktoken": "makes token ids",
    "regex": "splits texts for tokenizers in Python",
    "jinja2": "renders chat templates",
    "safetensors": "loads weights",
    "huggingface-hub": "chooses the files that are loaded; transformers checks its version",
}
"""Package that a model's packages never move in a stack -> what it does to the results. What a stack
lists under ``packages`` does not move, either."""

_STAMP = "samebits-packages.json"
_FOLDER = "site-packages"
"""Name of the folder at the end of the path; paths of source files are shown from it on."""
_IGNORED = frozenset(
    {"__pycache__", "build", "dist", "node_modules", "reports", "venv"},
)
"""Folders of a package's source that are no part of it; as are those that begin with a dot."""
_IGNORED_ENDINGS = (".egg-info", ".pyc")
_REMEDY = (
    "Name a version that fits every environment. Or let the environments have the version that it needs: "
    'samebits check --environment-package "numpy<2", in matrix.yaml environments: [{transformers: "4.48", '
    'packages: ["numpy<2"]}].'
)
_EXCLUDES = "The package excludes this release in its own metadata: name a version that does not."
_PINNED = "you require transformers=={}"
"""What uv says where a package leaves no room for the release of the environment."""
_UNKNOWN = "was not found in the package registry"
"""What uv says of a name that its index does not have."""
_NO_SUCH = (
    "Check the name, and the index: UV_DEFAULT_INDEX or uv.toml beside matrix.yaml names another."
)
_BUILDS = ("failed to build", "build backend")
"""What uv says of a package whose own build failed."""
_DAMAGED = (
    "packages of a model were damaged and are installed again: {}. Results that were computed with "
    "them are not used"
)
_NO_PACKAGES = (
    "Usually a name is misspelt, the package index cannot be reached, or the package cannot be built "
    "here. Change packages: in matrix.yaml (of samebits check: --package), or check the network and "
    "run again."
)


class PackagesError(SamebitsError):
    """Packages of a model could not be installed beside a stack."""

    exit_code = 1

    def __init__(self, message: str, *, contradicts: bool, machine: bool = False) -> None:
        super().__init__(message)
        self.contradicts = contradicts
        """True if their requirements and the stack's exclude each other, which is a result."""
        self.machine = machine
        """True if the machine is the reason: then the cells are not finished, instead of failed."""


class Added(Record):
    """Installed packages, stored beside their folder as ``samebits-packages.json``."""

    format: Literal["samebits-packages"] = "samebits-packages"
    format_version: Literal[2] = 2
    lock: str
    """What was added: ``name==version`` or ``name @ …`` per line, with the hash of local ones."""
    packages: dict[str, str]
    """Name -> version."""
    replaced: dict[str, str] = Field(default_factory=dict)
    """Name -> version of the stack, of packages that the model's need in another one."""
    local: tuple[str, ...] = ()
    """Names of those that come from this machine, which nobody else can install."""


class ExtendedStack(Stack):
    """A stack with the packages of a model; its lock and packages are those of both together."""

    folder: str
    """Folder with the packages that the stack lacks, for the end of the path."""
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


class _Question(NamedTuple):
    """What is to be resolved beside a stack."""

    stack: Stack
    python: str
    """Version of Python."""
    indexed: list[str]
    """Requirements of packages of an index."""
    local: list[_Local]
    fixed: Mapping[str, str]
    """Packages of the stack that must not move: name -> version."""

    @property
    def failure(self) -> Failure:
        """Makes the error of a call of uv."""
        return partial(_error, stack=self.stack)

    @property
    def addresses(self) -> dict[str, str]:
        """Name of a package of this machine -> its line for uv."""
        return {p.name: f"{p.name} @ {p.wheel.resolve().as_uri()}" for p in self.local}

    @property
    def requirements(self) -> list[str]:
        """Everything that a resolution has to fit."""
        pins = (f"{name}=={version}" for name, version in sorted(self.fixed.items()))
        return [*self.indexed, *self.addresses.values(), *pins]

    def digest(self, installer: Installer) -> str:
        """Return the digest of all that the answer depends on."""
        local = [[p.name, p.digest] for p in self.local]
        question = [self.indexed, local, self.stack.lock_digest, self.python, sorted(self.fixed)]
        return digest_of([*question, installer.exclude_newer, installer.links, sys.platform, FORM])


class PackageBuilder:
    """Resolves and installs packages of models; locks and folders lie in ``root``."""

    def __init__(self, root: Path, matrix_folder: Path, installer: Installer) -> None:
        self._installer = installer
        self._root = root.absolute() / "packages"
        self._matrix_folder = matrix_folder

    def extend(
        self, stack: Stack, python: str, packages: Sequence[str], stays: Iterable[str] = ()
    ) -> ExtendedStack:
        """Return the stack with packages that matrix.yaml lists; ``python`` is its version.

        ``stays`` has requirements whose packages must not move, besides those of ``STAYS``.

        Raises:
            PackagesError: they contradict the stack, or could not be installed.

        """
        local = [self._local(stack, package) for package in packages if is_path_of_package(package)]
        indexed = [package for package in packages if not is_path_of_package(package)]
        immovable = {*STAYS, *map(package_of, stays)}
        fixed = {name: v for name, v in stack.installed.items() if name in immovable}
        python = python if stack.system is None else stack.system.version
        lines = self._lines(_Question(stack, python, indexed, local, fixed))
        added = _added(lines, local, stack)
        key = digest_of([stack.lock_digest, added.lock])
        folder, key = self._installer.folder(self._root, stack.id, key, _DAMAGED)

        def read(path: Path) -> Added | None:
            return added if read_record(path, Added) == added else None

        self._installer.kept(folder, _STAMP, read, partial(self._install, stack, lines, added))
        fields = {name: getattr(stack, name) for name in Stack.model_fields}
        lock = without(stack.lock, added.replaced).rstrip()
        fields |= {
            "lock": f"{lock}\n# packages of the model\n{added.lock}",
            "lock_digest": key,
            "packages": stack.packages | added.packages,
        }
        wheels = {package.name: str(package.wheel) for package in local}
        return ExtendedStack(**fields, folder=str(folder / _FOLDER), added=added, wheels=wheels)

    def _lines(self, question: _Question) -> list[str]:
        """Return the lines of everything to install, without what the stack has."""
        digest = question.digest(self._installer)
        lock = self._installer.lock(
            self._root / "locks" / f"{question.stack.id}-{digest[:12]}.txt",
            is_lock,
            partial(self._resolved, question),
            serves=lambda error: isinstance(error, PackagesError) and not error.contradicts,
        )
        # a wheel's path may be another one today, and a line of a lock is not installed twice
        addresses = question.addresses
        return [addresses.get(package_of(line), line) for line in lock.splitlines()]

    def _resolved(self, question: _Question) -> str:
        """Return a new lock, with the hashes of wheels for the lines of an index."""
        stripped = map(str.strip, self._versions(question).splitlines())
        lines = [n for n in stripped if n and n[0] != "#" and not _has(question.stack, n)]
        pins = joined(line for line in lines if pinned_versions(line))
        return self._installer.with_hashes(joined(lines), pins, question.python, question.failure)

    def _versions(self, question: _Question) -> str:
        """Return the resolution of requirements, with as much of the stack as they allow.

        What the stack lacks is chosen first, as if what may move did not exist: else a resolver that
        has chosen the newest fsspec takes a datasets of years ago, which sets no bound on it.
        """
        stack, wanted = question.stack, question.requirements
        movable = stack.installed.keys() - question.fixed.keys()
        chosen = pinned_versions(self._compile(question, wanted, ignored=movable))
        pins = [f"{name}=={v}" for name, v in chosen.items() if name not in stack.installed]
        preferred = joined(f"{name}=={stack.installed[name]}" for name in sorted(movable))
        try:
            return self._compile(question, [*wanted, *pins], preferred=preferred)
        except PackagesError as error:
            if not error.contradicts:
                raise
        return self._compile(question, wanted, preferred=preferred)

    def _compile(
        self,
        question: _Question,
        wanted: list[str],
        *,
        ignored: Collection[str] = (),
        preferred: str = "",
    ) -> str:
        system = question.stack.system
        overrides = ignoring(ignored) + (system.overrides if system is not None else "")
        return self._installer.resolve(
            "\n".join(wanted),
            question.python,
            question.failure,
            overrides=overrides,
            preferred=preferred,
        )

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
        with filled(folder, lambda: any(folder.glob("*.whl"))) as temporary:
            temporary.mkdir(parents=True)
            if source.suffix == ".whl":
                shutil.copy2(source, temporary / source.name)
            else:
                words = ("build", "--quiet", "--wheel", "--python", stack.python)
                target = ("--out-dir", str(temporary), str(source))
                self._installer.uv(*words, *target, failure=partial(_error, stack=stack))
        wheel = next(folder.glob("*.whl"), None)
        if wheel is None:
            msg = f"{source.name}: its build made no wheel. {_NO_PACKAGES}"
            raise PackagesError(msg, contradicts=False)
        return wheel

    def _digest(self, source: Path) -> str:
        """Return the digest of a package's source, which the run depends on from now on."""
        self._installer.dependencies.file(source)
        if source.is_file():
            return digest_of([source.name, digest_of_file(source)])
        digests = {}
        for path in _source_files(source):
            self._installer.dependencies.file(path)
            if path.is_file():
                digests[path.relative_to(source).as_posix()] = digest_of_file(path)
        return digest_of(digests)

    def _install(self, stack: Stack, lines: list[str], added: Added, temporary: Path) -> Added:
        targets: dict[str, list[str]] = {_FOLDER: []}
        for line in lines:
            name = INSTEAD if package_of(line) in added.replaced else _FOLDER
            targets.setdefault(name, []).append(line)
        failure = partial(_error, stack=stack)
        for name, of_folder in targets.items():
            if of_folder:
                self._installer.install_into(temporary / name, stack.python, of_folder, failure)
            else:
                (temporary / name).mkdir(parents=True)
        contents.write(temporary, contents.listed(temporary))
        return added


def variables_of(stack: Stack) -> dict[str, str]:
    """Return the variables that tell the process of a stack where its packages and sources are."""
    own = {PACKAGES_VARIABLE: stack.folder} if isinstance(stack, ExtendedStack) else {}
    if stack.source is not None:
        own["PYTHONPATH"] = stack.source  # which Python puts before the environment's own packages
    if stack.commit is not None:
        own[COMMIT_VARIABLE] = stack.commit
    return own


def installations(stack: Stack) -> list[Path]:
    """Return the folders in which a stack's packages are installed."""
    extended = [Path(stack.folder).parent] if isinstance(stack, ExtendedStack) else []
    copied = [Path(copy).parent for copy in (stack.source, stack.commit) if copy is not None]
    return [environment_folder(stack), *extended, *copied]


def _error(process: subprocess.CompletedProcess[str], stack: Stack) -> PackagesError:
    output = without_folders(uv.last_words(process))
    beside = f"transformers {stack.transformers}"
    if not uv.is_about_packages(output):
        msg = f"the model's packages could not be installed beside {beside}:\n{output}\n{_NO_PACKAGES}"
        is_built = any(words in output.casefold() for words in _BUILDS)
        return PackagesError(msg, contradicts=False, machine=not is_built)
    sentence = _sentence(output)
    remedy = _NO_SUCH if _UNKNOWN in sentence else _REMEDY
    if _PINNED.format(stack.transformers) in sentence:
        remedy = _EXCLUDES
    msg = f"its packages do not fit {beside}: {sentence} {remedy}"
    return PackagesError(msg, contradicts=True)


def _sentence(output: str) -> str:
    """Return uv's explanation of a contradiction as one line, without its drawing."""
    text = " ".join(re.sub(r"[^\x00-\x7f]+", " ", output).split())
    start = re.search(r"\bBecause\b", text)
    return text[start.start() :] if start else text


def _added(lines: list[str], local: list[_Local], stack: Stack) -> Added:
    by_name = {package.name: package for package in local}
    listed, versions = [], {}
    for line in lines:
        name = package_of(line)
        package = by_name.get(name)
        if package is None:
            listed.append(line)
            versions[name] = pinned_versions(line).get(name) or line.partition("@")[2].strip()
        else:
            listed.append(f"{name}=={package.version}  # of this machine, {package.digest}")
            versions[name] = package.version
    text = "".join(f"{line}\n" for line in listed)
    return Added(
        lock=text,
        packages=versions,
        replaced={name: stack.packages[name] for name in versions if name in stack.packages},
        local=tuple(sorted(by_name.keys() & versions.keys())),
    )


def with_versions(packages: Sequence[str], extended: ExtendedStack) -> tuple[str, ...]:
    """Return packages as listed, each of an index in exactly the version of an extended stack."""
    return tuple(_exactly(package, extended.packages) for package in packages)


def _exactly(package: str, versions: Mapping[str, str]) -> str:
    if is_path_of_package(package) or "@" in package:
        return package  # its content is that of every stack
    requirement = Requirement(package)
    version = versions.get(str(canonicalize_name(requirement.name)))
    if version is None:
        return package
    requirement.specifier = SpecifierSet(f"=={version}")
    return str(requirement)


def _has(stack: Stack, line: str) -> bool:
    """Return True if a stack has what a line of a lock names, in this version."""
    version = stack.installed.get(package_of(line))
    return version is not None and pinned_versions(line).get(package_of(line)) == version


def _name_and_version(wheel: Path) -> tuple[str, str]:
    try:
        name, version, _, _ = parse_wheel_filename(wheel.name)
    except InvalidWheelFilename as error:
        msg = f"{wheel.name} is not the name of a wheel, which is NAME-VERSION-py3-none-any.whl: {error}"
        raise PackagesError(msg, contradicts=False) from error
    return str(name), str(version)


def _source_files(folder: Path) -> Iterator[Path]:
    """Yield the files of a package's source and the folders that hold them, in order."""
    for path in sorted(folder.iterdir()):
        is_ignored = path.name in _IGNORED or path.name.startswith(".")
        if is_ignored or path.name.endswith(_IGNORED_ENDINGS):
            continue
        yield path
        if path.is_dir():
            yield from _source_files(path)
