"""Paths of the probes, in the installed package or in the checkout."""

from __future__ import annotations

from pathlib import Path

from samebits.base.digests import digest_of, digest_of_file

_PACKAGE = Path(__file__).parents[1]
_CANDIDATES = (_PACKAGE / "_probes", _PACKAGE.parent / "probes")
"""A wheel has them in the package; a checkout and an editable install, next to it."""

PROBES = next((folder for folder in _CANDIDATES if folder.is_dir()), _CANDIDATES[0])
STACK = PROBES / "stack.py"
"""The script that a stack's interpreter runs; tests and the bench replace it."""
WARM = PROBES / "samebits_warm.py"
"""The script in its place for a process that stays between runs."""
MAKERS = tuple(
    PROBES / "samebits_probe" / name
    for name in (
        "model/build.py",
        "jobs/auto.py",
        "jobs/config_variants.py",
        "model/scale.py",
        "model/shrink.py",
        "model/switches.py",
    )
)
"""The modules that make checkpoints: one that another text of them made is made again."""
ARCHITECTURES = PROBES / "architectures.py"
"""The script that lists the architectures of a release; it uses only the standard library."""
ENVIRONMENT = PROBES / "samebits_probe" / "process" / "environment.py"
"""The script that lists the packages of an interpreter; it uses only the standard library."""


def makers_digest() -> str:
    """Return the digest of the modules that make checkpoints."""
    return digest_of([*map(digest_of_file, MAKERS)])
