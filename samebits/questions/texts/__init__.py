"""What a tokenizer makes of a corpus of texts and of conversations, and the parts of its backend."""

from __future__ import annotations

from samebits.questions.question import ModelSection, Question, Section
from samebits.questions.texts.alone import alone
from samebits.questions.texts.ask import changes, of_captures, options
from samebits.questions.texts.records import TEXTS
from samebits.questions.texts.rules import RULES
from samebits.questions.texts.section import tokenizers, tokenizers_differ, tokenizers_of

QUESTION = Question(
    key=TEXTS,
    options=options,
    of_captures=of_captures,
    changes=changes,
    completes=alone,
    rules=RULES,
    sections=(Section("findings.md", 40, tokenizers),),
    of_model=(ModelSection(90, tokenizers_of),),
    has_details=lambda rows, _: tokenizers_differ(rows),
)
