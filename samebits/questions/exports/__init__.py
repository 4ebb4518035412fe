"""Whether torch.export and torch.jit.trace take a model, and whether their programs compute what forward does."""

from __future__ import annotations

from samebits.questions.exports.compare import report
from samebits.questions.exports.records import EXPORTS
from samebits.questions.exports.rules import RULES
from samebits.questions.exports.section import SECTION
from samebits.questions.question import ModelSection, Question, Section, in_first_variant

QUESTION = Question(
    key=EXPORTS,
    options=in_first_variant,
    of_captures=EXPORTS.kept(report),
    rules=RULES,
    sections=(Section("findings.md", 55, SECTION.of_run),),
    of_model=(ModelSection(105, SECTION.of_model),),
    has_details=SECTION.has_details,
)
