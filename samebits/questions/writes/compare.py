"""Two releases' files of the same model and tokenizer, compared by bytes and by the keys in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from samebits.compare.facts import ABSENT, generalised
from samebits.questions.writes.records import TENSORS, Difference, WritesOfRow, WritesReport
from samebits.records.question import first_side

if TYPE_CHECKING:
    from samebits.records.capture import Capture
    from samebits.records.written import Written, WrittenFile

    Saves = Mapping[str, Written]


def saves(capture: Capture) -> Saves:
    """Return what the saves of a cell wrote: ``model`` and ``tokenizer``, as far as both were saved."""
    integrity, tokenizer = capture.signals.integrity, capture.signals.tokenizer
    named = {
        "model": integrity.written if integrity is not None else None,
        "tokenizer": tokenizer.written if tokenizer is not None else None,
    }
    return {name: save for name, save in named.items() if save is not None and save.files}


def of_captures(captures: Mapping[str, Capture], reference: str) -> WritesOfRow | None:
    """Return what each stack writes otherwise than the reference, or than the first that wrote."""
    sides = {stack: side for stack, run in captures.items() if (side := saves(run))}
    first = first_side(reference, sides)
    reports = {
        stack: WritesReport(reference=first, differences=tuple(differences(sides[first], side)))
        for stack, side in sides.items()
        if stack != first
    }
    return WritesOfRow(stacks=reports) if reports else None


def differences(reference: Saves, candidate: Saves) -> Iterator[Difference]:
    """Yield the tensors, files and keys that both sides saved, and one of them otherwise."""
    for name in (name for name in reference if name in candidate):
        before, after = reference[name], candidate[name]
        yield from _tensors(before, after)
        for file in {**before.files, **after.files}:
            yield from _file(file, before.files.get(file), after.files.get(file))


def _tensors(reference: Written, candidate: Written) -> Iterator[Difference]:
    if reference.tensors is None or candidate.tensors is None:
        return
    yield from _keys(TENSORS, reference.tensors, candidate.tensors)


def _file(name: str, before: WrittenFile | None, after: WrittenFile | None) -> Iterator[Difference]:
    if before is None or after is None:
        sides = (ABSENT if side is None else "written" for side in (before, after))
        yield Difference(file=name, reference=next(sides), candidate=next(sides))
        return
    changed = [*_keys(name, before.keys, after.keys)]
    if not changed and before.digest != after.digest:
        changed = [Difference(file=name, reference=before.digest, candidate=after.digest)]
    yield from changed


def _keys(file: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Difference]:
    """Yield keys with other values; those that differ in numbers only, once."""
    changed: dict[str, Difference] = {}
    for key in {**before, **after}:
        if before.get(key) != after.get(key):
            name = generalised(key)
            sides = (side.get(key, ABSENT) for side in (before, after))
            changed.setdefault(
                name, Difference(file=file, key=name, reference=next(sides), candidate=next(sides))
            )
    yield from changed.values()
