"""What other classes read of the checkpoint: the base model for its features, a head to train, a part alone."""

from __future__ import annotations

from samebits.questions.classes.compare import report
from samebits.questions.classes.records import CLASSES
from samebits.questions.classes.rules import RULES
from samebits.questions.classes.section import SECTION
from samebits.questions.question import ModelSection, Question, Section, in_first_variant

QUESTION = Question(
    key=CLASSES,
    options=in_first_variant,
    of_captures=CLASSES.kept(report),
    rules=RULES,
    sections=(Section("findings.md", 54, SECTION.of_run),),
    of_model=(ModelSection(104, SECTION.of_model),),
    has_details=SECTION.has_details,
)
