"""What a run of a test leaves, and what ``samebits golden`` says of it, as its JSON has it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from samebits.base.hashes import HASH_ALGORITHM, HashAlgorithm
from samebits.records.record import Record
from samebits.records.tensor import TensorRef

Output = tuple[int, str]
"""A call, and the name of an output."""


class Compared(Record):
    """Two values that a test compared."""

    test: str
    file: str
    line: int
    code: str
    """The line of the test."""
    function: str
    rtol: float
    atol: float
    holds: bool
    values: tuple[TensorRef, TensorRef]
    """Both as they were given: the second is usually the expected one."""
    calls: tuple[Output | None, Output | None]
    """The output of a call that has all of its numbers; None if there is none."""
    before: int
    """Calls before it."""


class Called(Record):
    """A forward that the test made, or a generate()."""

    number: int
    test: str
    model_class: str
    """As ``module:Name``; '' if the checkpoint brings its code."""
    source: str
    """A folder, or an id on the hub."""
    revision: str | None = None
    made: bool
    """True if the test made or changed the model, so that the folder is a copy of it."""
    state: str
    """Digest of all weights, whatever their names."""
    dtype: str
    attention: str
    """As the test asked for it, else default."""
    device: str
    training: bool
    inputs: dict[str, TensorRef] = Field(default_factory=dict)
    constants: dict[str, Any] = Field(default_factory=dict)
    file: str = ""
    """The inputs."""
    unable: str = ""
    """Why it cannot be called again outside of the test; '' if it can."""
    outputs: dict[str, str] = Field(default_factory=dict)
    """Name -> hash."""

    @property
    def what(self) -> str:
        """What decides its outputs, and these, as text: calls with the same one are the same."""
        return self.model_dump_json(exclude={"number", "test", "file"})


class Watched(Record):
    """What one run of a test left."""

    format: Literal["samebits-golden"] = "samebits-golden"
    hash_algorithm: HashAlgorithm = HASH_ALGORITHM
    code: int
    """Of pytest."""
    transformers: str
    torch: str
    outcomes: dict[str, tuple[str, str]]
    """Test -> how it ended, and what it said."""
    compared: tuple[Compared, ...]
    called: tuple[Called, ...]
    left_out: int
    """Calls that were not recorded."""


Kind = Literal[
    "same",
    "rounding",
    "behaviour change",
    "other inputs",
    "other weights",
    "after the model",
    "not golden",
    "not repeatable",
    "undecided",
]
"""Why the values of two environments differ.

same: they do not. other inputs, other weights: what the test gives the model differs already. after the model: the
model returns the same bits. not golden: no side of the comparison is constant.
"""


class Change(Record):
    """How a model's call changes where one package changes."""

    package: Literal["transformers", "torch"]
    before: str
    after: str
    verdict: str
    headline: str
    constant: str = ""
    """Why it diverged, if only by a number that is stored or computed at the load."""
    since: str = ""
    cause: str = ""


class Judged(Record):
    """One comparison of the test in both environments."""

    test: str
    file: str
    line: int
    code: str
    kind: Kind
    reason: str
    holds: tuple[bool, ...]
    """In the reference and in the candidate."""
    distances: tuple[float, ...]
    """Largest distance of actual from expected in both."""
    exact: tuple[float, ...] = ()
    """Largest distance of the expected values from those in float64, then of the actual ones of both; () if these
    are not known."""
    moved: float = 0.0
    """Largest distance of the actual values of both."""
    allowed: float = 0.0
    """The tolerance where it is smallest."""
    changes: tuple[Change, ...] = ()
    """Of the model's call, one package after the other."""
    commits: tuple[str, ...] = ()
    new: str = ""
    """The values of the candidate, to paste; only where they may replace the old ones."""


class Golden(Record):
    """The judgement of a test."""

    format: Literal["samebits-golden-judgement"] = "samebits-golden-judgement"
    format_version: Literal[2] = 2
    test: str
    environments: tuple[str, ...]
    """Reference and candidate in words."""
    judged: tuple[Judged, ...]
    failure: str = ""
    """Why nothing was judged; '' if something was."""
    unjudged: tuple[str, ...] = ()
    """Tests that the candidate alone fails, by another comparison than those that are judged."""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
