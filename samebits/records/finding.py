"""A defect that has a name: which rule recognised it, by what, and what to do about it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from samebits.records.record import Record

Status = Literal["ruled in", "ruled out", "follows", "open", "not observed"]
"""What the hunt says of a suspect.

ruled in: it differs, and nothing that it is computed from does. ruled out: compared, and the same.
follows: it differs, and so does something that it is computed from. open: it changed, and no
observation says whether that moves a number. not observed: nothing was seen that could tell.
"""


SAVED_BY = "saved by "
"""How the place of a finding on a crossing begins; the id of the saver follows."""

SAVING = "save_pretrained of "
"""How the place of a finding on what is saved begins; what it is follows."""

ROPE_TABLES = "rope's cos and sin"
"""The suspect that rotary modules return, as the hunt calls it and rules ask for it."""


class RuleText(Record):
    """What a rule says of every finding alike; one page each in docs/findings/."""

    code: str
    """``SB101``."""
    name: str
    """One line."""
    kind: Literal["crash", "silent", "rounding", "api"]
    """crash: an exception. silent: wrong numbers and no exception. rounding: other bits of the same
    maths. api: another shape, type or name that code may rely on."""
    scope: Literal["model", "release"] = "model"
    """model: a defect of the model, or of how the release treats this one. release: what the release
    answers whichever model is asked; a report says it once per stack."""
    looks_for: str
    """Which facts make the rule speak, and what keeps it silent."""
    cause: str
    remedy: str
    """For the author of the model, or for its user where the release is to blame."""
    example: str = ""
    """Code that shows the remedy."""
    instead: dict[str, str] = Field(default_factory=dict)
    """Name -> what to use instead, for a rule over many names."""
    releases: str
    """Which releases are affected, and how that is known."""
    references: tuple[str, ...] = ()
    """Issues, pull requests and files of the release."""


class Finding(Record):
    """One rule that spoke of one cell."""

    code: str
    where: str
    """A tensor, or file and line of the model's code, or a config field."""
    evidence: tuple[str, ...]
    """What was seen, one line each."""

    @property
    def of_saving(self) -> bool:
        """True if it is of what a release saves, and not of what it computes from the checkpoint."""
        return self.where.startswith((SAVED_BY, SAVING))


class StackFinding(Record):
    """One rule of scope ``release`` that spoke of cells of one stack."""

    code: str
    where: str
    evidence: tuple[str, ...]
    """What was seen of the first model, one line each."""
    models: tuple[str, ...]
    """Every model of which it was seen."""


class Step(Record):
    """One suspect of the hunt, in the order in which a person would look: ruled in or out."""

    suspect: str
    status: Status
    what: str
    """One line: what was compared and what was found."""
