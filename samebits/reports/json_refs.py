"""Shared values of report.json: a value that occurs often is written once and referred to.

Cells of a model differ in the same settings, go through the same steps and run the same functions,
release after release: half of what a report holds is in it twice or more. Such a value goes to the
list ``shared`` at the end of the file, and ``{"$ref": "#/shared/17"}`` replaces it in its places.
That is a JSON Reference, which libraries in many languages resolve; here :func:`put_in` does.
"""

from __future__ import annotations

import marshal
from hashlib import blake2b
from typing import Any

REFERENCE = "$ref"
WHERE = "#/shared/"
MIN_BYTES = 60
"""Minimum size in bytes of a shared value; a reference has about thirty characters."""
MIN_TEXT = 100
"""Minimum length of a shared text, such as a diff, a traceback or a reason."""

NEVER_SHARED = frozenset({"cell", "reference", "headline"})
"""Fields that are never replaced: they name a cell and its result."""

Values = dict[str, Any]


def share(value: Values) -> tuple[Values, list[Any]]:
    """Return a copy of ``value`` with references in it, and the list of the shared values.

    ``value`` itself is not changed. A shared value may hold references to those before it in the
    list.
    """
    sharer = _Sharer()
    sharer.count(value)
    with_references: Values = sharer.with_references(value)
    return with_references, sharer.shared


def put_in(value: Values) -> Values:
    """Return the value that :func:`share` was given, from a file that holds ``shared``."""
    shared: list[Any] = []
    for entry in value.get("shared", ()):
        shared.append(_resolved(entry, shared))
    return {key: _resolved(entry, shared) for key, entry in value.items() if key != "shared"}


def _resolved(value: Any, shared: list[Any]) -> Any:  # noqa: ANN401  any JSON
    if isinstance(value, list):
        return [_resolved(entry, shared) for entry in value]
    if not isinstance(value, dict):
        return value
    if REFERENCE in value:
        return shared[int(value[REFERENCE].removeprefix(WHERE))]
    return {_unescaped(key): _resolved(entry, shared) for key, entry in value.items()}


class _Sharer:
    """Counts values by their content, then replaces those that occur again by references."""

    def __init__(self) -> None:
        self.shared: list[Any] = []
        self._counts: dict[bytes, int] = {}
        self._digests: dict[int, bytes] = {}
        """id() of every value that is large enough -> digest of its content."""
        self._indexes: dict[bytes, int] = {}

    def count(self, value: Any) -> None:  # noqa: ANN401  any JSON
        """Count what a value contains; the contents of a repeated value are counted once."""
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            digest = None if key in NEVER_SHARED else _digest(entry)
            if digest is None:
                continue
            self._digests[id(entry)] = digest
            self._counts[digest] = self._counts.get(digest, 0) + 1
            if self._counts[digest] == 1 and not isinstance(entry, str):
                self.count(entry)

    def with_references(self, value: Any) -> Any:  # noqa: ANN401  any JSON
        """Return a copy of a value with references in it."""
        if isinstance(value, dict):
            return {_escaped(key): self._reference_or_copy(entry) for key, entry in value.items()}
        return (
            [self._reference_or_copy(entry) for entry in value]
            if isinstance(value, list)
            else value
        )

    def _reference_or_copy(self, value: Any) -> Any:  # noqa: ANN401  any JSON
        digest = self._digests.get(id(value))
        if digest is None or self._counts[digest] == 1:
            return self.with_references(value)
        if digest not in self._indexes:
            entry = self.with_references(value)  # first, as the parts that it shares precede it
            self._indexes[digest] = len(self.shared)
            self.shared.append(entry)
        return {REFERENCE: f"{WHERE}{self._indexes[digest]}"}


def _digest(value: Any) -> bytes | None:  # noqa: ANN401  any JSON
    """Return a digest of a value; None if the value is too small to be shared.

    marshal distinguishes 1 from 1.0 and from True, and writes numbers faster than JSON does.
    """
    minimum = MIN_TEXT if isinstance(value, str) else MIN_BYTES
    if not isinstance(value, (dict, list, str)) or (minimum == MIN_TEXT and len(value) < minimum):
        return None
    data = marshal.dumps(value, 2)
    return blake2b(data, digest_size=16).digest() if len(data) >= minimum else None


def _escaped(key: str) -> str:
    """Return a key; an object's own key ``$ref`` is no reference and gets one more ``$``."""
    return f"${key}" if key.lstrip("$") == "ref" and key != "ref" else key


def _unescaped(key: str) -> str:
    return key[1:] if key.startswith("$$") and key.lstrip("$") == "ref" else key
