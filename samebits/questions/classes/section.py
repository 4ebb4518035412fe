"""Classes whose load differs, once for all models in which the same happens."""

from __future__ import annotations

from samebits.questions.classes.records import CLASSES, ClassesSignal
from samebits.questions.classes.rules import in_words, shown
from samebits.questions.differing import Differing


def _load(signal: ClassesSignal, name: str) -> str:
    load = {**signal.loads, **signal.from_base}.get(name)
    computed = ", ".join(shown(load, output) for output in load.numbers) if load else ""
    return "; ".join(filter(None, (in_words(load), f"computes {computed}" if computed else "")))


SECTION = Differing(
    title="Other classes",
    thing="loaded by",
    intro="The checkpoint of {} loaded by other classes than its own: the base model, other heads, parts. Listed "
    "is what loads another class or reads other tensors than under the reference, whose base model computes "
    "other bits, or whose head computes other numbers. It does not affect the verdict.",
    key=CLASSES,
    name=lambda difference: str(difference.name),
    in_words=_load,
)
