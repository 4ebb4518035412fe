"""Phase ``settings``: torch's settings as the load and the prompts left them."""

from __future__ import annotations

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session


def observe(session: Session) -> None:
    """Record the settings; only in run a, after everything that verdicts depend on."""
    if not session.is_run_a:
        return
    session.settings.look("prompts")
    session.signals["settings"] = session.settings.facts()


PHASE = Phase("settings", 36, observe)
