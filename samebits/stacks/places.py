"""Folders for what is kept between runs: stacks for all projects of a user, the rest for one.

Stacks are large and never change, so the projects of a user share them. Locks, captures and
everything else belong to one matrix.yaml and lie beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_cache_path

from samebits.base.checkpoint import is_checkpoint
from samebits.base.homes import expanded

VARIABLE = "SAMEBITS_CACHE"
"""Environment variable that names another folder than the platform's cache folder."""


LOCK_AGE = 7 * 86_400.0
"""Seconds after which a check asks again which releases are the newest."""


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder that all projects of a user share, as an absolute path."""
    if named := environ.get(VARIABLE):
        return expanded(named).absolute()
    return user_cache_path("samebits", appauthor=False)


def stacks_folder(work: Path, environ: Mapping[str, str]) -> Path:
    """Return the folder of the stacks of a project with the work folder ``work``.

    A folder ``stacks`` in the work folder, or a link of that name, takes the place of the shared
    one; not if it lies in the folder of a model, which may have brought it.
    """
    own = work / "stacks"
    is_own = own.exists() and not is_checkpoint(work.absolute().parent)
    return own if is_own else cache_folder(environ) / "stacks"


def checks_folder(environ: Mapping[str, str]) -> Path:
    """Return the work folder of ``samebits check``, which has no matrix.yaml to lie beside."""
    return cache_folder(environ) / "checks"
