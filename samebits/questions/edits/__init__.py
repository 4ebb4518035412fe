"""What users change of a loaded model before they use it: its vocabulary, its labels, its dtype, a copy of it."""

from __future__ import annotations

from samebits.questions.edits.compare import differences
from samebits.questions.edits.rules import RULES
from samebits.questions.edits.section import SECTION

QUESTION = SECTION.question(differences, RULES, order=55)
