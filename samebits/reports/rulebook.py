"""Text of the rules, in a report and as docs/findings/: a page for each rule, and an index.

``python -m samebits.reports.rulebook`` writes the pages; tests/findings/test_findings.py checks
that they match the registry.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from samebits.findings.registry import RULES
from samebits.lint.registry import rules as lint_rules
from samebits.text.blocks import bullets, fence, heading, link, linked, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, markdown, prose

if TYPE_CHECKING:
    from samebits.records.finding import RuleText

FOLDER = Path(__file__).parents[2] / "docs" / "findings"

KINDS = {
    "crash": "an exception",
    "silent": "wrong numbers and no exception",
    "rounding": "the same function, rounded differently",
    "api": "a different shape, type or name",
}
"""Kind of a rule, as RuleText has it -> its meaning."""

REMEDIES = Path(__file__).parents[1] / "lint" / "remedies.json"
"""The remedies that ``samebits lint`` shows in SARIF, which must not import the rules of findings."""

_CODE_NAME = re.compile(
    r"""(
        `[^`]+`
      | [A-Za-z_][\w.]*\([^()\s]*\)(?:\.\w+(?:\([^()\s]*\))?)*  # a call
      | (?:[\w-]+/)+[\w.-]*\w                      # a path
      | \.?\b[A-Za-z][\w.]*_[\w.]*\w(?:=\w+)?     # snake_case
      | \b_[\w.]*\w
      | \b(?:[a-z_]+\.)*[A-Za-z]+[a-z]+[A-Z]\w+\b     # CamelCase
      | \b[A-Z]+_[A-Z_]+\b
    )""",
    re.VERBOSE,
)
"""Matches a name of code in the text of a rule."""

_MAX_TEXT = 4000
"""Limit in characters for the text of a rule, high enough that no text is cut."""


def title(text: RuleText) -> Markdown:
    """Return code and name of a rule."""
    return fill("{} {}", text.code, _text_with_code(text.name))


def plain_title(text: RuleText) -> str:
    """Return code and name of a rule, for a place where code has no marks."""
    return f"{text.code} {text.name.replace('`', '')}"


def short_advice(text: RuleText) -> Markdown:
    """Return cause and remedy of a rule, for report.md; the models' pages have the rest."""
    return page(
        [
            fill("**Cause.** {}", _text_with_code(text.cause)),
            fill("**Remedy.** {}", _text_with_code(text.remedy)),
        ]
    )


def advice(text: RuleText) -> Markdown:
    """Return cause, remedy, releases and references of a rule, for a model's page and its own."""
    return page(
        [
            fill("**Cause.** {}", _text_with_code(text.cause)),
            fill("**Remedy.** {}", _text_with_code(text.remedy)),
            fence(text.example, "python") if text.example else EMPTY,
            table(
                ["name", "instead"],
                [[code(n), _text_with_code(i)] for n, i in text.instead.items()],
            ),
            fill("**Releases.** {}", _text_with_code(text.releases)),
            fill("**See** {}", _references(text)) if text.references else EMPTY,
        ]
    )


def _references(text: RuleText) -> Markdown:
    references = (
        linked(r) if r.startswith("https://") else _text_with_code(r) for r in text.references
    )
    return join(references, "; ")


def _text_with_code(text: str) -> Markdown:
    """Return the text of a rule with names of code set as code."""
    parts = []
    for i, part in enumerate(_CODE_NAME.split(text)):
        if i % 2:
            parts.append(code(part.strip("`"), _MAX_TEXT))
        elif part:
            before, after = part[: len(part) - len(part.lstrip())], part[len(part.rstrip()) :]
            parts.append(Markdown(f"{before}{prose(part, _MAX_TEXT)}{after}"))
    return join(parts, "")


def render() -> dict[str, str]:
    """Return the text of every page by the name of its file."""
    pages = {f"{rule.text.code}.md": _page(rule.text) for rule in RULES}
    return {"README.md": _index(), **pages}


def _page(text: RuleText) -> str:
    blocks = [
        heading(1, title(text)),
        fill("*{}: {}*", text.kind, KINDS[text.kind]),
        fill("**Looks for** {}.", _text_with_code(text.looks_for.rstrip("."))),
        advice(text),
        fill("{}", link("all findings", "README.md")),
    ]
    return f"{page(blocks)}\n"


def remedies() -> str:
    """Return the remedy of each finding that lint reports, as JSON."""
    codes = {rule.code for rule in lint_rules()}
    texts = {rule.text.code: rule.text.remedy for rule in RULES if rule.text.code in codes}
    return f"{json.dumps(texts, indent=1, ensure_ascii=False)}\n"


def _index() -> str:
    in_code = {rule.code for rule in lint_rules()}
    rows = [
        [
            link(rule.text.code, f"{rule.text.code}.md"),
            _text_with_code(rule.text.name),
            rule.text.kind,
            "code, run" if rule.text.code in in_code else "run",
        ]
        for rule in RULES
    ]
    meanings = [fill("*{}*: {}", kind, meaning) for kind, meaning in KINDS.items()]
    blocks = [
        heading(1, "Findings"),
        markdown(
            "Known defects, each with its cause and remedy. A finding is reported only if the cell "
            "itself shows it; it is never inferred from the number of a release."
        ),
        bullets(meanings),
        fill(
            "*Seen in* says what names a finding: the code alone ({}, in which an idiom must be "
            "certain), or a run of the model. What depends on weights, numbers, files of a tokenizer "
            "or the whole of a forward is only seen in a run.",
            code("samebits lint"),
        ),
        table(["code", "name", "kind", "seen in"], rows),
    ]
    return f"{page(blocks)}\n"


def write(folder: Path = FOLDER) -> None:
    """Write every page, and remove the pages of rules that no longer exist."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = render()
    for path in folder.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write()
    REMEDIES.write_text(remedies(), encoding="utf-8", newline="\n")
