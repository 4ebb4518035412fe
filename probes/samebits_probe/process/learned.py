"""What a child of a stack's process learned, so that the next children know it from the start.

Every job runs in a fork of one parent, and what it computes once per process is lost with it:
transformers imports most of its modules, and torch's compiler, only when a model is loaded; 5.x
compiles some fifty patterns per load; a forward executes hundreds of functions, each parsed for
its digest. A child writes these down, and the parent takes them over before the next fork.

None of it depends on a model. Code of a checkpoint stays in its cell's process: it is not imported
by the parent, and its digests are not passed on.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from samebits_probe.process import device_forks

DIGESTS: dict[tuple[str, int, str], str] = {}
"""File, first line and name of a function of transformers -> the digest of its source."""
_NOT_PREIMPORTED = ("transformers_modules", "samebits_", "__")
"""Prefixes of modules that only children import: a model's code stays in its cell's process."""
_MAX_PATTERNS = 256
"""Patterns that are passed on at once: half of what re keeps."""
_MAX_LENGTH = 1 << 14
"""Characters of a pattern that is passed on: a model's code may have one that takes long to compile."""

# Everything is listed from its end: reading an entry writes to its reference count, and the kernel
# then copies its memory page for this process. For all entries that would be thousands of pages.


class Mark(NamedTuple):
    """How far a process was when its job began."""

    module: str
    path: tuple[str, ...]
    pattern: Any
    digests: int


def mark() -> Mark:
    """Return how far this process is."""
    return Mark(
        next(reversed(sys.modules)),
        tuple(sys.path),
        next(reversed(_patterns()), None),
        len(DIGESTS),
    )


def write(since: Mark, path: Path) -> None:
    """Write what this process has learned; a failure only costs time."""
    # a thread of the model may be importing meanwhile
    with contextlib.suppress(OSError, RuntimeError, KeyError, TypeError, ValueError):
        # a parent with another path would import what asks for packages of the child, without them
        imports = _preimportable(since.module) if tuple(sys.path) == since.path else []
        n_new = len(DIGESTS) - since.digests
        text = json.dumps(
            {
                "imports": imports,
                "patterns": _new_patterns(since.pattern),
                "digests": list(itertools.islice(reversed(DIGESTS.items()), n_new)),
            }
        )
        path.write_text(text, "utf-8")


def read(path: Path) -> None:
    """Take over what a child has written, and remove its file."""
    try:
        learned = json.loads(path.read_text("utf-8"))
        path.unlink()
    except (OSError, ValueError):
        return
    device_forks.import_all(device_forks.harmless(learned["imports"]))
    for text, flags in learned["patterns"]:
        with contextlib.suppress(Exception):
            re.compile(text, flags)
    DIGESTS.update({tuple(place): digest for place, digest in learned["digests"]})


def _preimportable(last_module: str) -> list[str]:
    """Return the modules imported after ``last_module`` from packages that the parent has."""
    imported = list(_after(sys.modules, last_module))
    new = set(imported)
    return [
        name
        for name in imported
        if (package := name.partition(".")[0]) in sys.modules
        and package not in new
        and not name.startswith(_NOT_PREIMPORTED)
        and getattr(sys.modules[name], "__spec__", None) is not None
    ]


def _patterns() -> dict[Any, Any]:
    """Return the patterns that re keeps, by type, text and flags; none in a Python without them."""
    patterns: dict[Any, Any] = getattr(re, "_cache", {})
    return patterns


def _new_patterns(last: Any) -> list[tuple[str, int]]:
    keys = list(_after(_patterns(), last))[-_MAX_PATTERNS:]
    return [
        (text, int(flags)) for kind, text, flags in keys if kind is str and len(text) <= _MAX_LENGTH
    ]


def _after(entries: dict[Any, Any], last: Any) -> Iterable[Any]:
    """Return the keys of a dictionary that were added after ``last``, in their order."""
    return list(itertools.takewhile(lambda key: key is not last, reversed(entries)))[::-1]
