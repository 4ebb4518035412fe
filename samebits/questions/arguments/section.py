"""Arguments of forward and generate() whose effect differs, once for all models in which the same happens."""

from __future__ import annotations

from samebits.questions.arguments.compare import METHODS
from samebits.questions.arguments.records import ARGUMENTS, ArgumentsSignal
from samebits.questions.arguments.rules import call_of, in_words
from samebits.questions.differing import Differing


def _effect(signal: ArgumentsSignal, call: str) -> str:
    words = {
        call_of(method, name): in_words(effect, method)
        for method in METHODS
        for name, effect in signal.of(method).items()
    }
    return words.get(call, "")


SECTION = Differing(
    title="Arguments of forward and generate()",
    thing="argument",
    intro="{}: forward, and generate() where the model has it, are called with one argument more at a time. "
    "Listed is what the reference reads, and an environment ignores or refuses. Where both name the argument, it may be "
    "the reference that does so. It does not affect the verdict.",
    key=ARGUMENTS,
    name=lambda difference: call_of(difference.method, difference.argument),
    in_words=_effect,
)
