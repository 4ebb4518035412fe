"""Phase ``tokenizer``: what the tokenizer is and makes of each prompt's text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits_probe.cell import tokenizer
from samebits_probe.cell.phase import Phase

if TYPE_CHECKING:
    from samebits_probe.cell.session import Session


def observe(session: Session) -> None:
    """Observe the tokenizer, if there is one; only in run a, as run b would give the same."""
    if not session.is_run_a or session.loaded.tokenizer is None:
        return
    session.begin("tokenizer")
    with session.instrument("tokenizer"):
        facts = tokenizer.facts(session.source, session.job["model"]["prompts"])
        session.signals["tokenizer"] = facts


PHASE = Phase("tokenizer", 40, observe, needs_grad=True)
