"""Questions beside the verdict, one folder each.

The tuple below is the only list of them. The core goes through it; nothing else imports a folder.
"""

from __future__ import annotations

from samebits.questions import (
    arguments,
    changes,
    classes,
    crossings,
    edits,
    exports,
    initial,
    pipelines,
    processors,
    relations,
    texts,
    trainer,
    training,
    usage,
    writes,
)
from samebits.questions.question import Question
from samebits.records.question import arrange

QUESTIONS: tuple[Question, ...] = (
    texts.QUESTION,
    processors.QUESTION,
    pipelines.QUESTION,
    arguments.QUESTION,
    classes.QUESTION,
    initial.QUESTION,
    exports.QUESTION,
    edits.QUESTION,
    relations.QUESTION,
    crossings.QUESTION,
    usage.QUESTION,
    writes.QUESTION,
    training.QUESTION,
    trainer.QUESTION,
    changes.QUESTION,
)
"""In the order in which they are asked, and in which reports and matrix.yaml name them."""
arrange(question.key for question in QUESTIONS)


def questions() -> tuple[Question, ...]:
    """Return all questions."""
    return QUESTIONS
