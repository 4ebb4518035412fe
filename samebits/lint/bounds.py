"""Which releases of transformers a package's own metadata allows; others are no problem of its code."""

from __future__ import annotations

import ast
import configparser
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from samebits.base.checkpoint import read_small
from samebits.lint.releases import NEWEST, Range

_REQUIREMENT = re.compile(
    r"\s*transformers(?![\w.-])\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)", re.IGNORECASE
)
_BOUND = re.compile(r"\s*(==|>=|<=|~=|<|>)\s*v?(\d+)(?:\.(\d+|\*))?((?:\.\d+|\.\*)*)")
_EVERY = NEWEST[1]
_MAX_PARENTS = 6


class Bound(NamedTuple):
    """What a package requires of transformers."""

    package: str
    text: str
    """As the metadata says it: ``>=4.56.2,<5``."""
    releases: Range


@cache
def bound_of(folder: Path) -> Bound | None:
    """Return what the package around a folder of code requires; None if no metadata says it.

    It is in pyproject.toml, setup.cfg or setup.py of a folder above, or, of an installed package, in its
    METADATA.
    """
    for root in [folder, *folder.parents][:_MAX_PARENTS]:
        for package, requirements in _metadata(root, folder):
            texts = [m[1].strip() for r in requirements if (m := _REQUIREMENT.match(r))]
            if texts:
                return Bound(package, texts[0], range_of(texts[0])) if texts[0] else None
        if (root / ".git").exists():
            return None
    return None


def range_of(text: str) -> Range:
    """Return the minor releases that ``>=4.56.2,<5`` allows."""
    first, last = (0, 0), NEWEST
    for part in text.split(","):
        match = _BOUND.match(part)
        if match is None:
            continue
        operator, major, minor = match[1], int(match[2]), match[3]
        exact = (int(major), int(minor) if minor and minor != "*" else 0)
        whole = (exact[0], exact[1] if minor and minor != "*" else _EVERY)
        has_patch = bool(match[4].replace(".", "").strip("0*"))
        if operator in (">=", ">", "==", "~="):
            first = max(first, exact)
        if operator in ("<=", "=="):
            last = min(last, whole if operator == "==" else exact)
        elif operator == "~=":
            last = min(last, exact if match[4] else (exact[0], _EVERY))
        elif operator == "<":
            last = min(last, exact if has_patch else _before(exact))
    return Range(first, last)


def _before(release: tuple[int, int]) -> tuple[int, int]:
    major, minor = release
    return (major, minor - 1) if minor else (major - 1, _EVERY)


def _metadata(root: Path, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each package that a folder has metadata of, with its requirements."""
    readers = {"pyproject.toml": _pyproject, "setup.cfg": _setup_cfg, "setup.py": _setup_py}
    for name, read in readers.items():
        try:
            requirements = read(read_small(root / name).decode("utf-8"))
        except (OSError, ValueError, configparser.Error, SyntaxError, RecursionError):
            continue
        yield root.name, requirements
    if folder == root:
        return
    top = folder.relative_to(root).parts[0]
    for path in root.glob("*.dist-info"):
        try:
            if f"{top}/" in (path / "RECORD").read_text("utf-8"):
                lines = (path / "METADATA").read_text("utf-8").splitlines()
                yield top, [w.partition(":")[2] for w in lines if w.startswith("Requires-Dist:")]
        except (OSError, ValueError):
            continue


def _pyproject(text: str) -> list[str]:
    content = tomllib.loads(text)
    project: dict[str, Any] = content.get("project", {})
    extras = project.get("optional-dependencies", {}).values()
    poetry = content.get("tool", {}).get("poetry", {}).get("dependencies", {}).get("transformers")
    if isinstance(poetry, dict):
        poetry = poetry.get("version")
    listed = [*project.get("dependencies", []), *(r for extra in extras for r in extra)]
    return [*listed, *([f"transformers{_of_poetry(poetry)}"] if isinstance(poetry, str) else [])]


def _of_poetry(text: str) -> str:
    """Return ``^4.40`` of poetry as ``>=4.40,<5``."""
    match = re.fullmatch(r"\^(\d+)(.*)", text.strip())
    return f">={match[1]}{match[2]},<{int(match[1]) + 1}" if match else text


def _setup_cfg(text: str) -> list[str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    return parser.get("options", "install_requires", fallback="").splitlines()


def _setup_py(text: str) -> list[str]:
    """Return every text in setup.py that could be a requirement; nothing is run."""
    return [
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.match(r"transformers\s*[=<>~]", node.value)
    ]


def bounds(files: Iterable[Path]) -> list[Bound]:
    """Return what the packages of some files require, each once."""
    named = (bound_of(file.absolute().parent) for file in files)
    return list(dict.fromkeys(bound for bound in named if bound is not None))
