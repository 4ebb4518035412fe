"""Which versions of transformers, and of the packages beside it, the files of a project state.

A version follows from an exact pin or from a lock. A range states none: which release it gives
depends on the day, so it is told apart and never resolved.
"""

from __future__ import annotations

import ast
import configparser
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

PACKAGES = ("transformers", "torch", "tokenizers", "accelerate")
SOURCE = "@"
"""In place of a range: an address, which may hold a secret and is not shown."""

_REQUIREMENTS = re.compile(r"(.*[-_.])?(requirements|constraints)([-_.].*)?\.(txt|in)")
_CONDA_FILE = re.compile(r"(.*[-_.])?environment([-_.].*)?\.ya?ml")
_LOCKS = re.compile(r"(uv|poetry|pdm)\.lock|pylock(\..+)?\.toml")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_COMMENT = re.compile(r"(^|\s)#.*")
_OPTION_OF_LINE = re.compile(r"\s--?[a-z].*")
_CONDA = re.compile(r"(?:.*::)?([\w.-]+?)\s*=(?!=)\s*([\w.!+*]+)(=.*)?")
_CONDA_NAMES = {"pytorch": "torch"}
_EXACT_PARTS = 3


class Stated(NamedTuple):
    """What a file states of one package."""

    package: str
    text: str
    """As the file has it, such as ``>=4.57``."""
    version: str = ""
    """The one version that follows; '' if none does."""


class UnreadableError(ValueError):
    """A file is not of the form that its name says."""


_UNREADABLE = (
    ValueError,
    TypeError,
    AttributeError,
    RecursionError,
    SyntaxError,
    configparser.Error,
    yaml.YAMLError,
)


def is_read(path: str) -> bool:
    """Return True if a file states versions, by its path in the repository."""
    file = PurePosixPath(path)
    name, folder = file.name, file.parent.name
    return (
        name in ("pyproject.toml", "Pipfile.lock", "setup.cfg", "setup.py")
        or any(form.fullmatch(name) for form in (_REQUIREMENTS, _CONDA_FILE, _LOCKS))
        or (folder in ("requirements", "constraints") and file.suffix in (".txt", ".in"))
    )


def stated(path: str, content: bytes) -> frozenset[Stated]:
    """Return what a file states of :data:`PACKAGES`. Raises UnreadableError."""
    name, text = PurePosixPath(path).name, content.decode("utf-8-sig", "replace")
    try:
        return frozenset(found for found in _read(name, text) if found.package in PACKAGES)
    except _UNREADABLE as error:
        raise UnreadableError(type(error).__name__) from error


def _read(name: str, text: str) -> Iterator[Stated]:
    if name == "pyproject.toml":
        yield from _project(tomllib.loads(text))
    elif name == "Pipfile.lock":
        lock = json.loads(text)
        for section in ("default", "develop"):
            yield from _poetry(lock.get(section, {}))
    elif name == "setup.cfg":
        yield from _setup_cfg(text)
    elif name == "setup.py":
        yield from _setup_py(text)
    elif _LOCKS.fullmatch(name):
        lock = tomllib.loads(text)
        for entry in (*lock.get("package", ()), *lock.get("packages", ())):
            if "version" in entry:
                yield _exact(entry["name"], entry["version"])
    elif _CONDA_FILE.fullmatch(name):
        yield from _conda((yaml.safe_load(text) or {}).get("dependencies") or ())
    else:
        yield from _lines(text)


def _lines(text: str) -> Iterator[Stated]:
    """Yield what the lines of a requirements file state; its options name other files."""
    for line in text.replace("\\\r\n", "").replace("\\\n", "").splitlines():
        bare = _OPTION_OF_LINE.sub("", _COMMENT.sub("", line)).strip()
        if bare and bare[0] != "-":
            yield _requirement(bare)


def _setup_cfg(text: str) -> Iterator[Stated]:
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    for section in ("options", "options.extras_require"):
        for key, value in parser.items(section) if parser.has_section(section) else ():
            if section != "options" or key.endswith("_requires") or key == "tests_require":
                yield from _lines(value)


def _setup_py(text: str) -> Iterator[Stated]:
    """Yield what the lists of a setup.py state, which is not run; a name alone may be a keyword of the project."""
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, _LISTS))
    for entry in (entry for node in nodes for entry in node.elts):
        if isinstance(entry, ast.Constant) and isinstance(entry.value, str):
            yield from (one for one in _lines(entry.value) if one.text)


_LISTS = (ast.List, ast.Tuple, ast.Set)


def _requirement(text: str) -> Stated:
    try:
        parsed = Requirement(text)
    except InvalidRequirement:
        # neither a version nor silence: the name at its start has something that is not understood
        match = _NAME.match(text)
        return Stated(canonicalize_name(match[0]) if match else "", text)
    name = canonicalize_name(parsed.name)
    if parsed.url:
        return Stated(name, f"{SOURCE}{parsed.url}")
    exact = {
        s.version for s in parsed.specifier if s.operator in ("==", "===") and s.version[-1] != "*"
    }
    if len(exact) == 1:
        return _exact(name, exact.pop())
    return Stated(name, str(parsed.specifier))


def _exact(name: str, version: str) -> Stated:
    return Stated(canonicalize_name(name), f"=={version}", _whole(version))


def _whole(text: str) -> str:
    """Return a version with three numbers: ==4.57 is 4.57.0, and not the newest patch of 4.57."""
    try:
        version = Version(text)
    except InvalidVersion:
        return ""
    if version.public != version.base_version or version.local or version.epoch:
        return str(version)
    numbers = (*version.release, 0, 0)[: max(_EXACT_PARTS, len(version.release))]
    return ".".join(map(str, numbers))


def _project(file: dict[str, Any]) -> Iterator[Stated]:
    project, tool = file.get("project", {}), file.get("tool", {})
    groups = [project.get("dependencies", ())]
    groups += [*project.get("optional-dependencies", {}).values()]
    groups += [*file.get("dependency-groups", {}).values()]
    groups += [*tool.get("pdm", {}).get("dev-dependencies", {}).values()]
    uv = tool.get("uv", {})
    for key in ("dev-dependencies", "constraint-dependencies", "override-dependencies"):
        groups.append(uv.get(key, ()))
    for group in groups:
        yield from (_requirement(text) for text in group if isinstance(text, str))
    poetry = tool.get("poetry", {})
    tables = [poetry.get("dependencies", {}), poetry.get("dev-dependencies", {})]
    tables += [group.get("dependencies", {}) for group in poetry.get("group", {}).values()]
    for table in tables:
        yield from _poetry(table)


def _poetry(table: dict[str, Any]) -> Iterator[Stated]:
    """Yield what a table from name to version states; there a bare version is exact."""
    for name, value in table.items():
        for one in value if isinstance(value, list) else [value]:
            text = (
                one
                if isinstance(one, str)
                else one.get("version", f"{SOURCE}{sorted(one.items())}")
            )
            bare = text.removeprefix("==").strip()
            if _whole(bare):
                yield _exact(name, bare)
            else:
                yield Stated(canonicalize_name(name), text)


def _conda(entries: Iterable[Any]) -> Iterator[Stated]:
    for entry in entries:
        if isinstance(entry, dict):
            yield from _lines("\n".join(entry.get("pip") or ()))
            continue
        match = _CONDA.fullmatch(entry.strip())
        found = _conda_pin(match) if match else _requirement(entry)
        yield found._replace(package=_CONDA_NAMES.get(found.package, found.package))


def _conda_pin(match: re.Match[str]) -> Stated:
    """Return what ``name=version`` states: all that begins with it, so one release only with three numbers."""
    name, version, build = match.groups()
    if build or (version.count(".") >= _EXACT_PARTS - 1 and version[-1] != "*"):
        return _exact(name, version)
    return Stated(canonicalize_name(name), f"={version}")
