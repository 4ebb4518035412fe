"""SB320, SB321: new models whose first weights are drawn otherwise, or are what memory held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from samebits.compare.describe import some
from samebits.findings.case import Case
from samebits.findings.rule import Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.classes.records import CLASSES
from samebits.questions.initial.compare import differences, is_unwritten, stated
from samebits.questions.initial.records import INITIAL, FirstWeights, InitialSignal
from samebits.text.lists import grouped
from samebits.text.numbers import first_of, plural

_MAX_CHANGES = 6
"""Changes of a model that the evidence has."""
_MAX_NAMES = 3
"""Tensors of one change that a line names."""
_UNIFORM = (1.6, 2.0)
"""Kurtosis of a sample that is called uniform."""
_ENOUGH = 1000
"""Values from which on a sample shows that."""


def in_words(signal: InitialSignal, made: str, names: Iterable[str]) -> str:
    """Return how tensors of one change start in an environment, and the code that says so."""
    sides = [signal.made[made].tensors[name] for name in names]
    values = _fixed(sides) if sides[0].is_fixed else _drawn(sides)
    fields = {stated(signal, side) for side in sides}
    field = "" if "" in fields else f", which is config.{min(fields)}"
    places = {side.writer.place for side in sides if side.writer is not None}
    return f"{values}{field}{_by(sides[0])}{' and others' if len(places) > 1 else ''}"


def _by(side: FirstWeights) -> str:
    writer = side.writer
    return "" if writer is None else f"; {writer.function}, {writer.place}: {writer.code}"


def _fixed(sides: list[FirstWeights]) -> str:
    least, largest = min(s.least for s in sides), max(s.largest for s in sides)
    if least == largest:
        return f"all {least:.3g}"
    return f"{least:.3g} to {largest:.3g}, the same under each seed"


def _drawn(sides: list[FirstWeights]) -> str:
    first = sides[0]
    low, high = _UNIFORM
    form = " uniformly" if first.n_values >= _ENOUGH and low < first.kurtosis < high else ""
    least, largest = min(s.std for s in sides), max(s.std for s in sides)
    std = f"{least:.3g}" if largest <= 1.05 * least else f"{least:.3g} to {largest:.3g}"
    centre = f" around {first.mean:.3g}" if abs(first.mean) > 0.25 * first.std else ""
    rows = sum(side.zero_rows for side in sides)
    zeros = f", {plural(rows, 'row')} of zeros" if rows else ""
    return f"drawn{form}{centre}, std {std}{zeros}"


def _drawn_otherwise(case: Case) -> Iterator[Sighting]:
    """Find tensors that both releases start otherwise, once for each change of a rule."""
    pair = INITIAL.on_both(case.reference, case.capture)
    if pair is None:
        return
    for made, changes in grouped(differences(*pair), lambda each: each.made).items():
        lines = []
        for each in changes[:_MAX_CHANGES]:
            sides = (in_words(side, made, each.tensors) for side in pair)
            lines += [some(each.tensors, _MAX_NAMES), *side_lines(case, *sides)]
        more = len(changes) - _MAX_CHANGES
        rest = (f"and {plural(more, 'more change')}",) if more > 0 else ()
        yield Sighting(f"{pair[1].made[made].model_class}, {made}", (*lines, *rest))


def _unwritten(case: Case) -> Iterator[Sighting]:
    """Find tensors of new models, and of other heads, whose values no seed decides."""
    answer, classes = INITIAL.in_cell(case.capture), CLASSES.in_cell(case.capture)
    seen = set()
    for made, new in answer.made.items() if answer is not None else ():
        lines = [
            f"{name}: {_of_memory(weights)}{_by(weights)}"
            for name, weights in new.tensors.items()
            if is_unwritten(weights)
        ]
        seen.add(new.model_class)
        if lines:
            yield Sighting(f"{new.model_class}, {made}", first_of(lines, _MAX_NAMES, "tensor"))
    for name, load in classes.loads.items() if classes is not None else ():
        if load.unwritten and load.model_class not in seen:
            seen.add(load.model_class)
            lines = [f"{tensor}: uninitialised memory" for tensor in load.unwritten]
            yield Sighting(
                f"{load.model_class}, {name}.from_pretrained", first_of(lines, _MAX_NAMES, "tensor")
            )


def _of_memory(weights: FirstWeights) -> str:
    if weights.n_unwritten:
        return f"{plural(weights.n_unwritten, 'element')} of uninitialised memory"
    return "other values in a second model of the same seed"


RULES = (Rule("SB320", _drawn_otherwise), Rule("SB321", _unwritten))
