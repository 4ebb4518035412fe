"""Processors of images, videos, sounds and several of them, fed seeded inputs; texts are another question."""

from __future__ import annotations

from samebits.questions.processors.compare import report
from samebits.questions.processors.records import PROCESSORS
from samebits.questions.processors.rules import RULES
from samebits.questions.processors.section import processors, processors_differ, processors_of
from samebits.questions.question import ModelSection, Question, Section, in_first_variant

QUESTION = Question(
    key=PROCESSORS,
    options=in_first_variant,
    of_captures=PROCESSORS.kept(report),
    rules=RULES,
    sections=(Section("findings.md", 50, processors),),
    of_model=(ModelSection(100, processors_of),),
    has_details=lambda rows, _: processors_differ(rows),
)
