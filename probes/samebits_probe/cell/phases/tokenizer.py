"""Phase ``tokenizer``: what the tokenizer is, and what it makes of texts and conversations."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from samebits_probe.cell import backend, chat, texts, tokenizer
from samebits_probe.cell.phase import Phase
from samebits_probe.model import load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samebits_probe.cell.session import Session


def observe(session: Session) -> None:
    """Observe the tokenizer, if there is one; only in run a, as run b would give the same."""
    if not session.is_run_a or session.loaded.tokenizer is None:
        return
    session.begin("tokenizer")
    with session.instrument("tokenizer"):
        # an object of its own, as calls change its settings; a load takes seconds if it is large
        loaded = load.load_tokenizer(session.source)
        if loaded is None:
            return
        facts = tokenizer.facts_of(loaded, session.job["model"]["prompts"])
        session.signals["tokenizer"] = facts
        with _quiet():
            _observe_texts(session, loaded, facts)


def _observe_texts(session: Session, loaded: Any, facts: dict[str, Any]) -> None:
    """Add the parts of the backend, and what it makes of many texts and conversations."""
    with session.instrument("tokenizer: parts"):
        facts["parts"] = backend.facts(loaded, session.source)
    with session.instrument("tokenizer: chat template"), session.timed("chat template"):
        facts["conversations"] = chat.facts(loaded)
    with session.instrument("tokenizer: texts"), session.timed("texts"):
        facts["corpus"] = texts.facts(loaded, session.source)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hold back warnings about long texts and defaults, of which there would be hundreds."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


PHASE = Phase("tokenizer", 40, observe, needs_grad=True)
