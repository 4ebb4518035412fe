"""For which stacks does nox offer a ``probe`` session?

nox asks whenever it reads the noxfile, so nothing is imported here unless the answer matters.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHOOSING = {"-s", "-e", "--session", "--sessions"}
_PATTERNS = {"-l", "--list", "-k", "--keywords", "-t", "--tags", "--json", "--list-sessions"}


def stack_ids(arguments: Sequence[str]) -> list[str]:
    """Return the ids of the stacks for which nox offers a ``probe`` session.

    ``arguments`` is nox's own command line, in which ``--matrix`` may stand after ``--``. A
    command that runs other sessions gets none, and so does a matrix with mistakes, which are
    told where a probe is asked for: nox itself says only that there is no such session.
    """
    dashes = arguments.index("--") if "--" in arguments else len(arguments)
    if not _may_probe(arguments[:dashes]):
        return []
    from samebits.base.errors import SamebitsError  # noqa: PLC0415
    from samebits.matrix import load  # noqa: PLC0415  half a second that no other session has to wait
    from samebits.text.terminal import Spoken  # noqa: PLC0415

    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--matrix", type=Path, default=Path("matrix.yaml"))
    try:
        options, _ = parser.parse_known_args(list(arguments[dashes + 1 :]))
        return [stack.id for stack in load.load(options.matrix).stacks]
    except (SamebitsError, argparse.ArgumentError) as error:
        if _asks_for_probes(arguments[:dashes]):
            Spoken(os.environ).say(str(error), sys.stderr)
        return []


def _may_probe(own: Sequence[str]) -> bool:
    """Return True unless the sessions are named and none of them is a probe."""
    named = not _CHOOSING.isdisjoint(own) and _PATTERNS.isdisjoint(own)
    return not named or _asks_for_probes(own)


def _asks_for_probes(own: Sequence[str]) -> bool:
    return any(word.startswith("probe") for word in own)
