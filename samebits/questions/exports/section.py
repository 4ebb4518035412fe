"""Programs that differ, once for all models in which the same happens."""

from __future__ import annotations

from samebits.questions.differing import Differing
from samebits.questions.exports.records import EXPORTS, ExportsSignal
from samebits.questions.exports.rules import in_words


def _name(way: str, prompt: str) -> str:
    return f"{way} of {prompt}"


def _of(signal: ExportsSignal, name: str) -> str:
    words = {
        _name(way, prompt): in_words(program)
        for way, programs in signal.programs.items()
        for prompt, program in programs.items()
    }
    return words.get(name, "")


SECTION = Differing(
    title="Programs of torch.export and torch.jit.trace",
    thing="program",
    intro="{}: a program is made of a forward over one prompt, and run on the inputs that it was made of and on others. "
    "Listed is what works in one environment and raises, or computes something else than forward, in another. It does not "
    "affect the verdict.",
    key=EXPORTS,
    name=lambda difference: _name(difference.way, difference.prompt),
    in_words=_of,
)
