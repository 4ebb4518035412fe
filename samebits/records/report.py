"""The complete result of a run as one record; report.json and report.md are written from it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.base.hashes import HASH_ALGORITHM, HashAlgorithm
from samebits.records.band import Band
from samebits.records.capture import AttentionCall, AttentionSignal, UnrunModule
from samebits.records.comparison import CellResult
from samebits.records.device import DeviceProbe
from samebits.records.finding import RuleText, StackFinding
from samebits.records.ids import Level, Verdict
from samebits.records.provenance import IntegritySignal, Source
from samebits.records.question import RowAnswers
from samebits.records.record import Record
from samebits.records.settings import SettingChange
from samebits.records.state import StateSignal
from samebits.records.tokenizer import TokenizerSignal

SCHEMA_VERSION: Literal[26] = 26
# History of SCHEMA_VERSION, from the oldest that can be read:
# 16: arguments of generate(), other classes of a checkpoint, crossings of tokenizers, processors, generation
#     settings and chat templates.
# 17: which layer's output each entry of hidden_states holds, and what a mask of ones changes.
# 18: what other heads of the checkpoint compute.
# 19: the files that each release writes of a model with its tokenizer and its processor.
# 20: what pipelines make of a batch of prompts and of each by itself; models that are made of the config; rows
#     with images.
# 21: programs of torch.export and torch.jit.trace.
# 22: all exceptions of a cell that count; which prompts a finding may explain.
# 23: what a class reads of its base model that was saved alone; training of projections on a frozen base.
# 24: which stack raises, of a finding about a release; names of a few changed definitions that ran.
# 25: which frames of an exception changed; how first weights of new models are drawn; edits of the loaded model.
# 26: arguments that change no more than the order of sums.


class StackReport(Record):
    """One stack as it was resolved and built, or why that failed."""

    id: str
    transformers: str | None = None
    """The release that it resolved to."""
    torch: str | None = None
    system_torch: bool = False
    """Whether torch is that of the machine; ``packages`` then has all that the machine has, too."""
    python: str | None = None
    packages: dict[str, str] = Field(default_factory=dict)
    """Everything installed: name -> version."""
    lock: str | None = None
    """Path of the lock file, relative to the report."""
    lock_digest: str | None = None
    between: bool = False
    """Whether ``--releases`` added it to the stacks of the matrix."""
    failure: str | None = None
    """Why it could not be resolved or built."""
    findings: tuple[StackFinding, ...] = ()
    """Findings in this release that do not depend on the model."""


class PackagesReport(Record):
    """The packages of models beside one stack, or why they are not installed."""

    models: tuple[str, ...]
    stack: str
    listed: tuple[str, ...]
    """As matrix.yaml lists them, and those of ``images``."""
    images: tuple[str, ...] = ()
    """What samebits added, as files of the models need it: for images, sounds, or pieces of words."""
    packages: dict[str, str] = Field(default_factory=dict)
    """What was installed beside the stack's own packages: name -> version."""
    replaced: dict[str, str] = Field(default_factory=dict)
    """Name -> version of the stack, of those that stand in for the stack's own."""
    lock: str | None = None
    """Path of the lock file, relative to the report."""
    failure: str | None = None
    """Why they could not be installed."""


class CheckpointReport(Record):
    """The checkpoint that the cells of one model loaded."""

    model: str
    source: str
    """``build llama seed 0 by 4.48``, ``hub org/name@revision``, ``path …``."""
    digest: str | None = None
    """Digest of config and weights; the same for every stack."""
    parameters: int | None = None
    """Number of parameters."""
    folder: str = ""
    """The model's folder as seen from where the run started; '' if it is not below it, or if the
    files of the cells are a patched copy."""
    not_run: tuple[str, ...] = ()
    """Files of a folder that are code of the model, or name it, and are not run without trust."""
    steps: tuple[str, ...] = ()
    """What its folder adds to the model that transformers loads, and no cell ran: for
    sentence-transformers ``Pooling (1_Pooling)``, from modules.json."""


class AttentionReport(Record):
    """The attention implementation that was requested, resolved, and run in one cell."""

    requested: str
    resolved: str | None
    calls: dict[str, tuple[tuple[str, int], ...]] = Field(default_factory=dict)
    """prompt -> module and the index of its call in the row's ``calls``, in order of execution."""


class LoadReport(IntegritySignal):
    """Whether the load worked as it reported; its ``tensors`` are only those that are not plain.

    A tensor is plain if it is loaded, tied or derived, and known to be written.
    """

    counts: dict[Source, int] = Field(default_factory=dict)
    """source -> number of tensors, including plain ones."""


class RowHead(Record):
    """What a row is about, and its cells."""

    model: str
    variant: str
    group: str | None = None
    line: int = 0
    """Line of the model's entry in the matrix file; 0 if there is no file."""
    threads: int = 1
    """Threads of every job of its cells; their number decides bits."""
    reference: str | None
    """Stack that the others are compared with: the matrix's, or the oldest that ran."""
    cells: tuple[CellResult, ...]
    """In the order of the stacks."""


class RowFacts(Record):
    """What the captures of a row's cells say; it follows from its own files alone."""

    bands: tuple[Band, ...] = ()
    """The cells grouped into runs of neighbouring stacks with the same bits."""
    attention: dict[str, AttentionReport] = Field(default_factory=dict)
    """stack -> the attention implementation that was resolved and run."""
    calls: tuple[AttentionCall, ...] = ()
    """Every distinct attention call of the row once, without the name of its module."""
    state: dict[str, StateSignal] = Field(default_factory=dict)
    """stack -> what its cell left behind that changes the next forward; only such cells."""
    integrity: dict[str, LoadReport] = Field(default_factory=dict)
    """stack -> whether the load worked as it reported."""
    tokenizers: dict[str, TokenizerSignal] = Field(default_factory=dict)
    """stack -> the behaviour of the model's tokenizer."""
    unrun: dict[str, tuple[UnrunModule, ...]] = Field(default_factory=dict)
    """stack -> the modules that no prompt ran; only such cells."""
    settings: dict[str, tuple[SettingChange, ...]] = Field(default_factory=dict)
    """stack -> torch's settings that changed in its cell, or by the import; only such cells."""
    device: dict[str, tuple[DeviceProbe, ...]] = Field(default_factory=dict)
    """stack -> what exists only on a GPU; only cells on one."""
    answers: RowAnswers = Field(default_factory=dict)
    """What questions beside the verdict say of the row."""

    def answer_on(self, name: str, stack: str) -> object:
        """Return what a question, or a field of this name, says of a stack; None: nothing."""
        answer = self.answers.get(name)
        return getattr(self, name, {}).get(stack) if answer is None else answer.of_stack(stack)

    def ran(self, stack: str) -> AttentionSignal:
        """Return the attention calls of the cell of one stack."""
        report = self.attention[stack]
        calls = {
            prompt: tuple(self.calls[i].model_copy(update={"module": name}) for name, i in indices)
            for prompt, indices in report.calls.items()
        }
        return AttentionSignal(requested=report.requested, resolved=report.resolved, calls=calls)


class Row(RowFacts, RowHead):
    """One model in one variant: a row of the summary table."""


class ExpectedReport(Record):
    """One entry of matrix.yaml's ``expected``, and whether the difference still occurs."""

    line: int
    text: str
    """The patterns of model, variant, stack and signal in one line."""
    reason: str
    reference: str = ""
    title: str = ""
    explanation: str = ""
    """A paragraph about it from the matrix file; '' if there is none."""
    cells: tuple[str, ...] = ()
    """Cells that it covered in this run."""
    fixed: tuple[str, ...] = ()
    """Its names or patterns that no longer occur; if there are any, the run fails until they are
    removed."""
    untold: tuple[str, ...] = ()
    """Cells that it cannot be applied to, because this run's filters excluded their reference."""
    evaluated: bool = True
    """False if this run's filters excluded every cell that it matches."""


class MachineReport(Record):
    """The machine on which the cells ran."""

    platform: str
    cpu: str
    cpu_capability: str
    """torch.backends.cpu.get_cpu_capability(), which determines the kernels that ATen chooses."""
    cores: int
    threads: int
    """Threads per cell, where its row does not say otherwise."""
    flags: dict[str, str] = Field(default_factory=dict)
    environment: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the probes, without secrets."""


class Spent(Record):
    """Cost of the jobs of one kind in this run; cached results cost nothing."""

    kind: str
    """``cell a``, ``build``, ``ladder`` …; ``imports`` is the start of the stacks'
    processes."""
    jobs: int
    cpu: float
    """CPU seconds of all processes of these jobs."""


class Report(Record):
    """The complete result of a run."""

    schema_version: Literal[26] = SCHEMA_VERSION
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    """Hash of tensors and checkpoint files; source code and the report's files have SHA-256."""
    samebits: str
    """Version of samebits."""
    matrix: str
    """Name of the matrix file."""
    matrix_path: str = ""
    """The matrix file as the command named it; '' for a check, which has none."""
    matrix_digest: str
    started: str
    """UTC, RFC 3339."""
    seconds: float
    spent: tuple[Spent, ...] = ()
    """The jobs of this run by kind, the most expensive first."""
    command: str
    level: Level = "default"
    """How much was asked of each model."""
    reference: str
    stacks: tuple[StackReport, ...]
    packages: tuple[PackagesReport, ...] = ()
    """Packages of models, which run beside those of the stacks."""
    checkpoints: tuple[CheckpointReport, ...]
    rows: tuple[Row, ...]
    rules: tuple[RuleText, ...] = ()
    """The rules that have findings."""
    expected: tuple[ExpectedReport, ...] = ()
    machine: MachineReport | None = None
    counts: dict[Verdict, int] = Field(default_factory=dict)
    """Verdict -> number of cells, without reference cells."""
    exit_code: int
    reasons: tuple[str, ...] = ()
    """Why the exit code is not 0, one line each."""
    notes: tuple[str, ...] = ()
    """What went wrong beside the models and changed no result, such as a shared store that failed."""
    files: dict[str, str] = Field(default_factory=dict)
    """Every other file of the report: path relative to report.json -> SHA-256."""

    @property
    def cells(self) -> list[CellResult]:
        """The cells of all rows."""
        return [cell for row in self.rows for cell in row.cells]

    @property
    def models(self) -> frozenset[str]:
        """The names of the models."""
        return frozenset(row.model for row in self.rows)
