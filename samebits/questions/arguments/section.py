"""Arguments of forward whose effect differs, once for all models in which the same happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.questions.arguments.records import ARGUMENTS
from samebits.questions.arguments.rules import in_words
from samebits.questions.differing import Differing

if TYPE_CHECKING:
    from samebits.questions.arguments.records import ArgumentsSignal


def _effect(signal: ArgumentsSignal, name: str) -> str:
    return in_words(signal.effects[name]) if name in signal.effects else ""


SECTION = Differing(
    title="Arguments of forward",
    thing="argument",
    intro="{} called with one argument more at a time. Listed is what the reference reads, and an environment "
    "ignores or refuses. It does not affect the verdict.",
    key=ARGUMENTS,
    name=lambda difference: str(difference.argument),
    in_words=_effect,
)
