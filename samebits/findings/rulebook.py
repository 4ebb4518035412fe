"""Text of the rules, as reports have it."""

from __future__ import annotations

from samebits.base.finding_pages import CODE_NAME
from samebits.records.finding import RuleText
from samebits.text.blocks import fence, linked, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose

_MAX_TEXT = 4000
"""Limit in characters for the text of a rule, high enough that no text is cut."""


def title(text: RuleText) -> Markdown:
    """Return code and name of a rule."""
    return fill("{} {}", text.code, text_with_code(text.name))


def plain_title(text: RuleText) -> str:
    """Return code and name of a rule, for a place where code has no marks."""
    return f"{text.code} {text.name.replace('`', '')}"


def short_advice(text: RuleText) -> Markdown:
    """Return cause and remedy of a rule, for report.md; the models' pages have the rest."""
    return page(
        [
            fill("**Cause.** {}", text_with_code(text.cause)),
            remedy(text.remedy),
        ]
    )


def advice(text: RuleText) -> Markdown:
    """Return cause, remedy, releases and references of a rule."""
    return page([remedy(text.remedy), background(text)])


def remedy(text: str) -> Markdown:
    """Return a remedy with its title."""
    return fill("**Remedy.** {}", text_with_code(text))


def background(text: RuleText) -> Markdown:
    """Return what a rule says beside its remedy: an example, its cause, releases and references."""
    return page(
        [
            fill("**Cause.** {}", text_with_code(text.cause)),
            fence(text.example, "python") if text.example else EMPTY,
            table(
                ["name", "instead"],
                [[code(n), text_with_code(i)] for n, i in text.instead.items()],
            ),
            fill("**Releases.** {}", text_with_code(text.releases)),
            fill("**See** {}", _references(text)) if text.references else EMPTY,
        ]
    )


def _references(text: RuleText) -> Markdown:
    references = (
        linked(r) if r.startswith("https://") else text_with_code(r) for r in text.references
    )
    return join(references, "; ")


def text_with_code(text: str) -> Markdown:
    """Return the text of a rule with names of code set as code."""
    parts = []
    for i, part in enumerate(CODE_NAME.split(text)):
        if i % 2:
            parts.append(code(part.strip("`"), _MAX_TEXT))
        elif part:
            before, after = part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :]
            parts.append(Markdown(f"{before}{prose(part, _MAX_TEXT)}{after}"))
    return join(parts, "")
