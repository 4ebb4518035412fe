"""A commit of a user's package: which of its files Python imports, without a build.

Its code comes before the packages of an environment, as a checkout of transformers does
(:mod:`samebits.stacks.source`). What it says of itself is read; nothing of it is built or run.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from samebits.base import git
from samebits.base.errors import StackError
from samebits.matrix.values import is_name, split_source
from samebits.stacks.source import Source, origin_of, reader

_ROOTS = ("src/", "", "python/", "lib/")
"""Folders of a repository in which packages lie, the likeliest first."""
_NOT_INSTALLED = re.compile(
    "benchmarks?|bin|build|ci|conftest|docs?|examples?|noxfile|scripts|setup|tasks|tests?|tools?"
)
"""Names at the top of a repository that setuptools leaves out, too."""
_VERSION_FILES = ("__init__.py", "version.py", "_version.py", "__about__.py")
_COMPILES = re.compile(r"\b(ext_modules|cythonize|rust_extensions|cffi_modules)\s*[=(]")
_COMPILERS = ("maturin", "mesonpy", "scikit_build_core", "setuptools_rust", "skbuild")
"""Build backends that compile."""
_NEEDS_A_BUILD = (
    "{name} has to be compiled ({reason}), and bisect lays out Python files only. Build it yourself: at the "
    "reference `samebits record MODEL`, then `git bisect run sh -c 'BUILD || exit 125; samebits verify'`, where BUILD "
    "installs it in the project's environment"
)
_NOTHING = (
    "{name} has nothing that Python could import: no folder with an __init__.py and no module in src, "
    "python, lib or at the top of the repository"
)


class Layout(NamedTuple):
    """Where the modules of a package lie in its repository."""

    root: str
    """The folder that holds them, with a slash; '' for the repository's own."""
    names: frozenset[str]
    """Packages and modules in it."""

    def place(self, path: str) -> str:
        """Return a file's path from that folder on; '' for a file that is no part of the package."""
        inside = path.removeprefix(self.root)
        is_part = path.startswith(self.root) and _name_of(inside) in self.names
        return inside if is_part else ""


class Package(NamedTuple):
    """A commit of a package, as its files say."""

    name: str
    version: str
    layout: Layout
    requires: tuple[Requirement, ...] | None
    """What it needs; None if only a build would say."""
    files: Mapping[str, str]
    """Path in the repository -> id of its content."""


def source(text: str) -> Source:
    """Return the source that FOLDER@COMMIT names.

    Raises:
        StackError: it has no modules, or some that have to be compiled.

    """
    folder, commit = split_source(text)
    package = read(Path(folder), commit)
    files = {
        place: id for path, id in package.files.items() if (place := package.layout.place(path))
    }
    return Source(
        files,
        reader(Path(folder), files),
        origin_of(commit),
        commit,
        name=package.name,
        inside="",
        stated_version=package.version,
    )


def read(clone: Path, commit: str) -> Package:
    """Return a commit of a package.

    Raises:
        StackError: it has no modules, or some that have to be compiled.

    """
    files = git.tree(clone, commit, "")
    layout = layout_of(files)
    named = f"{clone.name}@{commit[:10]}"
    if not layout.names:
        raise StackError(_NOTHING.format(name=named))
    version_files = [
        f"{layout.root}{name}/{file}" for name in sorted(layout.names) for file in _VERSION_FILES
    ]
    texts = _texts(clone, files, ["pyproject.toml", "setup.py", *version_files])
    content, setup = _toml(texts["pyproject.toml"]), texts["setup.py"]
    if reason := _compiled(content, setup):
        raise StackError(_NEEDS_A_BUILD.format(name=named, reason=reason))
    project: dict[str, Any] = _table(content, "project")
    names = (str(project.get("name", "")), _assigned("name", setup), min(layout.names))
    name = canonicalize_name(next(filter(is_name, names)))
    versions = (
        project.get("version"),
        *(_assigned("__version__", texts[path]) for path in version_files),
    )
    is_said = project and not setup and "dependencies" not in project.get("dynamic", ())
    requires = project.get("dependencies", () if is_said else None)
    return Package(
        str(name),
        next(filter(None, map(_version, versions)), "0"),
        layout,
        None if requires is None else tuple(_requirements(requires)),
        files,
    )


def layout_of(files: Iterable[str]) -> Layout:
    """Return where the modules among the files of a repository lie."""
    paths = list(files)
    for root in _ROOTS:
        inside = [path.removeprefix(root) for path in paths if path.startswith(root)]
        # beside packages, modules are scripts: setuptools looks for them where there is no package
        for pattern in (r"\w+/__init__\.py", r"\w+\.py"):
            fitting = (path for path in inside if re.fullmatch(pattern, path))
            if names := frozenset(filter(_is_installed, map(_name_of, fitting))):
                return Layout(root, names)
    return Layout("", frozenset())


def _is_installed(name: str) -> bool:
    return name.isidentifier() and not _NOT_INSTALLED.fullmatch(name)


def _name_of(inside: str) -> str:
    return inside.partition("/")[0].removesuffix(".py")


def _texts(clone: Path, files: Mapping[str, str], paths: Iterable[str]) -> dict[str, str]:
    ids = {path: files[path] for path in paths if path in files}
    contents = {id: text.decode("utf-8", "replace") for id, text in git.blobs(clone, ids.values())}
    return defaultdict(str, {path: contents.get(id, "") for path, id in ids.items()})


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return {}


def _table(content: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    """Return a table of a table; {} if there is none."""
    for key in keys:
        content = content.get(key, {}) if isinstance(content, dict) else {}
    return dict(content) if isinstance(content, dict) else {}


def _compiled(content: Mapping[str, Any], setup: str) -> str:
    """Return what says that a package is compiled; '' if nothing does."""
    backend = str(_table(content, "build-system").get("build-backend", ""))
    if backend.startswith(_COMPILERS):
        return f"its build backend is {backend}"
    if "ext-modules" in _table(content, "tool", "setuptools"):
        return "pyproject.toml has ext-modules"
    match = _COMPILES.search(setup)
    return f"setup.py has {match[1]}" if match else ""


def _assigned(name: str, text: str) -> str:
    match = re.search(rf"^\s*{name}\s*=\s*[\"']([^\"']+)[\"']", text, re.MULTILINE)
    return match[1] if match else ""


def _version(text: object) -> str:
    try:
        return str(Version(str(text)))
    except InvalidVersion:
        return ""


def _requirements(lines: object) -> Iterable[Requirement]:
    for line in lines if isinstance(lines, (list, tuple)) else ():
        try:
            yield Requirement(str(line))
        except InvalidRequirement:
            continue
