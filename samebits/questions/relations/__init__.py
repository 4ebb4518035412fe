"""Relations that must hold inside one cell: two ways to compute the same rows."""

from __future__ import annotations

from samebits.questions.question import ModelSection, Question, Section
from samebits.questions.relations.ask import options
from samebits.questions.relations.averages import averages
from samebits.questions.relations.chart import charts
from samebits.questions.relations.lines import breaks, contradicts
from samebits.questions.relations.of_model import has_relation_details, relations_of
from samebits.questions.relations.records import RELATIONS
from samebits.questions.relations.rules import RULES
from samebits.questions.relations.section import broken_line, relations

QUESTION = Question(
    key=RELATIONS,
    options=options,
    of_captures=RELATIONS.kept(),
    rules=RULES,
    sections=(Section("relations.md", 10, relations),),
    of_model=(
        ModelSection(50, lambda rows, _: relations_of(rows)),
        ModelSection(51, lambda rows, _: averages(rows)),
    ),
    has_details=lambda rows, _: has_relation_details(rows),
    breaks=breaks,
    contradicts=contradicts,
    brief=broken_line,
    charts=charts,
)
