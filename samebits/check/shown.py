"""The command of a check, as a report may have it and as the user typed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from samebits.check.model import NamedModel
from samebits.check.options import Options, code_words
from samebits.matrix.plan import command_line, shown_path, shown_release


class Command(NamedTuple):
    """The command of a check, without the options that say how much is asked."""

    program: tuple[str, ...]
    """The command up to the options of the model's code, as a published report may have it."""
    words: tuple[str, ...]
    """The options that name the releases and the variants."""
    typed: str
    """The model as it was typed."""
    typed_of: dict[str, str]
    """Path in a report -> what was typed, of the options with a path."""

    def shown(self, words: Sequence[str]) -> str:
        """Return the command for a run that shows the same; ``words`` say how much is asked."""
        return command_line(self.program, [*self.words, *words])

    def to_type(self, words: Sequence[str]) -> str:
        """Return that command for the user's own terminal, where no folder is a secret."""
        program = (*self.program[:2], self.typed, *self.program[3:])
        own = tuple(self.typed_of.get(word, word) for word in self.words)
        return self._replace(program=program, words=own).shown(words)


def command_of(
    options: Options,
    model: NamedModel,
    code: dict[str, Any],
    variants: Mapping[str, tuple[str, ...]],
) -> Command:
    """Return the command of the options; ``code`` are those about code in packages."""
    shown_model = model.typed if model.path is None else shown_path(Path(options.model))
    program: tuple[str, ...] = ("samebits", "check", shown_model, *code_words(code))
    if options.trust_remote_code is not None:
        switch = "--trust-remote-code" if options.trust_remote_code else "--no-trust-remote-code"
        program = (*program, switch)
    typed = {"--from": options.first, "--to": options.last, "--inputs": options.inputs}
    shown = {
        "--from": options.first and shown_release(options.first),
        "--to": options.last and shown_release(options.last),
        "--inputs": options.inputs and shown_path(options.inputs),
    }
    words = [word for option, value in shown.items() if value for word in (option, value)]
    for name, values in variants.items():
        words += (f"--{name}", ",".join(values)) if values else ()
    typed_of = {value: str(typed[option]) for option, value in shown.items() if value}
    return Command(program, tuple(words), options.model, typed_of)
