"""Which arguments of forward have an effect: those that one release reads and another ignores or refuses."""

from __future__ import annotations

from samebits.questions.arguments.compare import differences
from samebits.questions.arguments.rules import RULES
from samebits.questions.arguments.section import SECTION

QUESTION = SECTION.question(differences, RULES, order=53)
