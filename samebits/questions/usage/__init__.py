"""What users do around a model: attention maps, packed rows, generate(), saving."""

from __future__ import annotations

from samebits.questions.question import ModelSection, Page, Question, Section, in_first_variant
from samebits.questions.usage import generating, rules
from samebits.questions.usage.records import USAGE
from samebits.questions.usage.section import PAGE, TITLE, around_page, around_the_model, usage_of

QUESTION = Question(
    key=USAGE,
    options=in_first_variant,
    of_captures=USAGE.kept(),
    rules=(*rules.RULES, *generating.RULES),
    sections=(Section("findings.md", 30, around_the_model),),
    of_model=(ModelSection(40, lambda rows, _: usage_of(rows)),),
    pages=(
        Page(
            PAGE, TITLE, "library-wide changes: what each release does to every model", around_page
        ),
    ),
)
