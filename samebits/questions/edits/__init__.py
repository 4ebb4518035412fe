"""What users change of a loaded model before they use it: its vocabulary, its labels, its dtype, a copy of it."""

from __future__ import annotations

from samebits.questions.edits.compare import report
from samebits.questions.edits.records import EDITS
from samebits.questions.edits.rules import RULES
from samebits.questions.edits.section import SECTION
from samebits.questions.question import ModelSection, Question, Section, in_first_variant

QUESTION = Question(
    key=EDITS,
    options=in_first_variant,
    of_captures=EDITS.kept(report),
    rules=RULES,
    sections=(Section("findings.md", 55, SECTION.of_run),),
    of_model=(ModelSection(105, SECTION.of_model),),
    has_details=SECTION.has_details,
)
