"""Phase ``config use``: what the release made of the values of config.json, at the load and in the prompts."""

from __future__ import annotations

from contextlib import suppress

from samebits_probe.cell import config_use
from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.model import load


def observe(session: Session) -> None:
    """End the watch of the load, and record what was read; nothing of a model that loads where no forward ran."""
    session.config_reads.stop()
    if not session.is_run_a:
        return
    if session.load_failure is not None:
        with suppress(Exception):  # the load has it
            _record(session, load.load_config(session.source))
    elif session.signals.get("forward"):
        with session.instrument("config use"):
            _record(session, session.loaded.model.config)


def _record(session: Session, config: object) -> None:
    written = load.written_config(session.source)
    places = session.config_reads.places
    session.signals["config_use"] = config_use.facts(config, written, places)


PHASE = Phase("config use", 31, observe, without_load=True)
