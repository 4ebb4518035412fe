"""Phase ``evidence``: the prompts with attention forced to eager, which loads another model."""

from __future__ import annotations

from samebits_probe.cell.evidence import MAX_RELOAD_BYTES
from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session


def observe(session: Session) -> None:
    """Run the observed prompts with eager attention, if time and memory allow it."""
    if "evidence" not in session.signals:
        return
    session.begin("evidence")
    prompts = session.answered()
    resolved = getattr(session.loaded.model.config, "_attn_implementation", None)
    reason = "" if resolved == "eager" else session.no_room(2)
    reason = reason or session.no_time(len(prompts), session.seconds["load"])
    if reason := session.no_reload or reason:
        session.skip("evidence: eager", reason, "level" if session.no_reload else "cost")
        session.evidence.skip("eager", reason)
        return
    limit = float("inf") if session.job["model"].get("large") else MAX_RELOAD_BYTES
    session.evidence.eager(session.source, prompts, limit)


PHASE = Phase("evidence", 60, observe)
