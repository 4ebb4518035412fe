"""Phase ``tokenizer``: what the tokenizer is, and what it makes of the prompts."""

from __future__ import annotations

from samebits_probe.cell import tokenizer
from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import load


def observe(session: Session) -> None:
    """Observe the tokenizer, if there is one; only in run a, as run b would give the same."""
    loaded = session.loaded
    if not session.is_run_a or loaded.tokenizer is None or loaded.tokenizer_failure is not None:
        return
    session.begin("tokenizer")
    with session.instrument("tokenizer"):
        # an object of its own, as calls change its settings
        if (spare := load.load_tokenizer(session.source)) is not None:
            prompts = session.job["model"]["prompts"]
            session.signals["tokenizer"] = tokenizer.facts(spare, prompts, session.source)
            session.spare_tokenizer = spare


PHASE = Phase("tokenizer", 40, observe, needs_grad=True, without_model=True)
