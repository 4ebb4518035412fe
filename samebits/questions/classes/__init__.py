"""What other classes read of the checkpoint: the base model for its features, a head to train, a part alone."""

from __future__ import annotations

from samebits.questions.classes.compare import differences
from samebits.questions.classes.rules import RULES
from samebits.questions.classes.section import SECTION

QUESTION = SECTION.question(differences, RULES, order=54)
