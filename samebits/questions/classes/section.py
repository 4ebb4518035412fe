"""Classes whose load differs, once for all models in which the same happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.questions.classes.records import CLASSES
from samebits.questions.classes.rules import in_words
from samebits.questions.differing import Differing

if TYPE_CHECKING:
    from samebits.questions.classes.records import ClassesSignal


def _load(signal: ClassesSignal, name: str) -> str:
    return in_words(signal.loads.get(name))


SECTION = Differing(
    title="Other classes",
    thing="loaded by",
    intro="The checkpoint of {} loaded by other classes than its own: the base model, other heads, parts. Listed "
    "is what loads another class or reads other tensors than under the reference, or whose base model computes "
    "other bits. It does not affect the verdict.",
    key=CLASSES,
    name=lambda difference: str(difference.name),
    in_words=_load,
)
