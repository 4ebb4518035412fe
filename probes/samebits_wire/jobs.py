"""The keys of a job, by kind, as the host sends it and a stack reads it.

The host makes tasks from records that say more of each key: samebits/jobs/records.py;
tests/jobs/test_records.py holds both together.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict, final

RunName = Literal["a", "b"]
"""The run of a cell, which decides the byte that fills uninitialised memory."""


class Variant(TypedDict):
    """How a model is run."""

    dtype: str
    attention: str
    device: str


class CellId(TypedDict):
    """One model in one variant on one stack."""

    model: str
    variant: Variant
    stack: str


class Prompt(TypedDict, total=False):
    """One input, or a batch of inputs, with the keys that were given."""

    text: str
    ids: list[int]
    length: int | Literal["past-window"]
    batch: list[Prompt]


class Argument(TypedDict, total=False):
    """One declared argument of forward, with the keys that were given."""

    shape: list[int | str]
    dtype: str
    low: float | str
    high: float | str
    mask: list[str]
    value: Any


class InputSet(TypedDict, total=False):
    """An input set, with the keys that were given."""

    file: str
    function: str
    trust: bool
    arguments: dict[str, Argument]


class Inputs(TypedDict):
    """Where the inputs are, or why there are none."""

    record: str
    root: str
    digest: str
    model_class: str
    kinds: list[str]
    more: list[str]
    reason: str


class JobStore(TypedDict):
    """The store of tensors."""

    root: str


class LimitedStore(JobStore):
    """The same, with the bytes up to which values are stored."""

    limit: int


class CellStore(LimitedStore):
    """The same, with hashes of tensors that are stored whatever their size."""

    wanted: list[str]


class ModelSource(TypedDict):
    """Where a model is loaded from."""

    source: str
    """A folder, or a hub id."""
    revision: str | None
    trust_remote_code: bool
    imports: list[str]
    """Modules to import before the load."""
    model_class: str | None
    """The class as ``package.module:Name``; None: an Auto class or the config decides."""
    load: dict[str, Any]
    """Further arguments of from_pretrained."""
    logits: str | None
    """Name of the output that plays the part of the logits; None: the usual one."""


class FedModel(ModelSource):
    """A model with its inputs."""

    inputs: Inputs


class PromptedModel(ModelSource):
    """A model whose inputs are to be chosen."""

    prompts: dict[str, Prompt | InputSet]


class CellModel(FedModel):
    """The model of a cell."""

    prompts: dict[str, Prompt | InputSet]


class Options(TypedDict):
    """What the phase of a question is asked."""

    large: bool


class ProbeFile(TypedDict):
    """A file of the user's with probes."""

    name: str
    source: str
    functions: list[str]
    verdict: bool


class ObservedModel(CellModel):
    """The model of a cell, and what to observe of it."""

    greedy: int
    """Number of tokens to generate."""
    questions: dict[str, Options]
    """Question -> what its phase is asked; those that are not asked are left out."""
    reloads: bool
    """Whether to load it again for what only explains: eager attention, the check of the load."""
    large: bool
    """Whether its size keeps nothing from being tried."""
    probes: list[ProbeFile]
    """Files of the user's with probes to run."""


class Numbered(TypedDict, total=False):
    """What the process of a stack adds to a job."""

    id: str
    slots: int
    """Number of jobs that share this machine."""


class JobKeys(Numbered):
    """The keys of every job, besides its kind."""

    timeout: float
    """Seconds that it may make no progress."""
    log: str
    """Path for what it prints."""


class Job(JobKeys):
    """A job of any kind."""

    kind: str


class TokenizerRecipe(TypedDict):
    """How to make the tokenizer of a checkpoint."""

    kind: str
    tokenizer_class: str
    slow_files: bool
    unused: int
    parts: dict[str, Any]
    config: dict[str, Any]


class Recipe(TypedDict):
    """How to make a checkpoint."""

    architecture: str
    auto: bool
    config: dict[str, Any]
    config_variant: int
    """0, or which row of values of the config's switches the model has; needs auto."""
    head: str
    seed: int
    stack: str | None
    gain: float
    tokenizer: TokenizerRecipe | None
    processor: dict[str, Any] | None


class BuildJob(JobKeys):
    """Make a checkpoint from a recipe."""

    kind: Literal["build"]
    recipe: Recipe
    imports: list[str]
    model_class: str | None
    out: str
    """Folder of the checkpoint."""


@final
class TrialJob(JobKeys):
    """Run a script of a capsule."""

    kind: Literal["capsule"]
    result: str
    script: str
    trust_remote_code: bool
    run: RunName
    threads: int
    store: LimitedStore


@final
class TensorsJob(JobKeys):
    """List the tensors of a checkpoint."""

    kind: Literal["capsule"]
    result: str
    checkpoint: str
    """Its folder."""


class TestSource(TypedDict):
    """What stands in the place of a model: the code of the test may run, and may use the network."""

    source: str
    trust_remote_code: bool


@final
class GoldenJob(JobKeys):
    """Run a test of the user's and record what it compares."""

    kind: Literal["golden"]
    result: str
    test: str
    """A node id of pytest."""
    folder: str
    """Where pytest starts."""
    calls: str
    """A folder for what forwards are given."""
    float64: bool
    """Whether forwards are computed in float64."""
    seed: int
    """Of the generators, before the test."""
    threads: int
    store: LimitedStore
    model: TestSource


class InputsJob(JobKeys):
    """Choose the inputs of a model."""

    kind: Literal["inputs"]
    name: str
    """Name of the model."""
    stack: str
    threads: int
    result: str
    store: JobStore
    model: PromptedModel
    """Its prompts; files of input sets have absolute paths."""
    places: dict[str, dict[str, str]]
    """Input set -> argument -> its position in matrix.yaml; '' for that of the set."""


class JobOfCell(JobKeys):
    """The keys of the jobs that load the model of a cell."""

    cell: CellId
    threads: int
    """Threads of its forwards, which decide their bits: the same on both sides of a comparison."""
    budget: float
    """Seconds after which only observations that affect the verdict start."""


class CellJob(JobOfCell):
    """Observe a cell in one of its runs."""

    kind: Literal["cell"]
    run: RunName
    short: bool
    """Whether to observe only what shows that the run agrees with run a."""
    capture: str
    """Path for the capture."""
    store: CellStore
    model: ObservedModel


class TensorRef(TypedDict):
    """The reference of a tensor in a capture."""

    hash: str
    dtype: str
    shape: list[int]
    stored: bool


class Task(TypedDict):
    """What is asked of a cell; the module that does it knows the other keys."""

    result: str


class TaskJob(JobOfCell):
    """The keys of the jobs that do a task with the model of a cell."""

    store: LimitedStore
    model: CellModel


class QuestionJob(TaskJob):
    """Do a task of a question."""

    kind: str
    task: Task


class Rungs(TypedDict):
    """A question to the ladder."""

    forced: dict[str, list[int]]
    rounded: dict[str, str]
    again: list[str]
    observed: dict[str, dict[str, TensorRef]]
    decodes: list[str] | None
    own_decodes: list[str] | None
    is_whole: bool
    float32: bool
    tables: bool
    probes: list[str]
    probe_files: list[ProbeFile]
    result: str


class LadderJob(TaskJob):
    """Run a cell on every rung of the precision ladder."""

    kind: Literal["ladder"]
    task: Rungs


class PromptTask(Task):
    """What to do with one prompt."""

    prompt: str
    what: Literal["forward", "decode"]
    forced: dict[str, list[int]]


class Tracing(PromptTask):
    """What to trace of one prompt."""

    steps: int
    new_tokens: int
    look: list[int]
    rung: Literal["own", "float64"]
    scaled: bool


class TraceJob(TaskJob):
    """Trace one prompt of a cell."""

    kind: Literal["trace"]
    task: Tracing


class GraftTask(PromptTask):
    """What donor and patient do alike."""

    expected: list[str]


class DonorTask(GraftTask):
    """What the reference is to provide."""

    role: Literal["donor"]
    weights: list[str]


class PatientTask(GraftTask):
    """Differences to try in the candidate, and how long."""

    role: Literal["patient"]
    compared: list[tuple[int, int]]
    weights: list[tuple[str, str]]
    buffers: list[tuple[str, str, float | None]]
    config: dict[str, tuple[Any, Any]]
    untried: list[tuple[str, str]]
    donor: str
    hint: list[str]
    budget: int
    seconds: float


class GraftJob(TaskJob):
    """Store pieces of the reference, or try them in the candidate."""

    kind: Literal["graft"]
    task: DonorTask | PatientTask
