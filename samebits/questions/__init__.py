"""Questions beside the verdict, one folder each.

The tuple below is the only list of them. The core goes through it; nothing else imports a folder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from samebits.questions import relations, trainer, training

if TYPE_CHECKING:
    from samebits.questions.question import Question

QUESTIONS: tuple[Question, ...] = (relations.QUESTION, training.QUESTION, trainer.QUESTION)
"""In the order in which they are asked, and in which reports name them."""


def questions() -> tuple[Question, ...]:
    """Return all questions."""
    return QUESTIONS
