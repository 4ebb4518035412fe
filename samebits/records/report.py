"""The whole result of a run, as one record: report.json is this, report.md is written from it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.band import Band
from samebits.records.capture import AttentionCall, AttentionSignal
from samebits.records.comparison import CellResult
from samebits.records.crossing import CrossingsReport
from samebits.records.finding import RuleText, StackFinding
from samebits.records.ids import Verdict
from samebits.records.provenance import IntegritySignal, Source
from samebits.records.record import Record
from samebits.records.relations import InvariantsSignal
from samebits.records.tokenizer import TokenizerSignal
from samebits.records.usage import UsageSignal

SCHEMA_VERSION: Literal[4] = 4
# History of SCHEMA_VERSION:
# 1: first.
# 2: attention calls are listed once per row; loads count plain tensors and name the others; layers
#    have no extremes, and identical ones no hashes.
# 3: what stands in many places is in ``shared``, and is referred to; the files that were written.
# 4: plain JSON, no references.


class StackReport(Record):
    """One stack as it was resolved and built, or why it was not."""

    id: str
    transformers: str | None = None
    """The release it resolved to."""
    torch: str | None = None
    python: str | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    """Everything installed: name -> version."""
    lock: str | None = None
    """Path of the lock file, relative to the report."""
    lock_digest: str | None = None
    between: bool = False
    """Whether ``--releases`` added it to those of the matrix."""
    failure: str | None = None
    """Why it could not be resolved or built."""
    findings: tuple[StackFinding, ...] = ()
    """What users of any model meet in this release."""


class CheckpointReport(Record):
    """What the cells of one model loaded."""

    model: str
    source: str
    """``build llama seed 0 by 4.48``, ``hub org/name@revision``, ``path …``."""
    digest: str | None = None
    """Of config and weights together; equal for every stack."""
    parameters: int | None = None


class AttentionReport(Record):
    """Which attention was asked for, resolved, and ran in one cell."""

    requested: str
    resolved: str | None
    calls: dict[str, tuple[tuple[str, int], ...]] = Field(default_factory=dict)
    """prompt -> module and the place of its call in the row's ``calls``, in order of execution."""


class LoadReport(IntegritySignal):
    """Whether loading did what it says; of its ``tensors`` only those that are not plain.

    Plain is what is loaded, tied or derived, and known to be written.
    """

    counts: dict[Source, int] = Field(default_factory=dict)
    """source -> number of tensors, plain ones included."""


class Row(Record):
    """One model in one variant: a line of the summary table."""

    model: str
    variant: str
    group: str | None = None
    reference: str | None
    """Stack that the others are compared with: the matrix's, or the oldest that ran."""
    cells: tuple[CellResult, ...]
    """In the order of the stacks."""
    bands: tuple[Band, ...] = ()
    """The same cells, neighbours of the same bits together."""
    attention: dict[str, AttentionReport] = Field(default_factory=dict)
    """stack -> what attention was resolved to and ran."""
    calls: tuple[AttentionCall, ...] = ()
    """Every attention call of the row once, without the name of its module."""
    invariants: dict[str, InvariantsSignal] = Field(default_factory=dict)
    """stack -> the relations that must hold inside its cell."""
    integrity: dict[str, LoadReport] = Field(default_factory=dict)
    """stack -> whether loading did what it says."""
    tokenizers: dict[str, TokenizerSignal] = Field(default_factory=dict)
    """stack -> what it makes of the model's tokenizer."""
    usage: dict[str, UsageSignal] = Field(default_factory=dict)
    """stack -> what users do around the model, and what came of it."""

    def ran(self, stack: str) -> AttentionSignal:
        """Return what attention ran in the cell of one stack, call by call."""
        told = self.attention[stack]
        calls = {
            prompt: tuple(self.calls[i].model_copy(update={"module": name}) for name, i in several)
            for prompt, several in told.calls.items()
        }
        return AttentionSignal(requested=told.requested, resolved=told.resolved, calls=calls)


class ExpectedReport(Record):
    """One entry of matrix.yaml's ``expected`` and whether it still occurs."""

    line: int
    text: str
    """model, variant, stack and signal patterns in one line."""
    reason: str
    reference: str = ""
    title: str = ""
    explanation: str = ""
    """A paragraph of the matrix file on it; '' if it has none."""
    cells: tuple[str, ...] = ()
    """Cells it covered in this run."""
    fixed: tuple[str, ...] = ()
    """Its names or patterns that no longer occur; not empty: the run fails until they are removed."""
    untold: tuple[str, ...] = ()
    """Cells of which it says nothing, as this run's filters left out what they are compared with."""
    evaluated: bool = True
    """False if this run's filters left out every cell that it speaks of."""


class MachineReport(Record):
    """Where the cells ran."""

    platform: str
    cpu: str
    cpu_capability: str
    """torch.backends.cpu.get_cpu_capability(): which kernels ATen chose."""
    cores: int
    threads: int
    """Threads per cell."""
    flags: dict[str, str] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    """Variables that the probes saw, secrets left out."""


class Spent(Record):
    """What the jobs of one kind took in this run; what was kept took nothing."""

    kind: str
    """``cell a``, ``build``, ``load``, ``ladder`` …; ``imports`` of the stacks' own processes."""
    jobs: int
    cpu: float
    """CPU seconds, of all processes of each job."""


class Report(Record):
    """Everything that a run found."""

    schema_version: Literal[4] = SCHEMA_VERSION
    samebits: str
    """Version of samebits."""
    matrix: str
    """Name of the matrix file."""
    matrix_digest: str
    started: str
    """UTC, RFC 3339."""
    seconds: float
    spent: tuple[Spent, ...] = ()
    """The jobs that this run had to do, by kind, the dearest first."""
    command: str
    reference: str
    stacks: tuple[StackReport, ...]
    checkpoints: tuple[CheckpointReport, ...]
    rows: tuple[Row, ...]
    crossings: tuple[CrossingsReport, ...] = ()
    """Checkpoints saved by one stack and loaded by another."""
    rules: tuple[RuleText, ...] = ()
    """The rules that spoke of any cell."""
    expected: tuple[ExpectedReport, ...] = ()
    machine: MachineReport | None = None
    counts: dict[Verdict, int] = Field(default_factory=dict)
    """Cells by verdict, reference cells left out."""
    exit_code: int
    reasons: tuple[str, ...] = ()
    """Why the exit code is not 0, one line each."""
    files: dict[str, str] = Field(default_factory=dict)
    """Every file that was written with report.md and report.json: path beside them -> SHA-256."""
