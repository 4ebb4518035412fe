"""Capsules: one difference as a self-contained folder with one script per stack."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.base.hashes import HASH_ALGORITHM, HashAlgorithm
from samebits.records.ids import CellId
from samebits.records.record import Record
from samebits.records.tensor import TensorRef

FORMAT_VERSION: Literal[2] = 2


class Fed(Record):
    """One input of a script: rows of integers, seeded random numbers, bytes, or a constant."""

    rows: tuple[tuple[int, ...], ...] = ()
    seed: str | None = None
    """The text that the numbers are hashes of, as in probes/samebits_probe/model/inputs.py; None:
    :attr:`rows` are used."""
    shape: tuple[int, ...] = ()
    data: str = ""
    """The bytes of a tensor of the user's, in base64."""
    dtype: str = ""
    """Of these bytes."""
    constant: str = ""
    """A constant of the user's, as Python writes it."""

    @property
    def is_rows(self) -> bool:
        """True for rows of integers."""
        return self.seed is None and not self.data and not self.constant


Feed = dict[str, Fed]
"""Keyword argument of forward -> input."""


class Question(Record):
    """The computation of a capsule; the same in both scripts."""

    kind: Literal["forward", "generate", "parameter", "buffer"]
    """forward: the logits of one call. generate: the logits of every greedy step with the KV cache.
    parameter, buffer: a tensor right after the load."""
    prompt: str = ""
    feed: Feed = Field(default_factory=dict)
    before: tuple[Feed, ...] = ()
    """Inputs of forwards that the same model runs first: an earlier prompt can change its state."""
    real: tuple[tuple[int, int], ...] | None = None
    """For ``forward``: per batch row, the half-open range of positions that are not padding."""
    row: int = 0
    """For ``generate``: index of the batch row."""
    steps: int = 0
    """For ``generate``: number of tokens."""
    threads: int = 1
    """Threads of the computation, which decide its bits."""
    tensor: str = ""
    """For ``parameter`` and ``buffer``: name of the tensor."""

    @property
    def what(self) -> str:
        """Name of the result: ``logits``, or the name of the tensor."""
        return self.tensor or "logits"


Contrast = Literal["differs", "fails", "unstable"]
"""How the candidate deviates: it has other bytes, raises, or has other bytes in each run."""


class Seen(Record):
    """The result of a script: a tensor, an exception, or an unstable tensor."""

    ref: TensorRef | None = None
    sha256: str = ""
    """SHA-256 of the tensor, which scripts compute as they have only the standard library; '' if
    there is no tensor."""
    error: str = ""
    """Name of the exception's class."""
    message: str = ""
    """First line of its message, or '' if that depends on the machine."""
    unstable: bool = False
    """True if the bytes depend on the content of uninitialised heap memory."""


class Side(Record):
    """One script, the packages that it installs, and its expected result."""

    stack: str
    script: str
    """Name of the file."""
    transformers: str
    torch: str
    """Version with the build, as in the run: ``2.13.0+cpu``."""
    python: str
    packages: dict[str, str]
    sees: Seen


class CapsuleFile(Record):
    """The file expected.json of a capsule."""

    format: Literal["samebits-capsule"] = "samebits-capsule"
    format_version: Literal[2] = FORMAT_VERSION
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    """Hash of tensors, except in ``sha256``."""
    cell: CellId
    """The candidate cell; :attr:`reference` has the stack of its reference cell."""
    contrast: Contrast
    question: Question
    checkpoint: str
    """``checkpoint`` (a folder next to the scripts), or a hub id with its revision."""
    shrunk: tuple[str, ...] = ()
    """Reductions of the model and the prompt; with each of them the difference was still there."""
    reference: Side
    candidate: Side
    platform: str
    cpu_capability: str


class Capsule(Record):
    """The capsule of a cell as the report shows it."""

    path: str = ""
    """Its folder, relative to the report; '' if there is no capsule."""
    command: str = ""
    """The command that runs both scripts, for use inside the folder."""
    reason: str = ""
    """Why there is no capsule."""


def script_name(stack: str) -> str:
    """Return the name of a stack's script; it is never an importable module name."""
    return f"stack-{stack}.py" if stack.isidentifier() else f"{stack}.py"
