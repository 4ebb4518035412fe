"""Checks of the files that matrix.yaml names: the folder of a model, and its patches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.base.errors import PatchError, nearest, shown
from samebits.base.patches import patched_files

if TYPE_CHECKING:
    from pathlib import Path

_BUILD_FILES = ("pyproject.toml", "setup.py", "setup.cfg")


def bad_folder(base: Path, path: str) -> str | None:
    """Return what is wrong with a model's folder, in words, or None.

    ``base`` is the folder of matrix.yaml.
    """
    try:
        folder = base / path
        if not folder.exists():
            return f"{shown(path)} does not exist{_hint(folder)}"
        if not folder.is_dir():
            return f"{shown(path)} is a file: write the folder that contains config.json"
        if not (folder / "config.json").is_file():
            return f"{shown(path)} contains no config.json: write the folder of a checkpoint"
    except (OSError, ValueError, RuntimeError) as error:
        return f"{shown(path)} cannot be read: {getattr(error, 'strerror', None) or error}"
    return None


def bad_patch(base: Path, folder: Path, names: tuple[str, ...]) -> str | None:
    """Return what is wrong with the last patch, applied after those before it, or None."""
    try:
        patches = [base / name for name in names]
        if not patches[-1].exists():
            return f"{shown(names[-1])} does not exist{_hint(patches[-1])}"
        patched_files(folder, patches)
    except PatchError as error:
        return str(error)
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or error
        return f"{shown(names[-1])} cannot be read: {reason}"
    return None


def bad_package(base: Path, path: str) -> str | None:
    """Return what is wrong with the folder or file of a package, in words, or None."""
    try:
        package = base / path
        if not package.exists():
            return f"{shown(path)} does not exist{_hint(package)}"
        if package.is_dir() and not any((package / name).is_file() for name in _BUILD_FILES):
            return (
                f"{shown(path)} contains no pyproject.toml: write the folder of a package that pip "
                "can install"
            )
        if package.is_file() and not package.name.endswith((".whl", ".tar.gz")):
            return f"{shown(path)} is neither a folder nor a wheel: write one of them"
    except (OSError, ValueError, RuntimeError) as error:
        return f"{shown(path)} cannot be read: {getattr(error, 'strerror', None) or error}"
    return None


def _hint(path: Path) -> str:
    names = [path.name for path in path.parent.iterdir()] if path.parent.is_dir() else []
    suggestion = nearest(path.name, names)
    is_typo = suggestion.startswith("did")
    return f": {suggestion}" if is_typo else ": write it relative to the matrix file"
