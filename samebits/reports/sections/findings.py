"""The defects that rules know by name: in which cells, by what evidence, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.reports.rulebook import KINDS, advice, plain_title, short_advice, title
from samebits.reports.stories import holds
from samebits.text.blocks import bullets, codes, details, heading, link, page, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.names import page_path
from samebits.text.numbers import count, plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samebits.records.comparison import CellResult
    from samebits.records.finding import Finding, RuleText
    from samebits.records.report import Report, Row

TITLE = "Findings"
MOST_MODELS = 8
MOST_RULES = 12
"""Folded parts side by side that do not push what follows out of sight."""
MOST_SIGHTINGS = 6


class Sighting(NamedTuple):
    """One finding in all cells of one model that show it alike."""

    finding: Finding
    cells: tuple[CellResult, ...]

    @property
    def where(self) -> str:
        """Stacks that show it, with variants where a model has several."""
        stacks: dict[str, list[str]] = {}
        for cell in self.cells:
            stacks.setdefault(cell.cell.stack, []).append(str(cell.cell.variant))
        variants = {tuple(names) for names in stacks.values()}
        if len(variants) == 1:
            return f"{', '.join(variants.pop())}@{', '.join(stacks)}"
        return "; ".join(f"{', '.join(names)}@{stack}" for stack, names in stacks.items())


def findings(report: Report) -> Markdown:
    """Return the table of all findings, and of each rule what it says; nothing if there are none."""
    rules = [text for text in report.rules if text.scope == "model"]
    if not rules:
        return EMPTY
    rows = [_line(text, report.rows) for text in rules]
    headers = ["finding", "kind", "models (stacks)"]
    return page(
        [
            heading(2, TITLE),
            prose(
                "Defects that a rule knows by name; a model's page has the evidence, an example of "
                "the remedy and references. A finding explains and makes no verdict."
            ),
            table(headers, rows),
            *_advice_of(rules),
        ]
    )


def _advice_of(rules: list[RuleText]) -> list[Markdown]:
    """Return cause and remedy of each, folded; of many under one title."""
    parts = [details(plain_title(text), short_advice(text)) for text in rules]
    return [details("Cause and remedy of each", *parts)] if len(parts) > MOST_RULES else parts


def _line(text: RuleText, rows: Iterable[Row]) -> list[str]:
    stacks: dict[str, dict[str, None]] = {}
    for row in rows:
        for cell in row.cells:
            if any(finding.code == text.code for finding in cell.findings):
                stacks.setdefault(row.model, {})[cell.cell.stack] = None
    models = [
        fill("{} ({})", link(model, page_path(model)), ", ".join(where))
        for model, where in stacks.items()
    ]
    shown, rest = join(models[:MOST_MODELS]), len(models) - MOST_MODELS
    which = fill("{} and {} more", shown, count(rest)) if rest > 0 else shown
    return [title(text), text.kind, which]


def findings_of(rows: list[Row], report: Report) -> Markdown:
    """Return the findings of one model with all their evidence, for its own page."""
    found = _sightings(cell for row in rows for cell in row.cells)
    if not found:
        return EMPTY
    texts = {text.code: text for text in report.rules}
    by_code: dict[str, list[Sighting]] = {}
    for sighting in found:
        by_code.setdefault(sighting.finding.code, []).append(sighting)
    quiet = [number for number in by_code if _is_quiet(texts[number], by_code[number])]
    loud = [_rule(texts[number], by_code[number]) for number in by_code if number not in quiet]
    rest = [
        details(plain_title(texts[number]), _told(texts[number], by_code[number]))
        for number in quiet
    ]
    return page([heading(2, TITLE), *loud, *rest])


def _is_quiet(text: RuleText, sightings: list[Sighting]) -> bool:
    """Return True if it moves no number of these cells, and raises nothing in them."""
    if all(sighting.finding.of_saving for sighting in sightings):
        return True
    return text.kind == "api" and all(holds(c) for sighting in sightings for c in sighting.cells)


def named(cells: Iterable[CellResult], report: Report) -> set[str]:
    """Return the codes of rules that may explain why cells raise, or compute other numbers."""
    telling = {text.code for text in report.rules if text.kind in ("crash", "silent")}
    found = (finding for cell in cells for finding in cell.findings if not finding.of_saving)
    return telling & {finding.code for finding in found}


def has_findings(rows: Iterable[Row]) -> bool:
    """Return True if a rule spoke of any cell."""
    return any(cell.findings for row in rows for cell in row.cells)


def _rule(text: RuleText, sightings: list[Sighting]) -> Markdown:
    return page([heading(3, title(text)), _told(text, sightings)])


def _told(text: RuleText, sightings: list[Sighting]) -> Markdown:
    shown = [_sighting(sighting) for sighting in sightings[:MOST_SIGHTINGS]]
    rest = sightings[MOST_SIGHTINGS:]
    more = EMPTY
    if rest:
        places = codes(sighting.finding.where for sighting in rest)
        more = fill("{}: {}", plural(len(rest), "more place"), places)
    kind = fill("*{}: {}*", text.kind, KINDS[text.kind])
    return page([kind, *shown, more, advice(text)])


def _sighting(sighting: Sighting) -> Markdown:
    said = fill("{}, {}:", code(sighting.finding.where), sighting.where)
    return page([said, bullets(prose(line) for line in sighting.finding.evidence)])


def _sightings(cells: Iterable[CellResult]) -> list[Sighting]:
    """Return the findings, those of equal place and evidence joined over cells."""
    groups: dict[tuple[str, str, tuple[str, ...]], list[CellResult]] = {}
    first: dict[tuple[str, str, tuple[str, ...]], Finding] = {}
    for cell in cells:
        for finding in cell.findings:
            key = (finding.code, finding.where, finding.evidence)
            first.setdefault(key, finding)
            groups.setdefault(key, []).append(cell)
    return [Sighting(first[key], tuple(alike)) for key, alike in groups.items()]
