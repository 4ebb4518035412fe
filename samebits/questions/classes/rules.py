"""SB312 to SB314: what other classes than its own read of a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.findings.rule import Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.classes.compare import differences
from samebits.questions.classes.records import CLASSES
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samebits.findings.case import Case
    from samebits.questions.classes.records import ClassLoad, Kind


def _of_kind(kind: Kind) -> Callable[[Case], Iterator[Sighting]]:
    """Return a check for classes whose loads differ in this way."""

    def check(case: Case) -> Iterator[Sighting]:
        pair = CLASSES.on_both(case.reference, case.capture)
        if pair is None:
            return
        for each in differences(*pair):
            if each.kind == kind:
                sides = side_lines(case, in_words(each.reference), in_words(each.candidate))
                yield Sighting(f"{each.name}.from_pretrained", sides)

    return check


def in_words(load: ClassLoad | None) -> str:
    """Return what a class reads, as lines of evidence and tables have it."""
    if load is None:
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
    return "; ".join(parts)


RULES = (
    Rule("SB312", _of_kind("tensors")),
    Rule("SB313", _of_kind("class")),
    Rule("SB314", _of_kind("outputs")),
)
