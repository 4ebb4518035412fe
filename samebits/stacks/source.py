"""Sources of transformers that stand for a release: a checkout, a commit of a clone, or a wheel.

The files are copied into a folder that is named after their content, so that a run sees one state of them, and
two states never share a result. Files that an earlier copy has are hard links to it, with their bytecode.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import re
import shutil
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from samebits.base import git
from samebits.base.digests import digest_of
from samebits.base.errors import StackError
from samebits.base.filestate import is_older
from samebits.matrix import known
from samebits.matrix.values import split_source
from samebits.records.record import Record, read_record
from samebits.stacks import contents
from samebits.stacks.installer import Installer

PACKAGE = "transformers"
FOLDER = "src/transformers"
"""Folder of the package in a repository."""
_STAMP = "samebits-source.json"
_TOP = "site-packages"
"""Name of the folder with the package: paths of source files are shown from it on, as those of a release."""
_DAMAGED = "a copy of sources of {name} was damaged and is made again: {}"
_LACKING = (
    "the clone lacks contents of files of {}: it is a partial one, and nothing is fetched here. "
    "Clone it without --filter"
)
_EDITED = "{} of the checkout was changed while it was copied: run again"
_MAX_SIBLINGS = 8
_USED = "samebits-used"
"""File whose time says when a copy was last used."""
_KEPT_FOR = 7 * 86_400.0
_SHORT = 10


class Copied(Record):
    """A copy of sources, stored beside it as ``samebits-source.json``."""

    format: Literal["samebits-source"] = "samebits-source"
    format_version: Literal[1] = 1
    files: dict[str, str]
    """Path in the package -> id of its content, as git has it."""


@dataclass(frozen=True)
class Source:
    """The content of a source."""

    files: dict[str, str]
    """Path in ``inside`` -> id of its content."""
    read: Callable[[Iterable[str]], Iterator[tuple[str, bytes]]] = field(repr=False)
    """Yields paths with their contents."""
    origin: str
    """What it is, for the version: ``git.0123456789``, with ``dirty`` and a digest behind it, or ``wheel.…``."""
    commit: str = ""
    setup: bytes = field(default=b"", repr=False)
    """setup.py, whose install_requires says what has to be installed."""
    metadata: tuple[str, ...] = ()
    """Requirements of a wheel."""
    name: str = PACKAGE
    """The package's name, as installers have it."""
    inside: str = PACKAGE
    """Folder on Python's path in which the files lie; '' for the path itself."""
    stated_version: str = ""
    """Its version, of a package that is not transformers."""

    @property
    def digest(self) -> str:
        """Digest of the content."""
        return digest_of(self.files)

    @cached_property
    def release(self) -> str:
        """The version that it gives itself, such as ``5.16.0.dev0``."""
        if self.stated_version:
            return self.stated_version
        match = re.search(r'^__version__ = "([^"]+)"', self.text("__init__.py"), re.MULTILINE)
        try:
            return Version(match[1]).public if match else ""
        except InvalidVersion:
            return ""

    @property
    def version(self) -> str:
        """The version with what tells its content from others of this version."""
        return f"{self.release}+{self.origin}"

    @property
    def base(self) -> str:
        """The release that it descends from."""
        return _before(Version(self.release))

    @property
    def next(self) -> str:
        """The release that it leads to, whose environment has what it needs by then."""
        version = Version(self.release)
        return f"{version.major}.{version.minor}" if version.is_prerelease else self.base

    def text(self, path: str) -> str:
        """Return the text of a file; '' if there is none."""
        if path not in self.files:
            return ""
        return next((text.decode("utf-8", "replace") for _, text in self.read([path])), "")

    def unmet(self, packages: Mapping[str, str], python: str) -> list[str]:
        """Return what it needs and an environment does not have, in words."""
        have = {str(canonicalize_name(name)): version for name, version in packages.items()}
        have["python"] = python
        return [
            text
            for requirement, is_required in self._requirements()
            if (text := _unmet(requirement, have, is_required=is_required))
        ]

    def _requirements(self) -> Iterator[tuple[Requirement, bool]]:
        """Yield what is checked at the import, and True for what has to be installed."""
        table = _literal(self.text("dependency_versions_table.py"), "deps")
        required = set(re.findall(r'deps\["([^"]+)"\]', _install_requires(self.setup)))
        checked = _literal(self.text("dependency_versions_check.py"), "pkgs_to_check_at_runtime")
        names = dict.fromkeys([*(checked if isinstance(checked, list) else ()), *sorted(required)])
        lines = (
            {name: str(table[name]) for name in names if name in table}
            if isinstance(table, dict)
            else {}
        )
        texts = [*((text, name in required) for name, text in lines.items())]
        for text, is_required in (*texts, *((line, True) for line in self.metadata)):
            try:
                requirement = Requirement(text)
            except InvalidRequirement:
                continue
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                yield requirement, is_required


def read(text: str) -> Source:
    """Return the source that matrix.yaml names.

    Raises:
        StackError: there is none, or it is not of transformers.

    """
    named, commit = split_source(text)
    path = Path(named)
    if commit:
        source = _of_commit(path, commit)
    elif path.suffix == ".whl":
        source = _of_wheel(path)
    else:
        source = _of_folder(path)
    if source is None or not source.release:
        named = f"{path.name}{f'@{commit[:_SHORT]}' if commit else ''}"
        if not path.exists():
            raise StackError(f"there is no folder or file {path.name}")
        if source is not None and "__init__.py" in source.files and not source.text("__init__.py"):
            raise StackError(_LACKING.format(named))
        raise StackError(
            f"{named} is no source of transformers. Name a folder with {FOLDER}, a clone and all 40 digits of a "
            f"commit that it has (FOLDER@COMMIT), or a wheel{git.shallow(path)}"
        )
    return source


def _of_commit(clone: Path, commit: str) -> Source | None:
    files = git.tree(clone, commit, FOLDER)
    if not files:
        return None
    setup = git.git(clone, "cat-file", "blob", f"{commit}:setup.py") or b""
    return Source(files, reader(clone, files), origin_of(commit), commit, setup)


def origin_of(commit: str) -> str:
    """Return what a commit is in a version."""
    return f"git.{commit[:_SHORT]}"


def reader(
    clone: Path, files: Mapping[str, str]
) -> Callable[[Iterable[str]], Iterator[tuple[str, bytes]]]:
    """Return what yields paths with their contents, of files of a clone by their ids."""

    def contents_of(paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        by_id: dict[str, list[str]] = {}
        for path in paths:
            by_id.setdefault(files[path], []).append(path)
        for id, content in git.blobs(clone, by_id):
            yield from ((path, content) for path in by_id[id])

    return contents_of


def _of_folder(folder: Path) -> Source | None:
    """Return what lies in a checkout now, which the working tree may have changed since its commit."""
    package = folder / FOLDER
    if not package.is_dir():
        return None
    files = {
        path.relative_to(package).as_posix(): _id_of(path.read_bytes())
        for path in sorted(package.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc"
    }

    def contents_of(paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        for path in paths:
            try:
                content = (package / path).read_bytes()
            except OSError:
                content = b""
            if _id_of(content) != files[path]:
                raise StackError(_EDITED.format(path))
            yield path, content

    commit = next(iter(git.words(folder, "rev-parse", "--verify", "HEAD")), "")
    committed = git.tree(folder, commit, FOLDER) if commit else {}
    if not committed:
        origin = f"files.{digest_of(files)[:_SHORT]}"
    elif committed == files:
        origin = origin_of(commit)
    else:
        origin = f"{origin_of(commit)}.dirty.{digest_of(files)[:_SHORT]}"
    setup = folder / "setup.py"
    return Source(
        files, contents_of, origin, commit, setup.read_bytes() if setup.is_file() else b""
    )


def _of_wheel(path: Path) -> Source | None:
    try:
        with zipfile.ZipFile(path) as wheel:
            members = {n: wheel.read(n) for n in wheel.namelist() if not n.endswith("/")}
    except (OSError, zipfile.BadZipFile):
        return None
    start = f"{PACKAGE}/"
    package = {n.removeprefix(start): text for n, text in members.items() if n.startswith(start)}
    files = {name: _id_of(text) for name, text in sorted(package.items())}
    about = next((text for n, text in members.items() if n.endswith(".dist-info/METADATA")), b"")
    lines = re.findall(r"^Requires-Dist: (.+)$", about.decode("utf-8", "replace"), re.MULTILINE)

    def contents_of(paths: Iterable[str]) -> Iterator[tuple[str, bytes]]:
        yield from ((path, package[path]) for path in paths)

    origin = f"wheel.{digest_of(files)[:_SHORT]}"
    return Source(files, contents_of, origin, metadata=tuple(line.strip() for line in lines))


def copied(source: Source, root: Path, installer: Installer, release: Path | None = None) -> Path:
    """Return the folder for Python's path with a copy of a source, made now or in an earlier run.

    Files that the ``release`` has, which is the folder of another transformers, are links to them.
    """
    note = _DAMAGED.replace("{name}", source.name)
    folder, _ = installer.folder(root / "sources", source.name, source.digest, note)
    installer.kept(
        folder,
        _STAMP,
        lambda path: read_record(path, Copied),
        lambda temporary: _copy(source, temporary, folder.parent, release),
    )
    (folder / _USED).touch()
    _remove_old(folder.parent)
    return folder / _TOP


def _copy(source: Source, target: Path, beside: Path, release: Path | None) -> Copied:
    top = target / _TOP
    siblings = _siblings(beside, source)
    _compiled.cache_clear()
    missing = []
    for path, id in source.files.items():
        place = top / source.inside / path
        place.parent.mkdir(parents=True, exist_ok=True)
        origin = siblings.get((path, id)) or (release / path if release is not None else None)
        if origin is None or not _linked(origin, place, id):
            missing.append(path)
    lacking = set(missing)
    for path, content in source.read(missing):
        (top / source.inside / path).write_bytes(content)
        lacking.discard(path)
    if lacking:
        raise StackError(_LACKING.format(source.version))
    about = top / f"{source.name.replace('-', '_')}-{source.release}.dist-info"
    about.mkdir()
    # what asks for the version that is installed gets this one, and not the release's below
    metadata = f"Metadata-Version: 2.1\nName: {source.name}\nVersion: {source.release}\n"
    (about / "METADATA").write_text(metadata, "utf-8")
    files = ((Path(source.inside, path).as_posix(), id) for path, id in source.files.items())
    record = "".join(f"{path},git={id},\n" for path, id in sorted(files))
    (about / "RECORD").write_text(record, "utf-8")
    contents.write(target, contents.listed(target))
    contents.record_bytecode(target)
    return Copied(files=source.files)


def _remove_old(folder: Path) -> None:
    """Remove copies that no run has used for a week: a bisection makes many."""
    cutoff = time.time() - _KEPT_FOR
    for mark in folder.glob(f"*/{_USED}"):
        if is_older(mark, cutoff):
            shutil.rmtree(mark.parent, ignore_errors=True)


def _siblings(folder: Path, source: Source) -> dict[tuple[str, str], Path]:
    """Return files of earlier copies by path and content, of the newest ones first."""
    stamps = sorted(
        folder.glob(f"{source.name}-*/{_STAMP}"), key=lambda p: p.stat().st_mtime, reverse=True
    )
    files: dict[tuple[str, str], Path] = {}
    for stamp in stamps[:_MAX_SIBLINGS]:
        record = read_record(stamp, Copied)
        package = stamp.parent / _TOP / source.inside
        for path, id in record.files.items() if record is not None else ():
            files.setdefault((path, id), package / path)
    return files


def _linked(existing: Path, place: Path, id: str) -> bool:
    """Link a file of another copy with its bytecode; return False if it is not what it should be."""
    try:
        if _id_of(existing.read_bytes()) != id:
            return False
        place.hardlink_to(existing)
    except OSError:
        return False
    if existing.suffix == ".py":
        _link_bytecode(existing, place)
    return True


def _link_bytecode(existing: Path, place: Path) -> None:
    """Link what Python compiled from a file, which is valid for a link to it."""
    for name in _compiled(existing.parent / "__pycache__").get(existing.stem, ()):
        folder = place.parent / "__pycache__"
        folder.mkdir(exist_ok=True)
        with contextlib.suppress(OSError):
            (folder / name).hardlink_to(existing.parent / "__pycache__" / name)


@lru_cache(maxsize=4096)
def _compiled(folder: Path) -> dict[str, list[str]]:
    """Return the files of bytecode in a folder by the module that they are of."""
    names: dict[str, list[str]] = {}
    with contextlib.suppress(OSError):
        for path in folder.glob("*.pyc"):
            names.setdefault(path.name.partition(".")[0], []).append(path.name)
    return names


def _id_of(content: bytes) -> str:
    """Return the id that git gives a content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _before(version: Version) -> str:
    """Return the release, or family of releases, that a version descends from."""
    if not version.is_prerelease:
        return version.base_version
    minor = f"{version.major}.{version.minor}"
    if version.micro:
        return minor
    minors = list(dict.fromkeys(release.rpartition(".")[0] for release in known.releases()))
    if version.minor and Version(minor) > Version(minors[-1]):
        return f"{version.major}.{version.minor - 1}"
    older = [release for release in minors if Version(release) < Version(minor)]
    return older[-1] if older else minors[0]


def _literal(text: str, name: str) -> object:
    """Return the literal that a module assigns to a name; None if there is none."""
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError):
        return None
    for node in statements:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            try:
                return ast.literal_eval(node.value)
            except ValueError:
                return None
    return None


def _install_requires(setup: bytes) -> str:
    text = setup.decode("utf-8", "replace")
    match = re.search(r"^install_requires = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    return match[1] if match else ""


def _unmet(requirement: Requirement, have: Mapping[str, str], *, is_required: bool) -> str:
    name = str(canonicalize_name(requirement.name))
    version = have.get(name)
    if version is None:
        return f"{requirement} (it has none)" if is_required else ""
    if name == "python" and version.count(".") == 1:
        version = f"{version}.99"  # any patch of it
    if requirement.specifier.contains(version, prereleases=True):
        return ""
    return f"{requirement} (it has {have[name]})"
