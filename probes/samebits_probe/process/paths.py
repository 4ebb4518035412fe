"""Paths of source files without the folders of this machine."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

_PROBES = Path(__file__).parents[2].as_posix() + "/"
"""Folder of the probes: one of a checkout, or ``samebits/_probes`` of an installed samebits."""
_PACKAGES = "/site-packages/"
_REMOTE = "/transformers_modules/"
_DIGEST = re.compile(r"[0-9a-f]{16,64}")


def package_path(path: str) -> str:
    """Return a file's path starting at its package, without the folders of this machine.

    A file of a model has the path below the model's folder: the name of its copy depends on the release.
    """
    if _PACKAGES in path:
        return path.rsplit(_PACKAGES, 1)[1]
    if _REMOTE in path:
        return _below_model(path.rsplit(_REMOTE, 1)[1])
    return path.rsplit("/", 1)[-1]


def _below_model(path: str) -> str:
    """Return a path without NAME, NAME/DIGEST or OWNER/NAME/REVISION, to which transformers copies a model's code."""
    parts = path.split("/")
    digests = [i for i, part in enumerate(parts[:-1]) if _DIGEST.fullmatch(part)]
    return "/".join(parts[digests[-1] + 1 if digests else 1 :]) or path


@cache
def is_of_probes(path: str) -> bool:
    """Return True for a file of the probes."""
    return path.replace("\\", "/").startswith(_PROBES)


@cache
def is_of_torch(path: str) -> bool:
    """Return True for a file of torch; a folder of the user may have that name too."""
    torch = sys.modules.get("torch")
    folder = Path(torch.__file__).parent.as_posix() if torch and torch.__file__ else None
    return folder is not None and path.replace("\\", "/").startswith(f"{folder}/")
