"""How the first weights of new models are drawn: of the config alone, and of heads that the checkpoint lacks."""

from __future__ import annotations

from samebits.questions.initial.records import INITIAL
from samebits.questions.initial.rules import RULES
from samebits.questions.question import Question, in_first_variant

QUESTION = Question(key=INITIAL, options=in_first_variant, of_captures=INITIAL.kept(), rules=RULES)
