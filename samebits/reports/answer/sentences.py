"""The first sentences of a text."""

from __future__ import annotations

import re

from samebits.reports.plain import on_one_line

SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z`\d]|[a-z]\w*_)")
"""What lies between two sentences."""


def first_sentences(text: str, limit: int) -> str:
    """Return the first sentences of a text that fit, the first one in any case."""
    kept = ""
    for sentence in SENTENCE.split(on_one_line(text)):
        if kept and len(kept) + len(sentence) + 1 > limit:
            break
        kept = f"{kept} {sentence}".strip()
    return kept
