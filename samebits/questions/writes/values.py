"""SB217: values that two releases write otherwise of the same checkpoint, names that moved taken for the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from samebits.findings.case import Case
from samebits.findings.configs import value_at
from samebits.findings.rule import Sighting
from samebits.questions.crossings.rules import is_infinity_lost
from samebits.questions.writes.compare import saves
from samebits.records.capture import Capture
from samebits.records.written import Written
from samebits.text.numbers import first_of

_CONFIG = "config.json"
_FILES = {
    _CONFIG: "model",
    "generation_config.json": "model",
    "tokenizer_config.json": "tokenizer",
}
"""File -> the save that has it."""
_NOTHING = {"null", "{}", "[]", '""'}
"""A value that states nothing: a release may fill it."""
_OF_RELEASE = {
    *(
        "_attn_implementation_autoset",
        "_from_model_config",
        "tokenizer_class",
        "backend",
        "is_local",
    ),
    *(
        "local_files_only",
        "extra_special_tokens",
        "additional_special_tokens",
        "added_tokens_decoder",
    ),
}
"""Keys that say how a release is built, or that 4.x and 5.x write in forms of their own."""
_RENAMED = {"torch_dtype": "dtype", "type": "rope_type"}
_ROPE = "rope_parameters"
"""From 5.0 on, what has rope_theta, the keys of rope_scaling, and partial_rotary_factor."""
_FLOAT = "__float__"
_HASH = re.compile(r"… [0-9a-f]+$")
"""Ends the record of a long value."""
_MAX_LINES = 6


class _Change(NamedTuple):
    """A key, and its value on both sides as JSON."""

    key: str
    name: str
    """The key under which the candidate has it."""
    before: str
    after: str


def other_values(case: Case) -> Iterator[Sighting]:
    """Find keys of a saved file that both releases write, with another value in one of them.

    The side that does not write what config.json states is the wrong one. What config.json leaves out counts only if
    both loaded the same, as a default that moved is SB209; what a release loses by itself is SB208.
    """
    if case.reference is None:
        return
    sides = saves(case.reference), saves(case.capture)
    is_named = is_infinity_lost(case)
    for file, save in _FILES.items():
        before, after = (side.get(save) for side in sides)
        if before is None or after is None:
            continue
        by_side: dict[bool, list[str]] = {}
        for change in _changes(file, before, after):
            if is_named and _is_infinity(change):
                continue
            is_of_reference = _wrong_reference(file, change, case.reference, case.capture)
            if is_of_reference is not None:
                by_side.setdefault(is_of_reference, []).append(_line(change, case))
        if file == _CONFIG and (unlike := [*_unlike_loaded(before, after, case)]):
            by_side.setdefault(False, []).extend(unlike)
        for is_of_reference, lines in by_side.items():
            yield Sighting(
                file,
                first_of(lines, _MAX_LINES, "key"),
                saver=(case.reference if is_of_reference else case.capture).cell.stack,
                of_reference=is_of_reference,
            )


def _line(change: _Change, case: Case) -> str:
    assert case.reference is not None
    old, new = case.reference.cell.stack, case.capture.cell.stack
    under = "" if change.name == change.key else f" as {change.name}"
    before, after = in_words(change.before, change.after)
    return f"{change.key}: {old} writes {before}, {new} writes {after}{under}"


def in_words(before: str, after: str) -> tuple[str, str]:
    """Return two values that differ: of a long one its beginning, and not the hash that tells them apart."""
    old, new = (_HASH.sub("…", text) for text in (before, after))
    return old, (f"the same beginning and another end ({new})" if old == new else new)


def _changes(file: str, before: Written, after: Written) -> Iterator[_Change]:
    if file not in before.files or file not in after.files:
        return
    old, new = before.files[file].keys, after.files[file].keys
    lost = {*before.lost.get(file, ()), *after.lost.get(file, ())}
    for key, value in old.items():
        if value in _NOTHING or key in lost or _is_left_out(key):
            continue
        moved = {name: new[name] for name in _names(key, old, new)}
        if moved and not any(_is_same(value, other) for other in moved.values()):
            name, other = next(iter(moved.items()))
            if other not in _NOTHING or name == key:
                yield _Change(key, name, value, other)


def _unlike_loaded(before: Written, after: Written, case: Case) -> Iterator[str]:
    """Yield the keys that the candidate alone writes, with another value than both releases loaded."""
    assert case.reference is not None
    old, new = (
        side.files[_CONFIG].keys if _CONFIG in side.files else {} for side in (before, after)
    )
    lost = after.lost.get(_CONFIG, {})
    for key, value in new.items():
        if key in old or key in lost or _is_left_out(key):
            continue
        loaded, known = (value_at(s.signals.config, key) for s in (case.capture, case.reference))
        if (
            loaded is None
            or loaded != known
            or is_cut(value)
            or _is_same(json.dumps(loaded), value)
        ):
            continue
        yield f"{key}: {case.capture.cell.stack} loads {json.dumps(loaded)} and writes {value}"


def is_cut(value: str) -> bool:
    """Return True for a long value, of which only the beginning and a hash were recorded."""
    try:
        json.loads(value)
    except ValueError:
        return True
    return False


def _is_left_out(key: str) -> bool:
    path = key.split(".")
    return bool(_OF_RELEASE.intersection(path) or (path[-1] == "model_type" and path[1:]))


def _names(key: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """Yield the keys under which the candidate may have a value: its own, else new ones that are known to follow it."""
    if key in new:
        yield key
        return
    *parts, last = key.split(".")
    names = {last, _RENAMED.get(last, last)}
    if "rope_scaling" in parts:
        parts.remove("rope_scaling")
    within = "".join(f"{part}." for part in parts)
    for name in (name for name in new if name not in old):
        *levels, end = name.removeprefix(within).split(".")
        if name.startswith(within) and end in names and levels[:1] in ([], [_ROPE]):
            yield name


def _is_same(before: str, after: str) -> bool:
    """Return True for equal values; 1 and 1.0 are."""
    if is_cut(before) or is_cut(after):
        return before == after
    return bool(json.loads(before) == json.loads(after))


def _is_infinity(change: _Change) -> bool:
    """Return True if the values differ only in how they write infinity, as 5.x has a form of its own."""
    if is_cut(change.before) or is_cut(change.after):
        return False
    before, after = (
        json.loads(text, object_hook=_without_form) for text in (change.before, change.after)
    )
    return bool(before == after)


def _without_form(value: dict[str, Any]) -> object:
    return float(value[_FLOAT]) if value.keys() == {_FLOAT} else value


def _wrong_reference(
    file: str, change: _Change, reference: Capture, candidate: Capture
) -> bool | None:
    """Return whether it is the reference that writes a wrong value; None if neither does."""
    if file != _CONFIG:
        return False
    used = (candidate.signals.config_use or {}).get(change.key)
    if used is not None:
        return _is_same(json.dumps(used.written), change.after)
    loaded = [value_at(side.signals.config, change.key) for side in (reference, candidate)]
    return False if None not in loaded and loaded[0] == loaded[1] else None
