"""A capsule: one difference as a folder that runs by itself, one script for each stack."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.ids import CellId
from samebits.records.record import Record
from samebits.records.tensor import TensorRef

FORMAT_VERSION: Literal[1] = 1
# History of FORMAT_VERSION:
# 1: first.


class Fed(Record):
    """One tensor that a script feeds: rows of integers, or seeded numbers of a shape."""

    rows: tuple[tuple[int, ...], ...] = ()
    seed: str | None = None
    """What the numbers are hashes of, as in probes/samebits_probe/model/inputs.py; None: :attr:`rows` are fed."""
    shape: tuple[int, ...] = ()


Feed = dict[str, Fed]
"""Keyword argument of forward -> what is fed."""


class Question(Record):
    """What the scripts of a capsule compute; the same for both."""

    kind: Literal["forward", "generate", "parameter", "buffer"]
    """forward: the logits of one call. generate: those of every greedy step through the cache.
    parameter, buffer: a tensor as the load left it."""
    prompt: str = ""
    feed: Feed = Field(default_factory=dict)
    before: tuple[Feed, ...] = ()
    """Forwards that the same model runs first: an earlier prompt can leave state behind."""
    real: tuple[tuple[int, int], ...] | None = None
    """Forward: per batch row the half-open range of positions that are no padding."""
    row: int = 0
    """generate: the row of the batch."""
    steps: int = 0
    """generate: tokens."""
    tensor: str = ""

    @property
    def what(self) -> str:
        """Name of the result: ``logits``, or the tensor's own."""
        return self.tensor or "logits"


Contrast = Literal["differs", "fails", "unstable"]
"""How the candidate stands to the reference: other bytes, an exception, or other bytes by run."""


class Seen(Record):
    """What a script sees: a tensor, an exception, or other bytes for each content of the heap."""

    ref: TensorRef | None = None
    error: str = ""
    """Name of the exception's class."""
    message: str = ""
    """Its first line, or '' where that depends on the machine."""
    unstable: bool = False


class Side(Record):
    """One script, what it installs, and what it is expected to see."""

    stack: str
    script: str
    """Name of the file."""
    transformers: str
    torch: str
    """As it was measured, with the build: ``2.13.0+cpu``."""
    python: str
    packages: dict[str, str]
    sees: Seen


class CapsuleFile(Record):
    """expected.json of a capsule."""

    format: Literal["samebits-capsule"] = "samebits-capsule"
    format_version: Literal[1] = FORMAT_VERSION
    cell: CellId
    """The cell it was made for; its reference is that of :attr:`reference`."""
    contrast: Contrast
    question: Question
    checkpoint: str
    """``checkpoint`` (the folder beside the scripts), or a hub id with its revision."""
    shrunk: tuple[str, ...] = ()
    """What was left out of the model and the prompt, each seen to keep the difference."""
    reference: Side
    candidate: Side
    platform: str
    cpu_capability: str


class Capsule(Record):
    """What a report says of the capsule of a cell."""

    path: str = ""
    """Its folder, relative to the report; '' if there is none."""
    command: str = ""
    """Runs both scripts, inside the folder."""
    reason: str = ""
    """Why there is none."""


def script_name(stack: str) -> str:
    """Return the name of a stack's script: never one that ``import`` could find."""
    return f"stack-{stack}.py" if stack.isidentifier() else f"{stack}.py"
