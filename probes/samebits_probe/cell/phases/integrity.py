"""Phase ``integrity``: whether the load wrote every tensor, in a child with the untouched model."""

from __future__ import annotations

from pathlib import Path

from samebits_probe.cell import integrity
from samebits_probe.cell.phase import InFork, Phase
from samebits_probe.cell.session import Session


def observe(session: Session) -> None:
    """Check the load in the forked child; only in run a, as run b would give the same."""
    if "integrity" not in session.model_forks:
        return
    session.begin("integrity")
    no_second_load = session.no_reload or session.no_room(2.5)
    if no_second_load:
        why = "level" if session.no_reload else "cost"
        session.skip("integrity: second load", no_second_load, why)
    if (facts := session.run_in_fork("integrity", no_second_load)) is not None:
        session.signals["integrity"] = facts


def untouched(session: Session) -> InFork | None:
    """Return the check of the load; None, with a skip, if the tensors were not observed."""
    if not {"weights", "buffers"} <= session.signals.keys():
        session.skip("integrity", "weights and buffers were not observed")
        return None
    facts = _load_facts(session)
    return lambda saved, argument: integrity.integrity(facts, saved, argument)


def without_fork(session: Session, reason: str) -> None:
    """Check what can be checked in this process without changing the model."""
    with session.instrument("integrity"):
        session.signals["integrity"] = integrity.integrity(_load_facts(session), Path(), reason)


def _load_facts(session: Session) -> integrity.LoadFacts:
    return integrity.LoadFacts(
        session.loaded,
        session.source,
        session.job["run"],
        session.signals,
        session.twin,
        lambda: session.reloaded(session.known_hashes()),
        session.known_hashes,
        lambda: next(iter(session.prompts().values()), None),
        session.too_large(),
    )


PHASE = Phase("integrity", 50, observe, untouched, without_fork, needs_grad=True)
