"""Toy: how a stack adds up a few numbers."""

from __future__ import annotations

from samebits.questions.toy.ask import ask, of_captures, options
from samebits.questions.toy.records import TOY
from samebits.questions.toy.rules import RULES
from samebits.questions.toy.section import brief, has_details, of_model, of_run

from samebits.questions.question import ModelSection, Question, Section

QUESTION = Question(
    key=TOY,
    options=options,
    of_captures=of_captures,
    ask=ask,
    rules=RULES,
    sections=(Section("findings.md", 55, of_run),),
    of_model=(ModelSection(105, of_model),),
    has_details=has_details,
    brief=brief,
)
