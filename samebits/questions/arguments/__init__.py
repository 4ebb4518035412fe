"""Which arguments of forward have an effect: those that one release reads and another ignores or refuses."""

from __future__ import annotations

from samebits.questions.arguments.compare import report
from samebits.questions.arguments.records import ARGUMENTS
from samebits.questions.arguments.rules import RULES
from samebits.questions.arguments.section import SECTION
from samebits.questions.question import ModelSection, Question, Section, in_first_variant

QUESTION = Question(
    key=ARGUMENTS,
    options=in_first_variant,
    of_captures=ARGUMENTS.kept(report),
    rules=RULES,
    sections=(Section("findings.md", 53, SECTION.of_run),),
    of_model=(ModelSection(103, SECTION.of_model),),
    has_details=SECTION.has_details,
)
