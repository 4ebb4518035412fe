"""Phase ``texts``: what the tokenizer makes of many texts and conversations."""

from __future__ import annotations

from typing import Any

from samebits_probe.cell.phase import Phase
from samebits_probe.cell.session import Session
from samebits_probe.process.quiet import without_logs
from samebits_probe.questions.texts import backend, chat, texts


def observe(session: Session) -> None:
    """Observe what the tokenizer makes of texts, if there is one that could be observed itself."""
    tokenizer, session.spare_tokenizer = session.spare_tokenizer, None
    if session.options("texts") is None or tokenizer is None:
        return
    session.begin("texts")
    observed: dict[str, Any] = {}
    session.answer("texts", observed)
    with without_logs():  # about long texts and defaults there would be hundreds
        with session.instrument("tokenizer: parts"):
            observed["parts"] = backend.facts(tokenizer, session.source)
        with session.instrument("tokenizer: chat template"), session.timed("chat template"):
            observed["conversations"] = chat.facts(tokenizer)
        with session.instrument("tokenizer: texts"):
            observed["corpus"] = texts.facts(tokenizer, session.source)


PHASE = Phase("texts", 41, observe, needs_grad=True, without_model=True)
