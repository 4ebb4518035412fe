"""Workflow commands of GitHub Actions: lines of a log that become annotations on a file.

The runner reads a line as a command if it begins with ``::``, after blanks, or has ``##[`` anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Level = Literal["error", "warning", "notice"]


def annotation(level: Level, message: str, properties: Mapping[str, object]) -> str:
    """Return the command for one annotation; properties without a value are left out."""
    named = ",".join(
        f"{name}={_property(str(value))}" for name, value in properties.items() if value
    )
    return f"::{level}{f' {named}' if named else ''}::{_data(message)}"


def inert(line: str) -> str:
    r"""Return a line that the runner cannot read as a command.

    A blank before ``::`` would not help, as the runner removes it.
    """
    start = line.lstrip()
    if start.startswith("::"):
        line = f"{line[: len(line) - len(start)]}\\{start}"
    return line.replace("##[", "## [")


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
