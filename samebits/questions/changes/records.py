"""Changed code that no job ran: what a step between two releases changed, as far as a model can reach it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.questions.changes.parts import Statement
from samebits.questions.changes.source import Source
from samebits.records.kinds import Kind
from samebits.records.question import Answer, Key, NoAnswer
from samebits.records.record import Record
from samebits.records.result import JobFile

Near = Literal["own", "ran", "imported"]
"""own: a file of the model's own folder. ran: another file of which something ran. imported: a file
of which nothing ran."""
Area = Literal["model", "image", "text", "training", "saving", "generation", "attention", "other"]
"""What a definition serves, which says what makes it run."""
Why = Literal["name", "class", "config", "family", "input", "package", "framework", "message"]
"""Why a model cannot reach a definition.

name: nothing that it reaches refers to it. class: its class is no part of the model. config: only a value that its config does not have leads to it.
family: it is of another model. input: the model has no tokenizer or no processor. package: it needs a
quantized checkpoint, a device or another package. framework: it is of TensorFlow or Flax. message: it
imports, documents, logs, downloads or uploads.
"""


class Unrun(Record):
    """A definition that differs between two releases, can be reached, and did not run where it differs."""

    file: str
    """Below the folder of transformers."""
    name: str
    """Qualified name of a function, a class for its bases and attributes, or a constant."""
    reference_line: int
    candidate_line: int
    near: Near
    distance: int
    """References between what ran and it; more for what only users call."""
    aside: bool = False
    """Whether a check ran it that ended with an exception, so that nothing was compared."""
    ran_elsewhere: bool = False
    """Whether it is a function that ran, and only the lines that differ did not."""
    area: Area = "other"
    off: tuple[str, ...] = ()
    """Questions that run such code and that the model was not asked."""


class Step(Record):
    """The step from one stack to the next one of a row."""

    reference: str
    candidate: str
    ran: int = 0
    """Changed definitions that a job of either stack ran, in a line that differs."""
    few: tuple[str, ...] = ()
    """Their names, where they are so few that a difference of the step is likely to come from one of them."""
    unrun: int = 0
    """Changed definitions that can be reached and that no compared job ran where they differ."""
    elsewhere: int = 0
    """Those of them that ran, but not in a line that differs."""
    aside: int = 0
    """Those of them that only jobs ran which ended with an exception."""
    unreached: dict[Why, int] = Field(default_factory=dict)
    """Why the other changed definitions of the same files cannot be reached -> their number."""
    unread: tuple[str, ...] = ()
    """Files whose source the host's Python cannot read, so that nothing is known of them."""
    first: tuple[Unrun, ...] = ()
    """The nearest of those that did not run."""

    @property
    def changed(self) -> int:
        """The number of changed definitions that the model can reach."""
        return self.ran + self.unrun


class ChangesOfRow(Answer):
    """The steps between the stacks of a model, in their order in matrix.yaml."""

    steps: tuple[Step, ...] = ()
    off: tuple[str, ...] = ()
    """Questions that the model was not asked, by the level of the run or by matrix.yaml."""
    raised: dict[str, tuple[tuple[str, int], ...]] = Field(default_factory=dict)
    """Stack -> file and line of frames of its exception whose function the reference has otherwise."""


class StepFile(JobFile):
    """A step, kept for later runs of the same stacks and checks."""

    format: Literal["samebits-changes"] = "samebits-changes"
    format_version: Literal[3] = 3
    # History: 1: first. 2: functions that ran, but not where they differ. 3: the names of a few that ran.
    step: Step | None = None
    """None: no function was recorded in one of the stacks."""


class SourceFile(JobFile):
    """What one file of a release defines, kept beside the environment for every later run on it."""

    format: Literal["samebits-definitions"] = "samebits-definitions"
    format_version: Literal[1] = 1
    read_with: str
    """Digest of the release, and of the code that read it."""
    source: Source
    is_unread: bool = False
    """True if the host's Python cannot read the file."""
    imported: tuple[str, ...] = ()
    """Files of transformers that it imports."""
    statements: dict[str, tuple[Statement, ...]] = Field(default_factory=dict)
    """Function -> its statements, of those that another release has otherwise."""


CHANGES_NAME = "changes"
KEPT = Kind(CHANGES_NAME, CHANGES_NAME, lasts=False)
"""Steps that the host keeps; no stack does a job for them."""
CHANGES = Key(
    CHANGES_NAME,
    NoAnswer,
    ChangesOfRow,
    switch="Whether to list changed code of transformers that no check of the model ran.",
    hint="which changed code did not run",
    always=True,
    kinds=(KEPT,),
)
