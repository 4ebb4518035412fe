"""Reports of earlier versions, in the form of now.

Until schema_version 10 fields were only added. 11 left some out. In 12 what questions say of a row lies
under ``answers``; since then fields were only added.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

LAST = 11
"""The last version that has another form."""
_GONE = (
    "an adapter leaves other gradients",
    "bfloat16 by autocast = by weights",
    "collator",
    "sampler",
)
"""Relations between ways to train, and subjects of Trainer's changes, that are no longer asked."""
_OF_TEXTS = ("parts", "corpus", "conversations")
"""Keys of a tokenizer that were empty in every report."""
_BY_TRAINER = "Trainer: rows accumulated = one batch"


_REWORDED = 15
"""The last version that has words which no report has any more."""
_WORDS = (
    (re.compile(r" --stacks "), " --environments "),
    (
        re.compile(r"^the other stacks are compared with this one$"),
        "the other environments are compared with this one",
    ),
    (re.compile(r"is called in another way \(computed ([^;)]+)[^)]*\)"), r"is computed by \1"),
    (re.compile(r"is called in another way \("), "is computed by another call ("),
    (re.compile(r"computed by hand(?= → )"), "computed eager"),
    (re.compile(r"(^|(?<=: )|(?<=by )|(?<= → ))by hand(?=$|;| → |,| \()"), "eager"),
    (re.compile(r"\b(in|by) this stack\b"), r"\1 this environment"),
    (re.compile(r"^this stack cannot load"), "this release cannot load"),
)
"""Words of earlier versions and of now; names of facts, such as those of relations, are not among them."""
_MARKS = ("stack", "by hand", "another way")
"""A text without any of these has none of the words of earlier versions."""

Row = dict[str, Any]


def reworded(document: dict[str, Any]) -> dict[str, Any]:
    """Return a report.json with its sentences in the words of now; its facts stay."""
    if document["schema_version"] > _REWORDED:
        return document
    return document | {
        key: _reworded(document[key]) for key in ("command", "rows") if key in document
    }


def _reworded(value: Any) -> Any:  # noqa: ANN401  # any JSON
    match value:
        case dict():
            return {key: _reworded(part) for key, part in value.items()}
        case list():
            return list(map(_reworded, value))
        case str() if any(mark in value for mark in _MARKS):
            for words, better in _WORDS:
                value = words.sub(better, value)
    return value


def now(document: dict[str, Any]) -> dict[str, Any]:
    """Return a report.json of schema_version 5 to 11 in the form of now."""
    rows = [_with_answers(row, document) for row in document.get("rows", ())]
    rest = {key: value for key, value in document.items() if key not in _MOVED_BESIDE}
    return {**_without_gone(rest), "rows": list(map(_without_gone, rows))}


def _with_answers(row: Row, document: dict[str, Any]) -> Row:
    answers = {name: take(row, document) for name, take in _ANSWERS.items()}
    rest = {key: value for key, value in row.items() if key not in _MOVED}
    return rest | {"answers": {name: answer for name, answer in answers.items() if answer}}


def _by_stack(key: str) -> Callable[[Row, dict[str, Any]], dict[str, Any] | None]:
    """Return what takes a key of a row whose values are by stack."""

    def take(row: Row, _document: dict[str, Any]) -> dict[str, Any] | None:
        return {"stacks": row[key]} if row.get(key) else None

    return take


def _crossings(row: Row, document: dict[str, Any]) -> dict[str, Any] | None:
    """Return the crossings of a row, which stood beside the rows."""
    names = ("model", "variant")
    for entry in document.get("crossings", ()):
        if all(entry[name] == row[name] for name in names):
            return {key: value for key, value in entry.items() if key not in names}
    return None


def _processors(row: Row, _document: dict[str, Any]) -> dict[str, Any] | None:
    stacks = row.get("processors")
    return {"stacks": stacks, "compared": row.get("processed", {})} if stacks else None


def _training(row: Row, _document: dict[str, Any]) -> dict[str, Any] | None:
    """Return the training steps, without what Trainer does."""
    steps = {stack: {**step} for stack, step in row.get("training", {}).items()}
    for step in steps.values():
        step.pop("trainer", None)
        step["relations"] = _ways(step, of_trainer=False)
    return {"stacks": steps} if steps else None


def _trainer(row: Row, _document: dict[str, Any]) -> dict[str, Any] | None:
    """Return what Trainer does, which was a part of the training steps."""
    runs = {
        stack: {**step["trainer"], "relations": _ways(step, of_trainer=True)}
        for stack, step in row.get("training", {}).items()
        if step.get("trainer") is not None
    }
    return {"stacks": runs} if runs else None


def _ways(step: dict[str, Any], *, of_trainer: bool) -> dict[str, Any] | None:
    """Return Trainer's relations of a step, or all others; None if there are none."""
    ways = step.get("relations")
    if ways is None:
        return None
    own = {}
    for key in ("relations", "inapplicable"):
        if entries := [way for way in ways.get(key, ()) if _is_by_trainer(way) == of_trainer]:
            own[key] = entries
    if of_trainer and not own:
        return None
    return own | {key: value for key, value in ways.items() if key == "no_float64"}


def _is_by_trainer(way: dict[str, Any]) -> bool:
    return bool(way["relation"] == _BY_TRAINER)


_ANSWERS: dict[str, Callable[[Row, dict[str, Any]], dict[str, Any] | None]] = {
    "texts": _by_stack("texts"),
    "processors": _processors,
    "relations": _by_stack("relations"),
    "usage": _by_stack("usage"),
    "crossings": _crossings,
    "training": _training,
    "trainer": _trainer,
}
"""Question -> what takes its answer from a row of an earlier version."""
_MOVED = frozenset({"texts", "processors", "processed", "relations", "usage", "training"})
"""Keys of a row that are part of its answers now."""
_MOVED_BESIDE = frozenset({"crossings"})
"""Keys of a report that are part of the answers of its rows now."""


def _without_gone(part: dict[str, Any]) -> dict[str, Any]:
    """Return an object without what no report has any more, at every depth."""
    return {
        key: _clean(value)
        for key, value in part.items()
        if not (key == "draws" and "standing" in part)
        and not (key in _OF_TEXTS and "knows_backend" in part)
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
