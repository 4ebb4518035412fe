"""Changed code that did not run: what a step between releases changes, and no check of a model ran."""

from __future__ import annotations

from samebits.questions.changes.ask import ask, of_cell
from samebits.questions.changes.records import CHANGES
from samebits.questions.changes.section import brief, has_unrun, limit, of_model, of_run, unasked
from samebits.questions.question import ModelSection, Question, Section

QUESTION = Question(
    key=CHANGES,
    completes=of_cell,
    ask=ask,
    sections=(Section("verdicts.md", 90, of_run),),
    of_model=(ModelSection(130, of_model),),
    has_details=lambda rows, _: has_unrun(rows),
    brief=brief,
    limit=limit,
    unasked=unasked,
)
