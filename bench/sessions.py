"""The environments for which nox offers a ``probe`` session.

nox reads the noxfile for every command, so samebits is imported only if probe sessions matter.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

_NAMING_OPTIONS = {"-s", "-e", "--session", "--sessions"}
_PATTERN_OPTIONS = {"-l", "--list", "-k", "--keywords", "-t", "--tags", "--json", "--list-sessions"}


def environment_ids(arguments: Sequence[str]) -> list[str]:
    """Return the ids of the environments for which nox offers a ``probe`` session.

    ``arguments`` is nox's command line, in which ``--matrix`` may follow ``--``. The result is
    empty for a command that runs other sessions, and for a matrix with mistakes. These are
    printed if a probe session is requested, because nox only reports that there is no such
    session.
    """
    dashes = arguments.index("--") if "--" in arguments else len(arguments)
    if not _may_probe(arguments[:dashes]):
        return []
    from samebits.base.errors import SamebitsError  # noqa: PLC0415
    from samebits.matrix import load  # noqa: PLC0415  takes half a second
    from samebits.text.terminal import TerminalText  # noqa: PLC0415

    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--matrix", type=Path, default=Path("matrix.yaml"))
    try:
        options, _ = parser.parse_known_args(list(arguments[dashes + 1 :]))
        return [stack.id for stack in load.load(options.matrix).stacks]
    except (SamebitsError, argparse.ArgumentError) as error:
        if _names_a_probe(arguments[:dashes]):
            TerminalText(os.environ).say(str(error), sys.stderr)
        return []


def _may_probe(words: Sequence[str]) -> bool:
    """Return True unless sessions are named and none of them is a probe session."""
    names_sessions = not _NAMING_OPTIONS.isdisjoint(words) and _PATTERN_OPTIONS.isdisjoint(words)
    return not names_sessions or _names_a_probe(words)


def _names_a_probe(words: Sequence[str]) -> bool:
    return any(word.startswith("probe") for word in words)
