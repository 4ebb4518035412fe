"""The first sentences of a text."""

from __future__ import annotations

import re

from samebits.reports.plain import on_one_line

SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\d]|[a-z]\w*_)")
"""What lies between two sentences."""


def first_sentences(text: str, limit: int) -> str:
    """Return the first sentences of a text that fit, the first one in any case."""
    fitting = ""
    for sentence in SENTENCE.split(on_one_line(text)):
        if fitting and len(fitting) + len(sentence) + 1 > limit:
            break
        fitting = f"{fitting} {sentence}".strip()
    return fitting
