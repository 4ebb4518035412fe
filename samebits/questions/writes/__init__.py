"""What each release writes: names of saved tensors, and files of a model and of its tokenizer."""

from __future__ import annotations

from samebits.questions.question import ModelSection, Question, Section
from samebits.questions.writes.compare import of_captures
from samebits.questions.writes.records import WRITES
from samebits.questions.writes.rules import RULES
from samebits.questions.writes.section import of_model, of_run

QUESTION = Question(
    key=WRITES,
    of_captures=of_captures,
    rules=RULES,
    sections=(Section("relations.md", 45, of_run),),
    of_model=(ModelSection(85, of_model),),
)
