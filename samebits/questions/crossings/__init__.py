"""Crossings: a model that one stack saves and another stack loads."""

from __future__ import annotations

from samebits.questions.crossings.ask import ask
from samebits.questions.crossings.records import CROSSINGS
from samebits.questions.crossings.rules import RULES
from samebits.questions.crossings.section import crossings, crossings_of, has_losses
from samebits.questions.question import ModelSection, Question, Section

QUESTION = Question(
    key=CROSSINGS,
    ask=ask,
    rules=RULES,
    sections=(Section("relations.md", 40, crossings),),
    of_model=(ModelSection(80, lambda rows, _: crossings_of(rows)),),
    has_details=lambda rows, _: has_losses(rows),
)
