"""Arguments of forward and generate(), their effects in one environment, and two environments compared.

probes/samebits_probe/questions/arguments/ writes :class:`ArgumentsSignal` without this class; it is the schema.
"""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field

from samebits.records.question import Answer, ComparedOfRow, Key
from samebits.records.record import Record

Effect = Literal[
    "other numbers",
    "another shape",
    "another form",
    "more fields",
    "rounding",
    "order of sums",
    "none",
    "raises",
]
"""What an argument changes in the output of a call. rounding: so little that another CPU may show none.
order of sums: so little, in float32, that nothing of what it asks for is computed."""


Kind = Literal["ignored", "refused"]
"""What one side does with an argument that has an effect on the other. ignored: it has none. refused: the call raises."""
Method = Literal["forward", "generate"]
"""The method of the model that is called."""


class ArgumentEffect(Record):
    """One argument, given to forward or generate() beside the inputs of a prompt."""

    named: bool
    """Whether the method's signature, or a generation config, has it; otherwise only ``**kwargs`` can take it."""
    effect: Effect
    message: str = ""
    """The exception, the shapes, the fields."""
    at: str = ""
    """File and line of transformers that raise."""
    without: tuple[float, ...] = ()
    """Evenly spaced logits without the argument, and the norm of all; () in another dtype than float32, and where they
    are not all finite. Of a generate() that returns another shape the number of tokens. () of any other effect."""
    numbers: tuple[float, ...] = ()
    """The same with it."""


class ArgumentsSignal(Answer):
    """The arguments that were given; it does not affect the verdict."""

    effects: dict[str, ArgumentEffect] = Field(default_factory=dict)
    """Those of forward."""
    generate: dict[str, ArgumentEffect] = Field(default_factory=dict)
    """Those of generate(), of a model that generates from the prompt."""
    states: dict[str, dict[str, tuple[str, ...]]] = Field(default_factory=dict)
    """Prompt -> field of the output, such as ``hidden_states`` -> the layer whose output each entry holds, such as
    ``layer 3``; '' for none."""

    ones: dict[str, ArgumentEffect] = Field(default_factory=dict)
    """Prompt with an image, a video or a sound -> what an attention mask of ones changes."""

    def trimmed(self) -> Self:
        """Return the effects without their numbers."""
        none: dict[str, object] = {"without": (), "numbers": ()}
        sides = {
            side: {name: each.model_copy(update=none) for name, each in of_side.items()}
            for side, of_side in (("effects", self.effects), ("generate", self.generate))
        }
        return self.model_copy(update=sides)

    def of(self, method: Method) -> dict[str, ArgumentEffect]:
        """Return argument -> effect for one method."""
        return self.effects if method == "forward" else self.generate


UNREAD: Final = frozenset({"none", "order of sums"})
"""Effects of an argument that is ignored."""


class ArgumentDifference(Record):
    """One argument whose effect differs."""

    argument: str
    method: Method
    kind: Kind
    reference: ArgumentEffect
    candidate: ArgumentEffect

    @property
    def of_reference(self) -> bool:
        """True if the reference ignores or refuses what the candidate reads."""
        read = UNREAD if self.kind == "ignored" else {"raises"}
        return self.reference.effect in read and self.candidate.effect not in read


class ArgumentsOfRow(ComparedOfRow[ArgumentsSignal, ArgumentDifference]):
    """The arguments of a row's cells."""


ARGUMENTS = Key(
    "arguments",
    ArgumentsSignal,
    ArgumentsOfRow,
    switch="Whether to call forward and generate() with one argument more at a time, to see which have an effect.",
    hint="does each argument of forward and generate() still have its effect",
)
