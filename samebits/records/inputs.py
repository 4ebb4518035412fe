"""The inputs of a model's cells: chosen once from its signature and config, and created once.

The probes write this JSON without these classes (probes/samebits_probe/jobs/inputs.py) and read it
in every job of the model (probes/samebits_probe/model/feed.py). This module is its schema.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from samebits.base.digests import digest_of
from samebits.base.hashes import HASH_ALGORITHM, HashAlgorithm
from samebits.records.capture import Failure
from samebits.records.record import Record
from samebits.records.result import JobFile, is_repeatable
from samebits.records.tensor import TensorRef
from samebits_wire import formats


class TokenRow(Record):
    """One batch row of a prompt with texts: a text for the tokenizer, or token ids."""

    text: str = ""
    """The text, which each stack encodes with its own tokenizer."""
    at_least: int | None = None
    """Minimal number of ids; the ids of the text are repeated up to it."""
    ids: tuple[int, ...] = ()


class PromptInputs(Record):
    """The arguments of forward for one prompt, or why there are none."""

    tensors: dict[str, TensorRef] = Field(default_factory=dict)
    """Argument of forward -> tensor; floating-point tensors are converted to the cell's dtype."""
    constants: dict[str, Any] | None = None
    """Arguments of an input set that are no tensors, and are passed as they are; {} for what is fed whole, such as
    a prompt with an image; None: a plain prompt."""
    real_rows: tuple[tuple[int, int], ...] | None = None
    """As in samebits.records.capture.ForwardFacts."""
    rows: tuple[TokenRow, ...] = ()
    """For a prompt with texts: its batch rows, which each stack encodes and pads."""
    pad: int = 0
    """Token id for padding these rows on the left."""
    masked: bool = False
    """True if a prompt of one row has an attention mask, too, because forward requires it."""
    text: str | None = None
    reason: str = ""
    """Why there are no inputs."""
    optional: tuple[str, ...] = ()
    """Those of the tensors that are passed only where forward has such a parameter."""
    paste: str = ""
    """Lines to write below the model in matrix.yaml, so that there are."""
    why: Literal["plain", "inputs"] = "plain"
    """plain: the prompt has no meaning for the model. inputs: no inputs can be made."""


class InputsFile(JobFile):
    """The inputs that one stack chose for a model."""

    format: Literal["samebits-inputs"] = "samebits-inputs"
    format_version: Literal[12] = formats.INPUTS
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    model: str
    stack: str
    """The stack that read signature and config; every stack uses the inputs that it chose."""
    model_class: str = ""
    """The class that it chose, which every stack loads."""
    kinds: tuple[str, ...] = ()
    """What the class takes beside token ids: ``images``, ``sounds``."""
    generate_needs: tuple[str, ...] = ()
    """What its generate() requires: a prompt without it is not decoded."""
    prompts: dict[str, PromptInputs] = Field(default_factory=dict)
    single: PromptInputs = PromptInputs()
    """The inputs for a question that needs one forward only."""
    absent: str = ""
    """Why this stack does not know the model."""
    failure: Failure | None = None
    """The exception of reading the config or the class."""

    @property
    def is_chosen(self) -> bool:
        """True unless this stack could not read the model."""
        return not self.absent and self.failure is None

    @property
    def reason(self) -> str:
        """Why this stack could not choose inputs, in one line; '' if it could."""
        if self.failure is not None:
            return self.failure.in_words
        return self.absent

    def more(self, prompts: Collection[str]) -> tuple[str, ...]:
        """Return the prompts that the stack made beside ``prompts``."""
        return tuple(name for name in self.prompts if name not in prompts)

    @property
    def digest(self) -> str:
        """Digest of class and inputs, independent of the stack that chose them."""
        fields = {"model_class", "kinds", "generate_needs", "prompts", "single"}
        return digest_of(self.model_dump(mode="json", include=fields, exclude_none=True))

    @property
    def is_repeatable(self) -> bool:
        """True unless the machine may be the reason of its failure."""
        return is_repeatable(self.failure)


class Inputs(Record):
    """Where the jobs of a model find their inputs, or why there are none."""

    record: str = ""
    """Path of the :class:`InputsFile`; '' if no stack could choose inputs."""
    root: str = ""
    """Folder whose ``tensors/`` contains the bytes."""
    digest: str = ""
    """Digest of class and inputs: results of different ones are never mixed."""
    model_class: str = ""
    """Name of the class that every stack loads; '' if no stack could choose one. The class of a user and that
    of remote code go before."""
    kinds: tuple[str, ...] = ()
    """What that class takes beside token ids. A release whose class of this name takes other data has another one."""
    more: tuple[str, ...] = ()
    """Prompts that were made beside the model's, such as those with an image."""
    reason: str = ""
