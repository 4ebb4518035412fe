"""The jobs as they are sent to a stack, one record per kind.

``probes/samebits_wire/jobs.py`` has the same keys for the side that reads them;
``tests/jobs/test_records.py`` holds both together. The process of a stack adds ``id`` and ``slots``.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, SerializeAsAny

from samebits.grafts.questions import PatientQuestion
from samebits.ladder.asking import Ask
from samebits.matrix.arguments import InputSetEntry
from samebits.matrix.probefile import ProbeFile
from samebits.matrix.spec import Prompt, Recipe
from samebits.records.ids import CellId
from samebits.records.inputs import Inputs
from samebits.records.record import Record

THREADS = 1
"""Threads of a job that computes nothing that is compared."""

WrittenPrompt = Annotated[
    Prompt | InputSetEntry,
    PlainSerializer(lambda prompt: prompt.model_dump(mode="json", exclude_none=True)),
]
"""A prompt or an input set with the keys that were given, as matrix.yaml has it."""
RunName = Literal["a", "b"]
"""The run of a cell, which decides the byte that fills uninitialised memory."""


class Job(Record):
    """The fields of every job."""

    kind: str
    timeout: float
    """Seconds that it may make no progress."""
    log: str
    """Path for what it prints."""

    def as_json(self) -> dict[str, Any]:
        """Return the job as JSON values, as it is sent."""
        return self.model_dump(mode="json")


class JobStore(Record):
    """The store of tensors that a job writes to."""

    root: str


class LimitedStore(JobStore):
    """The same, with a limit."""

    limit: int
    """Bytes up to which the values of a tensor are stored."""


class CellStore(LimitedStore):
    """The same for a cell."""

    wanted: tuple[str, ...]
    """Hashes of tensors that are stored whatever their size."""


class ModelSource(Record):
    """The model of a job: where it is loaded from."""

    source: str
    """A folder, or a hub id."""
    revision: str | None
    trust_remote_code: bool
    imports: tuple[str, ...] = ()
    """Modules to import before the load."""
    model_class: str | None = None
    """The class as ``package.module:Name``; None: an Auto class or the config decides."""
    load: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of from_pretrained."""
    logits: str | None = None
    """Name of the output that plays the part of the logits; None: the usual one."""


class FedModel(ModelSource):
    """A model with its inputs."""

    inputs: Inputs


class PromptedModel(ModelSource):
    """A model whose inputs are to be chosen."""

    prompts: dict[str, WrittenPrompt]


class CellModel(FedModel):
    """The model of a cell."""

    prompts: dict[str, WrittenPrompt]


class Options(Record):
    """What the phase of a question is asked."""

    large: bool = False
    """Whether its size keeps nothing from being tried: no made model answers for it."""


class ObservedModel(CellModel):
    """The model of a cell, and what to observe of it."""

    greedy: int
    """Number of tokens to generate."""
    questions: dict[str, SerializeAsAny[Options]]
    """Question -> what its phase is asked; those that are not asked are left out."""
    reloads: bool
    """Whether to load it again for what only explains: eager attention, the check of the load."""
    large: bool
    """Whether its size keeps nothing from being tried."""
    probes: tuple[ProbeFile, ...]
    """Files of the user's with probes to run."""


class BuildJob(Job):
    """Make a checkpoint from a recipe."""

    kind: Literal["build"] = "build"
    recipe: Recipe
    imports: tuple[str, ...] = ()
    """As in :class:`ModelSource`."""
    model_class: str | None = None
    out: str
    """Folder of the checkpoint."""


class CapsuleJob(Job):
    """The fields of both jobs of a capsule."""

    kind: Literal["capsule"] = "capsule"
    result: str


class TrialJob(CapsuleJob):
    """Run a script of a capsule."""

    script: str
    trust_remote_code: bool
    run: RunName
    threads: int
    store: LimitedStore


class TensorsJob(CapsuleJob):
    """List the tensors of a checkpoint."""

    checkpoint: str
    """Its folder."""


class InputsJob(Job):
    """Choose the inputs of a model."""

    kind: Literal["inputs"] = "inputs"
    name: str
    """Name of the model."""
    stack: str
    threads: int = THREADS
    result: str
    store: JobStore
    model: PromptedModel
    """Its prompts; files of input sets have absolute paths."""
    places: dict[str, dict[str, str]]
    """Input set -> argument -> its position in matrix.yaml; '' for that of the set."""


class JobOfCell(Job):
    """The fields of the jobs that load the model of a cell."""

    cell: CellId
    threads: int
    """Threads of its forwards, which decide their bits: the same on both sides of a comparison."""
    budget: float
    """Seconds after which only observations that affect the verdict start."""


class CellJob(JobOfCell):
    """Observe a cell in one of its runs."""

    kind: Literal["cell"] = "cell"
    run: RunName
    short: bool
    """Whether to observe only what shows that the run agrees with run a."""
    capture: str
    """Path for the capture."""
    store: CellStore
    model: ObservedModel


class Task(Record):
    """What is asked of a cell, and where the answer goes."""

    result: str = ""

    def facts(self) -> dict[str, Any]:
        """Return what the answer follows from: of a donor's file its name, and no other path."""
        facts = self.model_dump(mode="json", exclude={"result"})
        return facts | ({"donor": PurePath(facts["donor"]).stem} if "donor" in facts else {})

    @property
    def stores(self) -> bool:
        """True if values of tensors are stored."""
        return True


class TaskJob(JobOfCell):
    """The fields of the jobs that have a task."""

    store: LimitedStore
    model: CellModel


class QuestionJob(TaskJob):
    """Do a task of a question; its kind leads to the module that does it."""

    task: SerializeAsAny[Task]


class Rungs(Task, Ask):
    """A question to the ladder."""

    probe_files: tuple[ProbeFile, ...]
    """The files with the probes of the question."""


class LadderJob(TaskJob):
    """Run a cell on every rung of the precision ladder."""

    kind: Literal["ladder"] = "ladder"
    run: RunName = "a"
    ladder: Rungs


class Tracing(Task):
    """What to trace of one prompt."""

    prompt: str
    what: Literal["forward", "decode"]
    forced: dict[str, tuple[int, ...]]
    """Row -> the tokens that generate() is forced to choose."""
    steps: int
    """Steps of a decode after which the trace ends."""
    new_tokens: int
    """Tokens that the cell generates; the size of a cache may depend on it."""
    look: tuple[int, ...]
    """Numbers of operations whose inputs and outputs are stored."""
    rung: Literal["own", "float64"]


class TraceJob(TaskJob):
    """Trace one prompt of a cell."""

    kind: Literal["trace"] = "trace"
    trace: Tracing


class DonorTask(Task):
    """What the reference is to provide for a graft."""

    role: Literal["donor"] = "donor"
    prompt: str
    what: Literal["forward", "decode"]
    forced: dict[str, tuple[int, ...]]
    expected: tuple[str, ...]
    """Hash of each output of the cell; '' if it is not known."""
    weights: tuple[str, ...]
    """Names of the tensors in memory to store."""


class PatientTask(Task, PatientQuestion):
    """Differences to try in the candidate, and how long."""

    role: Literal["patient"] = "patient"
    donor: str
    """Path of the donor's file."""
    hint: tuple[str, ...]
    """Suspects that restored another prompt of the cell; they are tried first."""
    budget: int
    """Maximum number of sets to run."""
    seconds: float
    """Seconds after which no further set is started."""


class GraftJob(TaskJob):
    """Store pieces of the reference, or try them in the candidate."""

    kind: Literal["graft"] = "graft"
    graft: DonorTask | PatientTask


JOB_OF: dict[type[Task], tuple[type[TaskJob], str]] = {
    Rungs: (LadderJob, "ladder"),
    Tracing: (TraceJob, "trace"),
    DonorTask: (GraftJob, "graft"),
    PatientTask: (GraftJob, "graft"),
}
"""Task -> its job, and the key of the task in it."""
