"""What the cells of a model are fed: chosen once from its signature and config, and made once.

The probes write this JSON by hand (probes/samebits_probe/jobs/inputs.py) and read it in every job of the model
(probes/samebits_probe/model/feed.py); this module is its schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from samebits.base.digests import digest_of
from samebits.records.capture import Failure
from samebits.records.record import Record
from samebits.records.tensor import TensorRef

if TYPE_CHECKING:
    from collections.abc import Iterator

FORMAT_VERSION: Literal[1] = 1
# History of FORMAT_VERSION:
# 1: first.


class TokenRow(Record):
    """One row of a prompt of which a tokenizer makes a part: a text, or token ids."""

    text: str = ""
    """Each stack's own tokenizer makes ids of it."""
    at_least: int | None = None
    """Number of ids up to which those of the text are repeated."""
    ids: tuple[int, ...] = ()


class PromptInputs(Record):
    """The arguments of forward for one prompt, or why there are none."""

    tensors: dict[str, TensorRef] = Field(default_factory=dict)
    """Argument of forward -> what is fed; numbers that are not whole are fed in the cell's dtype."""
    real_rows: tuple[tuple[int, int], ...] | None = None
    """As in samebits.records.capture.ForwardFacts."""
    rows: tuple[TokenRow, ...] = ()
    """Of a prompt with texts: the rows of token ids, which each stack makes and pads."""
    pad: int = 0
    """Token id that fills up those rows on the left."""
    masked: bool = False
    """True if one row alone has a mask, too: forward does not go without it."""
    text: str | None = None
    reason: str = ""
    """Why nothing is fed."""
    why: Literal["plain", "inputs"] = "plain"
    """plain: the prompt has no meaning for the model. inputs: the model cannot be fed."""


class InputsFile(Record):
    """What one stack chose for a model."""

    format: Literal["samebits-inputs"] = "samebits-inputs"
    format_version: Literal[1] = FORMAT_VERSION
    model: str
    stack: str
    """The stack that read signature and config; what it chose is fed in every stack."""
    model_class: str = ""
    prompts: dict[str, PromptInputs] = Field(default_factory=dict)
    crossing: PromptInputs = PromptInputs()
    """For the logits that a crossing compares."""
    absent: str = ""
    """Why this stack does not know the model."""
    failure: Failure | None = None
    """What kept it from reading config or class."""

    @property
    def is_chosen(self) -> bool:
        """True unless this stack could not read the model."""
        return not self.absent and self.failure is None

    @property
    def reason(self) -> str:
        """Why this stack chose nothing, in one line; '' if it did."""
        if self.failure is not None:
            return f"{self.failure.type}: {self.failure.in_short}"
        return self.absent

    @property
    def digest(self) -> str:
        """Digest of what is fed, whichever stack chose it."""
        fed = self.model_dump(mode="json", include={"prompts", "crossing"})
        return digest_of(fed)

    def tensors(self) -> Iterator[TensorRef]:
        """Yield every tensor that is fed."""
        for prompt in (*self.prompts.values(), self.crossing):
            yield from prompt.tensors.values()


class Inputs(Record):
    """Where the jobs of a model find what they feed, or why there is nothing."""

    record: str = ""
    """Path of the :class:`InputsFile`; '' if no stack could choose."""
    root: str = ""
    """Folder whose ``tensors/`` holds the bytes."""
    digest: str = ""
    """Of what is fed: answers that follow from other inputs never meet."""
    reason: str = ""
