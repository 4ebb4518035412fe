"""Which versions of transformers, and of the packages beside it, the files of a project state.

A version follows from an exact pin or from a lock. A range states none: which release it gives
depends on the day, so it is told apart and never resolved.
"""

from __future__ import annotations

import ast
import codecs
import configparser
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

PACKAGES = ("transformers", "torch", "tokenizers", "accelerate")
SOURCE = "@"
"""In place of a range: an address, which may hold a secret and is not shown."""

_REQUIREMENTS = re.compile(r"(.*[-_.])?(requirements?|constraints?)([-_.].*)?\.(txt|in)")
_CONDA_FILE = re.compile(r"(.*[-_.])?environment([-_.].*)?\.ya?ml")
_LOCKS = re.compile(r"(uv|poetry|pdm)\.lock|pylock(\..+)?\.toml")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")
_COMMENT = re.compile(r"(^|\s)#.*")
_OPTION_OF_LINE = re.compile(r"\s--?[a-z].*")
_EDITABLE = re.compile(r"(-e|--editable)[\s=]+")
_EGG = re.compile(r"[#&]egg=([\w.-]+)")
_CONDA = re.compile(r"([\w.-]+?)\s*=(?!=)\s*([\w.!+*]+)(=.*)?")
_CONDA_WORDS = re.compile(r"([\w.-]+)\s+(\d[\w.!+]*)(\s+\S+)?")
"""Name, version and build with blanks between them: exactly this version."""
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""How a file begins -> its encoding; PowerShell writes such requirements, and pip reads them."""
_OWN_FILES = ("pyproject.toml", "Pipfile", "Pipfile.lock", "setup.cfg", "setup.py")
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
    folders = {"requirements", "constraints"} & {*file.parts[:-1]}
    return (
        file.name in _OWN_FILES
        or any(form.fullmatch(file.name) for form in (_REQUIREMENTS, _CONDA_FILE, _LOCKS))
        or (bool(folders) and file.suffix in (".txt", ".in"))
    )


def stated(path: str, content: bytes) -> frozenset[Stated]:
    """Return what a file states of :data:`PACKAGES`. Raises UnreadableError."""
    name, text = (
        PurePosixPath(path).name,
        content.decode(_MARKS.get(content[:2], "utf-8-sig"), "replace"),
    )
    try:
        return frozenset(version for version in _read(name, text) if version.package in PACKAGES)
    except _UNREADABLE as error:
        raise UnreadableError(type(error).__name__) from error


def _read(name: str, text: str) -> Iterator[Stated]:
    if name == "pyproject.toml":
        yield from _project(tomllib.loads(text))
    elif name == "Pipfile":
        for section, table in tomllib.loads(text).items():
            if section not in ("requires", "scripts", "pipenv") and isinstance(table, dict):
                yield from _poetry(table)
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
            yield from _locked(entry)
    elif _CONDA_FILE.fullmatch(name):
        yield from _conda((yaml.safe_load(text) or {}).get("dependencies") or ())
    else:
        yield from _lines(text)


_CHECKOUTS = ("git", "vcs", "path", "directory", "revision")
"""Keys of what a lock took from somewhere else than an index, whose version several contents may have."""


def _locked(entry: dict[str, Any]) -> Iterator[Stated]:
    """Yield what a lock states of a package; nothing of the project itself."""
    source = entry.get("source") or {}
    if {"editable", "virtual"} & source.keys():
        return
    origin = {key: part[key] for part in (entry, source) for key in _CHECKOUTS if key in part}
    if source.get("type") in ("git", "directory", "file"):
        origin = source
    if origin:
        yield Stated(canonicalize_name(entry["name"]), f"{SOURCE}{sorted(origin.items())}")
    elif "version" in entry:
        yield _exact(entry["name"], entry["version"])


def _lines(text: str) -> Iterator[Stated]:
    """Yield what the lines of a requirements file state; its options name other files."""
    for line in text.replace("\\\r\n", "").replace("\\\n", "").splitlines():
        whole = _EDITABLE.sub("", _COMMENT.sub("", line).strip(), count=1)
        bare = _OPTION_OF_LINE.sub("", whole).strip()
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
    """Yield what the texts of a setup.py state, which is not run; a name alone may be a keyword of the project."""
    tree = ast.parse(text)
    names = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    listed = {
        id(entry) for node in ast.walk(tree) if isinstance(node, _LISTS) for entry in node.elts
    }
    for node in ast.walk(tree):
        for line in _text_of(node, names, _DEPTH).splitlines():
            # outside of a list it may be prose
            if id(node) in listed or _is_requirement(line.strip()):
                yield from (version for version in _lines(line) if version.text)


_LISTS = (ast.List, ast.Tuple, ast.Set)
_DEPTH = 8
"""Names behind names that are followed."""


def _text_of(node: ast.AST, names: Mapping[str, ast.AST], depth: int) -> str:
    """Return the text that an expression makes of constants; '' if it makes none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.Name) and node.id in names and depth:
        return _text_of(names[node.id], names, depth - 1)
    parts: list[ast.AST] = []
    if isinstance(node, ast.JoinedStr):
        parts = [
            part.value if isinstance(part, ast.FormattedValue) else part for part in node.values
        ]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    texts = [_text_of(part, names, depth - 1) for part in parts if depth]
    return "".join(texts) if all(texts) else ""


def _is_requirement(line: str) -> bool:
    try:
        return bool(Requirement(line).specifier)
    except InvalidRequirement:
        return False


def _requirement(text: str) -> Stated:
    try:
        parsed = Requirement(text)
    except InvalidRequirement:
        if "://" in text:
            return Stated(_named_by(text), f"{SOURCE}{text}")
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


def _named_by(address: str) -> str:
    """Return the package that an address without a name is of, as far as it says."""
    if egg := _EGG.search(address):
        return canonicalize_name(egg[1])
    *folders, last = re.split("[?#]", address)[0].split("/")
    if last.endswith(".whl"):
        return canonicalize_name(last.partition("-")[0])
    names = (re.split(r"@|\.git|-\d", part)[0].lower() for part in (*folders, last))
    return next((name for name in names if name in PACKAGES), "")


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
    """Yield what a pyproject.toml states in tables and lists of any tool whose names end with ``dependencies``."""
    yield from _tables(file)
    for name, source in file.get("tool", {}).get("uv", {}).get("sources", {}).items():
        for entry in source if isinstance(source, list) else [source]:
            if {"git", "url", "path"} & entry.keys():
                yield Stated(canonicalize_name(name), f"{SOURCE}{sorted(entry.items())}")


def _tables(table: dict[str, Any]) -> Iterator[Stated]:
    for key, value in table.items():
        if key == "dependency-groups" or key.endswith("dependencies"):
            yield from _dependencies(value)
        elif isinstance(value, dict):
            yield from _tables(value)


def _dependencies(value: object) -> Iterator[Stated]:
    """Yield what a list of requirements states, a table of such lists, or a table from name to version."""
    if isinstance(value, list):
        yield from (_requirement(text) for text in value if isinstance(text, str))
    elif isinstance(value, dict):
        for name, item in value.items():
            is_group = isinstance(item, list) and all(
                isinstance(entry, str) or "include-group" in entry for entry in item
            )
            yield from _dependencies(item) if is_group else _poetry({name: item})


def _poetry(table: dict[str, Any]) -> Iterator[Stated]:
    """Yield what a table from name to version states; there a bare version is exact."""
    for name, value in table.items():
        for entry in value if isinstance(value, list) else [value]:
            if not isinstance(entry, (str, dict)):
                continue
            text = (
                entry
                if isinstance(entry, str)
                else entry.get("version", f"{SOURCE}{sorted(entry.items())}")
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
        bare = entry.strip().rpartition("::")[2]
        words = _CONDA_WORDS.fullmatch(bare)
        text = f"{words[1]}=={words[2]}" if words else bare
        match = _CONDA.fullmatch(text)
        pin = _conda_pin(match) if match else _requirement(text)
        yield pin._replace(package=_CONDA_NAMES.get(pin.package, pin.package))


def _conda_pin(match: re.Match[str]) -> Stated:
    """Return what ``name=version`` states: all that begins with it, so one release only with three numbers."""
    name, version, build = match.groups()
    if build or (version.count(".") >= _EXACT_PARTS - 1 and version[-1] != "*"):
        return _exact(name, version)
    return Stated(canonicalize_name(name), f"={version}")
