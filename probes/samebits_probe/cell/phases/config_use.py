"""Phase ``config use``: what the release made of the values of config.json, at the load and in the prompts."""

from __future__ import annotations

from samebits_probe.cell import config_use
from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import load


def observe(session: Session) -> None:
    """End the watch of the load, and record what was read; nothing where no forward ran."""
    session.config_reads.stop()
    if not session.is_run_a or not session.signals.get("forward"):
        return
    with session.instrument("config use"):
        written = load.written_config(session.source)
        config, places = session.loaded.model.config, session.config_reads.places
        session.signals["config_use"] = config_use.facts(config, written, places)


PHASE = Phase("config use", 31, observe)
