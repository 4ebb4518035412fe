"""What transformers' own Trainer does with a model: its defaults, its rows, its numbers and its log."""

from __future__ import annotations

from samebits.questions.question import ModelSection, Question, Section
from samebits.questions.trainer.ask import ask
from samebits.questions.trainer.records import TRAINER
from samebits.questions.trainer.rules import RULES
from samebits.questions.trainer.section import by_trainer, by_trainer_of

QUESTION = Question(
    key=TRAINER,
    ask=ask,
    rules=RULES,
    sections=(Section("relations.md", 21, by_trainer),),
    of_model=(ModelSection(60, lambda rows, _: by_trainer_of(rows)),),
)
