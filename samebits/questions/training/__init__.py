"""One training step of a model: losses, gradients, an update, and ways to train that must agree."""

from __future__ import annotations

from samebits.questions.question import ModelSection, Question, Section
from samebits.questions.training.ask import ask
from samebits.questions.training.records import TRAINING
from samebits.questions.training.rules import RULES
from samebits.questions.training.section import has_details, training, training_of

QUESTION = Question(
    key=TRAINING,
    ask=ask,
    rules=RULES,
    sections=(Section("relations.md", 20, training),),
    of_model=(ModelSection(60, lambda rows, _: training_of(rows)),),
    has_details=lambda rows, _: has_details(rows),
)
