"""Defects that the rules know by name: the cells, the evidence and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from samebits.base.finding_pages import KINDS
from samebits.findings.rulebook import background, plain_title, remedy, short_advice, title
from samebits.records.comparison import CellResult
from samebits.records.finding import Finding, RuleText
from samebits.records.report import Report, Row
from samebits.reports.answer import first_sentences
from samebits.reports.plain import explaining_codes, mended, remedy_as_seen
from samebits.reports.stories import holds
from samebits.text.blocks import bullets, codes, details, first_of, heading, link, page, table
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, fill, prose
from samebits.text.names import page_path
from samebits.text.numbers import plural

TITLE = "Findings"
MAX_MODELS = 8
MAX_RULES = 12
"""Limit for folded parts in a row; more would push the next section out of sight."""
MAX_SIGHTINGS = 6
MAX_ADVICE = 2_500
"""Characters of a model's findings from which on they have no cause, and of their remedy the first sentence."""
_GOES_WITH = Markdown("**Remedy.** That of {}, which mends this, too.")
_BACKGROUND = "Cause, example and releases"
_MAX_BRIEF = 3
"""Lines of evidence of such a finding."""


class Sighting(NamedTuple):
    """One finding in all cells of one model that show it in the same way."""

    finding: Finding
    cells: tuple[CellResult, ...]

    @property
    def where(self) -> str:
        """The stacks that have it, with variants where a model has several."""
        stacks: dict[str, dict[str, None]] = {}
        for cell in self.cells:
            of_stack = stacks.setdefault(cell.faulty(self.finding), {})
            of_stack[str(cell.cell.variant)] = None
        variants = {tuple(names) for names in stacks.values()}
        if len(variants) == 1:
            return f"{', '.join(variants.pop())}@{', '.join(stacks)}"
        return "; ".join(f"{', '.join(names)}@{stack}" for stack, names in stacks.items())


def findings(report: Report) -> Markdown:
    """Return the table of all findings, and the advice of each rule; empty without findings."""
    rules = [text for text in report.rules if text.scope == "model"]
    if not rules:
        return EMPTY
    rows = [_line(text, report.rows) for text in rules]
    headers = ["finding", "kind", "models (environments)"]
    return page(
        [
            heading(2, TITLE),
            prose(
                "Known defects that a rule recognised in a cell. The model's page has the "
                "evidence, an example of the remedy and references. A finding explains a "
                "difference. It does not affect the verdict."
            ),
            table(headers, rows),
            *_folded_advice(rules),
        ]
    )


def _folded_advice(rules: list[RuleText]) -> list[Markdown]:
    """Return cause and remedy of each rule, folded; many rules share one title."""
    parts = [details(plain_title(text), short_advice(text)) for text in rules]
    return [details("Cause and remedy of each", *parts)] if len(parts) > MAX_RULES else parts


def _line(text: RuleText, rows: Iterable[Row]) -> list[str]:
    stacks: dict[str, dict[str, None]] = {}
    for row in rows:
        for cell in row.cells:
            for finding in cell.findings:
                if finding.code == text.code:
                    stacks.setdefault(row.model, {})[cell.faulty(finding)] = None
    models = [
        fill("{} ({})", link(model, page_path(model)), ", ".join(stack_names))
        for model, stack_names in stacks.items()
    ]
    return [title(text), text.kind, first_of(models, MAX_MODELS)]


def findings_of(rows: list[Row], report: Report) -> Markdown:
    """Return the findings of one model with their evidence: those that explain a verdict first, then by kind.

    Each has its remedy. What is behind the first few thousand characters has no cause, so that every finding has its
    evidence.
    """
    cells = [cell for row in rows for cell in row.cells]
    sightings, decisive = _sightings(cells), named(cells, report)
    roots = {each: root for root, others in mended(cells, report).items() for each in others}
    if not sightings:
        return EMPTY
    texts = {text.code: text for text in report.rules}

    def place(sighting: Sighting) -> tuple[bool, int]:
        code_of_rule = sighting.finding.code
        return code_of_rule not in decisive, [*KINDS].index(texts[code_of_rule].kind)

    sightings.sort(key=place)
    by_code = grouped(sightings, lambda sighting: sighting.finding.code)
    is_quiet = {c: _is_quiet(texts[c], shown) for c, shown in by_code.items()}
    parts: list[Markdown] = []
    for rule_code in sorted(by_code, key=is_quiet.__getitem__):
        text, shown = texts[rule_code], by_code[rule_code]
        is_full = sum(map(len, parts)) < MAX_ADVICE
        root = roots.get(rule_code)
        words = remedy_as_seen(text, cells)
        if root is not None:
            mending = fill(_GOES_WITH, root)
        else:
            mending = remedy(words if is_full else first_sentences(words, 0))
        body = _in_full(text, mending, shown) if is_full else _brief(mending, shown)
        if is_quiet[rule_code]:
            parts.append(details(plain_title(text), body))
        else:
            parts.append(page([heading(3, title(text)), body]))
    return page([heading(2, TITLE), *parts])


def _is_quiet(text: RuleText, sightings: list[Sighting]) -> bool:
    """Return True if it changes no number of these cells and raises no exception in them."""
    if all(sighting.finding.of_saving for sighting in sightings):
        return True
    return text.kind == "api" and all(holds(c) for sighting in sightings for c in sighting.cells)


def named(cells: Iterable[CellResult], report: Report) -> set[str]:
    """Return the codes of rules that explain why cells raise, or compute different numbers."""
    explaining = {text.code for text in report.rules if text.kind != "rounding"}
    return explaining & explaining_codes(cells)


def has_findings(rows: Iterable[Row]) -> bool:
    """Return True if any cell has a finding."""
    return any(cell.findings for row in rows for cell in row.cells)


def _brief(mending: Markdown, sightings: list[Sighting]) -> Markdown:
    """Return the first lines of the first place, and where the rest is."""
    first, *others = sightings
    lines = first.finding.evidence
    shown = first._replace(
        finding=first.finding.model_copy(update={"evidence": lines[:_MAX_BRIEF]})
    )
    n_left = len(others) + max(len(lines) - _MAX_BRIEF, 0)
    more = f"; {plural(n_left, 'more line or place', 'more lines or places')} in report.json"
    rest = fill("More: {}{}.", link("findings", "../findings.md"), more * bool(n_left))
    return page([mending, _sighting([shown]), rest])


def _in_full(text: RuleText, mending: Markdown, sightings: list[Sighting]) -> Markdown:
    groups = [*grouped(sightings, lambda each: (each.finding.evidence, each.where)).values()]
    shown = [_sighting(group) for group in groups[:MAX_SIGHTINGS]]
    others = [each.finding.where for group in groups[MAX_SIGHTINGS:] for each in group]
    more = fill("{}: {}", plural(len(others), "more place"), codes(others)) if others else EMPTY
    kind = fill("*{}: {}*", text.kind, KINDS[text.kind])
    return page([kind, mending, *shown, more, details(_BACKGROUND, background(text))])


def _sighting(alike: list[Sighting]) -> Markdown:
    """Return places with the same evidence, which they have once."""
    first = alike[0]
    intro = fill("{}, {}:", codes(each.finding.where for each in alike), first.where)
    return page([intro, bullets(prose(line) for line in first.finding.evidence)])


def _sightings(cells: Iterable[CellResult]) -> list[Sighting]:
    """Return the findings; those with equal place and evidence are joined over cells."""
    groups = grouped(
        ((finding, cell) for cell in cells for finding in cell.findings),
        lambda pair: (pair[0].code, pair[0].where, pair[0].evidence),
    )
    return [Sighting(pairs[0][0], tuple(cell for _, cell in pairs)) for pairs in groups.values()]
