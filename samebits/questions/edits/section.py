"""Edits with other results, once for all models in which the same happens."""

from __future__ import annotations

from samebits.questions.differing import Differing
from samebits.questions.edits.compare import results
from samebits.questions.edits.records import EDITS, EditsSignal


def _name(edit: str, what: str) -> str:
    return f"{edit}: {what}"


def _of(signal: EditsSignal, name: str) -> str:
    """Return what a part is after an edit."""
    words = {
        _name(edit, what): text
        for edit, done in signal.after.items()
        for what, text in results(done).items()
    }
    return words.get(name, "")


SECTION = Differing(
    title="Edits of the loaded model",
    thing="edit",
    intro="{}: the loaded model is edited as users do, and used. Listed is what an edit breaks in one environment, or "
    "does otherwise than under the reference. It does not affect the verdict.",
    key=EDITS,
    name=lambda difference: _name(difference.edit, difference.what),
    in_words=_of,
)
