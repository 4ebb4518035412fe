"""One question beside the verdict: everything that the core does with it, in one record.

A question is asked by a phase inside each cell, by jobs of its own, or by both. Its folder has the
records of its answers, what asks, what compares, its rules and what reports show; the folder of the same
name in probes/samebits_probe/questions/ has what runs in the stacks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from samebits.jobs.records import Options

if TYPE_CHECKING:
    from samebits.findings.rule import Rule
    from samebits.jobs.common import ReadyCell, ReadyPair
    from samebits.jobs.lab import Functions, Lab
    from samebits.matrix.plan import Plan
    from samebits.matrix.spec import Matrix, ModelSpec
    from samebits.records.capture import Capture
    from samebits.records.comparison import CellResult, FactChange
    from samebits.records.ids import CellId, Signal
    from samebits.records.question import Answer, Key
    from samebits.records.report import Report, Row
    from samebits.stacks.packages import ExtendedStack, PackagesError
    from samebits.storage.store import Store
    from samebits.text.chart import Chart
    from samebits.text.markdown import Markdown

    ByRow = Mapping["RowName", Answer]

K = TypeVar("K")
T = TypeVar("T")


def in_first_variant(cell: CellId, model: ModelSpec) -> Options | None:
    """Ask the model's first CPU variant, as the others would answer the same."""
    return Options(large=model.large) if cell.variant == model.first_on_cpu else None


class RowName(NamedTuple):
    """The model and the variant of a row."""

    model: str
    variant: str


class Run(Protocol):
    """What a question may use of a run whose cells are compared."""

    @property
    def matrix(self) -> Matrix:
        """The matrix."""

    @property
    def plan(self) -> Plan:
        """The rows and cells of the run."""

    @property
    def store(self) -> Store:
        """The tensors that jobs stored."""

    @property
    def lab(self) -> Lab:
        """Asks one cell."""

    @property
    def results(self) -> Mapping[CellId, CellResult]:
        """Every cell, before matrix.yaml's ``expected``."""

    @property
    def answers(self) -> Mapping[str, ByRow]:
        """The answers of the questions before it: question -> row -> answer."""

    def entered(self, cells: Iterable[CellId], *, aside: bool = False) -> Functions:
        """Return the functions of transformers that checks of cells entered.

        ``aside``: those of checks that ended with an exception, so that nothing was compared.
        """

    def capture(self, cell: CellId) -> Capture | None:
        """Return the capture of run a of a cell; None if there is none."""

    def capture_key(self, ready: ReadyCell) -> str:
        """Return the digest of everything that determines the captures of a cell."""

    def has_stack(self, cell: CellId) -> bool:
        """Return True if the stack of a cell, and the packages of its model, are installed."""

    async def ready(self, cell: CellId) -> ReadyCell | None:
        """Return a cell for a job, once its checkpoint is there; None if it has none."""

    async def pair(self, reference: CellId, candidate: CellId) -> ReadyPair:
        """Return two cells that ran."""

    async def each(
        self, phase: str, description: str, jobs: Mapping[K, Coroutine[Any, Any, T]]
    ) -> dict[K, T]:
        """Run jobs side by side in a phase that counts them, and return their results."""

    async def with_packages(
        self, cells: Sequence[ReadyCell], packages: tuple[str, ...]
    ) -> dict[CellId, ExtendedStack | PackagesError]:
        """Install packages beside the stacks of cells; the error says why there are none."""


class Section(NamedTuple):
    """A section of a page of the run."""

    page: str
    """The page, such as ``findings.md``."""
    order: int
    """Its place on the page."""
    of_run: Callable[[Report], Markdown]
    """Returns the section; empty if there is nothing to say."""


class Page(NamedTuple):
    """A page of its own beside report.md."""

    path: str
    title: str
    what: str
    """What it has, for the list in report.md."""
    of_run: Callable[[Report], Markdown]
    """Returns the page; empty if there is nothing to say."""


class ModelSection(NamedTuple):
    """A section of the page of a model."""

    order: int
    """Its place; sections of one place follow each other in the order of their questions."""
    of_rows: Callable[[list[Row], Report], Markdown]
    """Returns the section for the rows of one model; empty if there is nothing to say."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Everything that a question does; what it leaves out, it does not do."""

    key: Key[Any, Any]

    options: Callable[[CellId, ModelSpec], Options | None] | None = None
    """Returns what its phase is asked in a cell; None: it is not asked there. A phase of this name
    lies in the probes."""
    of_captures: Callable[[Mapping[str, Capture], str], Answer | None] | None = None
    """Returns what a row's first captures have: from stack -> capture, and the reference's stack."""
    changes: Callable[[Capture, Capture], Mapping[str, Sequence[FactChange]]] | None = None
    """Returns the facts that differ between reference and candidate, by kind; they follow what the
    core has of that kind."""

    completes: Callable[[CellResult, Mapping[str, Answer]], CellResult] | None = None
    """Returns a cell with what the answers of its row add to it, before it is explained: the verdict of a folder that
    holds no model, or which frames of an exception changed."""

    ask: Callable[[Run], Awaitable[ByRow]] | None = None
    """Asks cells by jobs of its own, and compares what they leave."""

    rules: tuple[Rule, ...] = ()
    """The defects that it names; their texts are in docs/findings/."""

    sections: tuple[Section, ...] = ()
    of_model: tuple[ModelSection, ...] = ()
    has_details: Callable[[list[Row], Report], bool] | None = None
    """Returns True if the rows of a model need a page for it."""
    breaks: Callable[[Row, str], Sequence[str]] | None = None
    """Returns its checks that are broken on a stack, so that advice to use the stack can say so."""
    contradicts: Callable[[Row, str, str, frozenset[Signal]], Sequence[str]] | None = None
    """Returns its checks that are broken on the first stack, hold on the second one if there is one, and
    are about one of the signals."""
    brief: Callable[[Report], str] | None = None
    """Returns a line for the first screen; '' if there is nothing to say."""
    limit: Callable[[Report], str] | None = None
    """Returns how far a result that passes holds, a part of its headline; '' if there is nothing to say."""
    unasked: Callable[[Report], str] | None = None
    """Returns what was left unasked, as a reason of ``--strict``; '' if nothing was."""
    pages: tuple[Page, ...] = ()
    charts: Callable[[Row], Sequence[tuple[str, Chart]]] | None = None
    """Returns charts for report.html, each under the name of a relation, a batch …"""

    @property
    def name(self) -> str:
        """Its name in captures, reports and matrix.yaml."""
        return self.key.name
