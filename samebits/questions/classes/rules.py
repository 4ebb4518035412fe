"""SB312 to SB316: what other classes than its own read of a checkpoint, and what is made of its config."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.findings.case import Case
from samebits.findings.rule import Check, Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.classes.compare import (
    changed_outputs,
    differences,
    other_dtypes,
    smaller,
)
from samebits.questions.classes.records import CLASSES, ClassLoad, Kind
from samebits.text.numbers import first_of, plural

_SAME_BASE = "the base model below it computes the same"
_MAX_TENSORS = 4
"""Tensors of a new model that the evidence shows."""
_MAX_VALUES = 4
"""Values of an output that the evidence shows."""


def _of_kind(kind: Kind) -> Check:
    """Return a check for classes whose loads differ in this way."""

    def check(case: Case) -> Iterator[Sighting]:
        for each in CLASSES.of_both(case.reference, case.capture, differences):
            if each.kind == kind:
                sides = side_lines(case, in_words(each.reference), in_words(each.candidate))
                where = f"{each.name}.from_pretrained"
                yield Sighting(where, sides, of_reference=each.of_reference)

    return check


def _other_heads(case: Case) -> Iterator[Sighting]:
    """Find heads that compute something else on a base model that computes the same."""
    for each in CLASSES.of_both(case.reference, case.capture, differences):
        if each.kind == "head" and each.candidate is not None:
            names = changed_outputs(each.reference, each.candidate)
            loads = (each.reference, each.candidate)
            sides = side_lines(
                case, *("; ".join(shown(load, name) for name in names) for load in loads)
            )
            yield Sighting(f"{each.reference.model_class}.forward", (*sides, _SAME_BASE))


def shown(load: ClassLoad, name: str) -> str:
    """Return the value of a loss, or the first ones of an output."""
    values = load.numbers[name]
    shown = values[:-1][:_MAX_VALUES] or values
    more = ", …" if len(values) - 1 > _MAX_VALUES else ""
    return f"{name.partition('(')[0]} {', '.join(f'{value:.6g}' for value in shown)}{more}"


def in_words(load: ClassLoad | None) -> str:
    """Return what a class reads, as lines of evidence and tables have it."""
    if load is None or not load.model_class:
        return "no class for this config"
    if load.raised or load.left_out:
        return f"{load.model_class}: {load.raised or load.left_out}"
    if not load.n_tensors:
        return f"{load.model_class}, the checkpoint's own class"
    read = f"{load.n_tensors - load.n_left} of {plural(load.n_tensors, 'tensor')} read"
    parts = [f"{load.model_class}: {read}"]
    if load.n_fresh:
        fresh = ", ".join(load.fresh) + (", …" if load.n_fresh > len(load.fresh) else "")
        parts.append(
            f"{load.n_fresh} of its own missing from the checkpoint, with values of a new model: {fresh}"
        )
    if load.outputs == "other bits":
        parts.append("its base model computes other bits than that of the checkpoint's own class")
    if load.forward_raised:
        parts.append(f"its forward raises {load.forward_raised}")
    return "; ".join(parts)


def _dtypes_of_new_models(case: Case) -> Iterator[Sighting]:
    """Find new models with fewer bits than were asked for, or with other dtypes than in the reference."""
    answer, reference = CLASSES.in_cell(case.capture), CLASSES.in_cell(case.reference)
    for arguments, new in answer.made.items() if answer is not None else ():
        where = f"from_config, {arguments}"
        if few := smaller(new):
            lines = [f"{name}: {', '.join(dtypes)}" for name, dtypes in few.items()]
            yield Sighting(where, first_of(lines, _MAX_TENSORS, "tensor"))
        before = reference.made.get(arguments) if reference is not None else None
        others = other_dtypes(before, new) if before is not None else {}
        if others:
            lines = [f"{n}: {' or '.join(map(', '.join, pair))}" for n, pair in others.items()]
            assert case.reference is not None
            stacks = f"{case.reference.cell.stack} or {case.capture.cell.stack}"
            shown = first_of(lines, _MAX_TENSORS, "tensor")
            heeds = all(after == (new.asked,) for _, after in others.values())
            yield Sighting(where, (f"under {stacks}", *shown), of_reference=heeds)


RULES = (
    Rule("SB312", _of_kind("tensors")),
    Rule("SB313", _of_kind("class")),
    Rule("SB314", _of_kind("outputs")),
    Rule("SB315", _other_heads),
    Rule("SB316", _dtypes_of_new_models),
)
