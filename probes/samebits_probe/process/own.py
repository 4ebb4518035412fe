"""Which modules hold the model's own code: copies of remote code, and packages that the user names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from samebits_wire.places import COMMIT_VARIABLE, INSTEAD, PACKAGES_VARIABLE

REMOTE = "transformers_modules"
"""Package to which transformers copies the code of a checkpoint."""

_names: set[str] = set()


def add(package: str) -> None:
    """Count a package, by its top-level name, as the model's own code from now on."""
    _names.add(package.partition(".")[0])


def packages() -> tuple[str, ...]:
    """Return the top-level names of the packages that were added, in order."""
    return tuple(sorted(_names))


def is_own(module: str) -> bool:
    """Return True if a module, by its full name, holds the model's own code."""
    package = module.partition(".")[0]
    return package == REMOTE or package in _names


def is_own_file(path: str) -> bool:
    """Return True if a source file, with slashes, holds the model's own code."""
    if f"/{REMOTE}/" in path:
        return True
    return any(path.startswith(f"{root}/") or path == f"{root}.py" for root in _roots())


def _roots() -> list[str]:
    """Return the paths of the added packages, without an ending."""
    folders = [folder for folder in sys.path if folder]
    return [
        str(Path(folder, name)).replace("\\", "/")
        for name in _names
        for folder in folders
        if Path(folder, name).is_dir() or Path(folder, f"{name}.py").is_file()
    ][: 4 * len(_names)]


def use_packages() -> None:
    """Put the folder of the model's packages at the end of the path, if there is one.

    At the end, so that no module of it can stand in for one of the stack. Those that are meant to
    lie in a folder beside it, which comes before the stack's own. A commit of a package that the
    user names comes first, and all of its modules are the model's own code.
    """
    folder = os.environ.get(PACKAGES_VARIABLE)
    if folder and folder not in sys.path:
        sys.path.append(folder)
        instead = Path(folder).with_name(INSTEAD)
        if instead.is_dir():
            _put_first(str(instead))
    commit = commit_folder()
    if commit and commit not in sys.path:
        _put_first(commit)
        _names.update(_modules(commit))


def commit_folder() -> str:
    """Return the folder of the commit of a user's package; '' if the run has none."""
    return os.environ.get(COMMIT_VARIABLE, "")


def _put_first(folder: str) -> None:
    """Put a folder before the stack's packages, and behind the standard library."""
    ends = ("site-packages", INSTEAD)
    sys.path.insert(next(i for i, p in enumerate(sys.path) if Path(p).name in ends), folder)


def installed_modules() -> list[str]:
    """Return the names of the modules in the folders of the model's packages; [] without one."""
    return sorted({*_modules(os.environ.get(PACKAGES_VARIABLE, "")), *_modules(commit_folder())})


def _modules(folder: str) -> list[str]:
    return [
        path.stem
        for path in (Path(folder).iterdir() if folder and Path(folder).is_dir() else ())
        if path.stem.isidentifier() and (path.is_dir() or path.suffix == ".py")
    ]
