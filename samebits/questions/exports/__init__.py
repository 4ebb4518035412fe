"""Whether torch.export and torch.jit.trace take a model, and whether their programs compute what forward does."""

from __future__ import annotations

from samebits.questions.exports.compare import differences
from samebits.questions.exports.rules import RULES
from samebits.questions.exports.section import SECTION

QUESTION = SECTION.question(differences, RULES, order=55)
