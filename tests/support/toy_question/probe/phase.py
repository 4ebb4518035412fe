"""Phase ``toy``: adds up a few numbers in a cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits_probe.cell.phase import Phase
from samebits_probe.questions.toy.add import sums

if TYPE_CHECKING:
    from samebits_probe.cell.session import Session


def observe(session: Session) -> None:
    """Add up, if the job asks for it."""
    if session.options("toy") is None:
        return
    session.begin("toy")
    own, exact = sums(64)
    session.answer("toy", {"own": own, "float64": exact})


PHASE = Phase("toy", 95, observe)
