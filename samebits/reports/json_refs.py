"""What stands in many places of report.json stands there once, and is referred to.

Cells of a model differ in the same settings, go through the same steps and run the same functions,
release after release: half of what a report holds is in it twice or more. Such a value goes to the
list ``shared`` at the end of the file, and ``{"$ref": "#/shared/17"}`` stands in its places. That is
a JSON Reference, which libraries of many languages put in; :func:`put_in` does it here.
"""

from __future__ import annotations

import marshal
from hashlib import blake2b
from typing import Any

REFERENCE = "$ref"
WHERE = "#/shared/"
LEAST = 60
"""Bytes of what is shared; a reference has about thirty characters."""
LEAST_TEXT = 100
"""The same for a text, such as a diff, a traceback, a reason."""

NAMES = frozenset({"cell", "reference", "headline"})
"""Fields that stay where they are: which cell it is, and what came of it."""

Values = dict[str, Any]


def share(value: Values) -> tuple[Values, list[Any]]:
    """Return ``value`` with references in it, and what they refer to; neither is changed.

    What is shared may hold references to what stands before it.
    """
    seen = _Seen()
    seen.count(value)
    changed: Values = seen.changed(value)
    return changed, seen.shared


def put_in(value: Values) -> Values:
    """Return what :func:`share` was given, from a file that holds ``shared``."""
    shared: list[Any] = []
    for entry in value.get("shared", ()):
        shared.append(_put_in(entry, shared))
    return {key: _put_in(entry, shared) for key, entry in value.items() if key != "shared"}


def _put_in(value: Any, shared: list[Any]) -> Any:  # noqa: ANN401  any JSON
    if isinstance(value, list):
        return [_put_in(entry, shared) for entry in value]
    if not isinstance(value, dict):
        return value
    if REFERENCE in value:
        return shared[int(value[REFERENCE].removeprefix(WHERE))]
    return {_unescaped(key): _put_in(entry, shared) for key, entry in value.items()}


class _Seen:
    """Counts values by their content, then puts references to those that were met again."""

    def __init__(self) -> None:
        self.shared: list[Any] = []
        self._counts: dict[bytes, int] = {}
        self._known: dict[int, bytes] = {}
        """Of every value that is large enough: where it lies -> its content."""
        self._numbers: dict[bytes, int] = {}

    def count(self, value: Any) -> None:  # noqa: ANN401  any JSON
        """Count what lies in a value; what lies in a value that was met before is in there."""
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            content = None if key in NAMES else _content(entry)
            if content is None:
                continue
            self._known[id(entry)] = content
            self._counts[content] = self._counts.get(content, 0) + 1
            if self._counts[content] == 1 and not isinstance(entry, str):
                self.count(entry)

    def changed(self, value: Any) -> Any:  # noqa: ANN401  any JSON
        """Return a value with references in it."""
        if isinstance(value, dict):
            return {_escaped(key): self._referred(entry) for key, entry in value.items()}
        return [self._referred(entry) for entry in value] if isinstance(value, list) else value

    def _referred(self, value: Any) -> Any:  # noqa: ANN401  any JSON
        content = self._known.get(id(value))
        if content is None or self._counts[content] == 1:
            return self.changed(value)
        if content not in self._numbers:
            entry = self.changed(value)  # which may share parts of itself, before it
            self._numbers[content] = len(self.shared)
            self.shared.append(entry)
        return {REFERENCE: f"{WHERE}{self._numbers[content]}"}


def _content(value: Any) -> bytes | None:  # noqa: ANN401  any JSON
    """Return a digest of a value; None if it is too small to be shared.

    marshal tells 1 from 1.0 and from True, and writes numbers faster than JSON does.
    """
    least = LEAST_TEXT if isinstance(value, str) else LEAST
    if not isinstance(value, (dict, list, str)) or (least == LEAST_TEXT and len(value) < least):
        return None
    written = marshal.dumps(value, 2)
    return blake2b(written, digest_size=16).digest() if len(written) >= least else None


def _escaped(key: str) -> str:
    """Return a key; an object's own ``$ref`` is no reference and gets one more ``$``."""
    return f"${key}" if key.lstrip("$") == "ref" and key != "ref" else key


def _unescaped(key: str) -> str:
    return key[1:] if key.startswith("$$") and key.lstrip("$") == "ref" else key
