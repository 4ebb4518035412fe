"""Reports of earlier versions, in the form of now.

Until schema_version 10 fields were only added. 11 left some out. In 12 what questions say of a row lies
under ``answers``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_GONE = (
    "an adapter leaves other gradients",
    "bfloat16 by autocast = by weights",
    "collator",
    "sampler",
)
"""Relations between ways to train, and subjects of Trainer's changes, that are no longer asked."""


Row = dict[str, Any]


def now(document: dict[str, Any]) -> dict[str, Any]:
    """Return a report.json of schema_version 5 to 11 in the form of now."""
    rows = [_with_answers(row, document) for row in document["rows"]]
    return {**_without_gone(document), "rows": list(map(_without_gone, rows))}


def _with_answers(row: Row, document: dict[str, Any]) -> Row:
    answers = {name: take(row, document) for name, take in _ANSWERS.items()}
    rest = {key: value for key, value in row.items() if key not in _MOVED}
    return rest | {"answers": {name: answer for name, answer in answers.items() if answer}}


def _by_stack(key: str) -> Callable[[Row, dict[str, Any]], dict[str, Any] | None]:
    """Return what takes a key of a row whose values are by stack."""

    def take(row: Row, _document: dict[str, Any]) -> dict[str, Any] | None:
        return {"stacks": row[key]} if row.get(key) else None

    return take


def _processors(row: Row, _document: dict[str, Any]) -> dict[str, Any] | None:
    stacks = row.get("processors")
    return {"stacks": stacks, "compared": row.get("processed", {})} if stacks else None


_ANSWERS: dict[str, Callable[[Row, dict[str, Any]], dict[str, Any] | None]] = {
    "processors": _processors,
    "relations": _by_stack("relations"),
}
"""Question -> what takes its answer from a row of an earlier version."""
_MOVED = frozenset({"processed", "processors", "relations"})
"""Keys of a row that are part of its answers now."""


def _without_gone(part: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what no report has any more, at every depth."""
    return {
        key: _clean(value)
        for key, value in part.items()
        if not (key == "draws" and "standing" in part)
    }


def _clean(value: Any) -> Any:  # noqa: ANN401  # any JSON
    if isinstance(value, dict):
        return _without_gone(value)
    if isinstance(value, list):
        return [_clean(element) for element in value if not _is_gone(element)]
    return value


def _is_gone(element: object) -> bool:
    return isinstance(element, dict) and (
        element.get("relation") in _GONE or element.get("subject") in _GONE
    )
