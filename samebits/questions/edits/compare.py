"""The same edits of a model in two environments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from samebits.questions.edits.records import (
    Edit,
    EditDifference,
    EditsSignal,
    NewValues,
    Part,
)

_NONE, _TIMES = 1e-2, 3.0
"""Up to where new values are all the mean, and how many times another spread is another distribution."""
KEPT = "as it should be"
"""What a part is that an edit does not break."""


def results(edit: Edit) -> dict[str, str]:
    """Return part, fact or what has new values -> what it is after an edit."""
    parts = dict.fromkeys(get_args(Part), KEPT) if not edit.left_out else {}
    facts = {name: after for name, (_, after) in edit.facts.items()}
    new = {_new_of(name): _in_words(values) for name, values in edit.new.items()}
    return {**parts, **facts, **new, **edit.broken}


def _new_of(name: str) -> str:
    return f"new values of {name}"


def changed_facts(before: Edit, after: Edit) -> Iterator[tuple[str, str, str]]:
    """Yield facts that are alike before the edit and differ after it, with both values."""
    if before.facts.get("asked") != after.facts.get("asked"):
        return  # another number of tokens was asked for
    for name in before.facts.keys() & after.facts.keys():
        sides = before.facts[name], after.facts[name]
        if sides[0][0] == sides[1][0] and sides[0][1] != sides[1][1]:
            yield name, sides[0][1], sides[1][1]


def other_values(before: Edit, after: Edit) -> Iterator[tuple[str, str, str]]:
    """Yield what gets new values of another distribution, beside the same old ones."""
    for name in before.new.keys() & after.new.keys():
        sides = before.new[name], after.new[name]
        if sides[0].old == sides[1].old and _is_other(*sides):
            yield _new_of(name), _in_words(sides[0]), _in_words(sides[1])


def _in_words(new: NewValues) -> str:
    if not new.old:
        return f"mean {new.mean:.2g}, spread {new.spread:.2g}"
    return f"mean off by {new.mean:.2g}, spread {new.spread:.2g}, in units of the old rows' spread"


def _is_other(first: NewValues, second: NewValues) -> bool:
    """Return True if draws are of two distributions: of another spread, or with means further apart than they spread."""
    low, high = sorted((first.spread, second.spread))
    is_wider = high > _NONE and low * _TIMES < high
    return is_wider or abs(first.mean - second.mean) > max(_NONE, high)


def done_otherwise(before: Edit, after: Edit) -> list[tuple[str, str, str]]:
    """Return what an edit makes otherwise, with each side's; nothing where a side breaks something, which says more."""
    if before.left_out or after.left_out or before.broken or after.broken:
        return []
    return sorted([*changed_facts(before, after), *other_values(before, after)])


def _broken_on_one_side(before: Edit, after: Edit) -> Iterator[tuple[str, str, str]]:
    for part in sorted(before.broken.keys() ^ after.broken.keys()):
        yield part, before.broken.get(part, KEPT), after.broken.get(part, KEPT)


def differences(reference: EditsSignal, candidate: EditsSignal) -> Iterator[EditDifference]:
    """Yield what has another result, once for all ways of one edit; SB931 names what raises on one side."""
    seen = set()
    for edit, before in reference.after.items():
        after = candidate.after.get(edit)
        if after is None or before.left_out or after.left_out:
            continue
        for what, *sides in (*_broken_on_one_side(before, after), *done_otherwise(before, after)):
            key = (call_of(edit), what, *(side == KEPT for side in sides))
            if key not in seen:
                seen.add(key)
                yield EditDifference(edit=edit, what=what, reference=sides[0], candidate=sides[1])


def call_of(edit: str) -> str:
    """Return the call of an edit without its way."""
    return edit.partition(",")[0]
