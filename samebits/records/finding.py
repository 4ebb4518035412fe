"""Findings: known defects, the rules that recognise them, and the steps of the hunt for a cause."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.record import Record

Status = Literal["ruled in", "ruled out", "follows", "open", "not observed"]
"""The result of checking a suspect.

ruled in: it differs, and none of its inputs differ. ruled out: it was compared and is the same.
follows: it differs, and so does one of its inputs. open: it changed, and no observation shows
whether that changes a number. not observed: there is no observation of it.
"""


ROPE_TABLES = "rope's cos and sin"
"""Name of the suspect for the output of rotary modules, in the hunt and in rules."""


class RuleText(Record):
    """The text of a rule, the same for all its findings; one page each in docs/findings/."""

    code: str
    """``SB101``."""
    name: str
    """One line."""
    kind: Literal["crash", "silent", "rounding", "api"]
    """crash: an exception. silent: wrong numbers without an exception. rounding: the same
    function, rounded differently. api: a different shape, type or name that code may rely on."""
    scope: Literal["model", "release"] = "model"
    """model: a defect of the model, or of how the release treats this model. release: a behaviour
    of the release with every model; a report lists it once per stack."""
    looks_for: str
    """The facts that make the rule match, and those that prevent it."""
    cause: str
    remedy: str
    """For the author of the model, or for its user if the release has the defect."""
    example: str = ""
    """Code that shows the remedy."""
    instead: dict[str, str] = Field(default_factory=dict)
    """Name -> replacement, for a rule about many names."""
    releases: str
    """Which releases are affected, and how that is known."""
    references: tuple[str, ...] = ()
    """Issues, pull requests and files of the release."""


class Finding(Record):
    """One match of a rule in one cell."""

    code: str
    where: str
    """A tensor, or file and line of the model's code, or a config field."""
    evidence: tuple[str, ...]
    """The observations, one line each."""
    saver: str = ""
    """The stack that saves, if it is about what a save writes and not about a computation."""
    raises: str = ""
    """The stack that raises, if it is about a check that answers on the other side."""
    of_reference: bool = False
    """True if the reference has the defect: the comparison of both sides shows it at the candidate."""
    of_prompts: tuple[str, ...] | None = None
    """The prompts whose numbers it may explain, such as the padded ones; None for all, () for none."""

    @property
    def of_saving(self) -> bool:
        """True if it is about what a release saves, and not about a computation."""
        return bool(self.saver)


class Explanation(Record):
    """A known defect that explains the verdict on a cell."""

    code: str
    where: str
    stack: str
    """The stack that has the defect: the cell's, or its reference's."""


class StackFinding(Record):
    """One rule of scope ``release`` that matched in cells of one stack."""

    code: str
    where: str
    evidence: tuple[str, ...]
    """The observations for the first model, one line each; lines of further places begin with the place."""
    models: tuple[str, ...]
    """All models with this finding."""
    raises: str = ""
    """The stack, if it is about a use that raises there and answers in the reference."""


class Step(Record):
    """One suspect that was checked as the cause, in the order in which a person would check."""

    suspect: str
    status: Status
    what: str
    """One line: what was compared, and the result."""
