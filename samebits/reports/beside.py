"""Known defects that explain no verdict: in training, saving, tokenizers and other uses of a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from samebits.compare.describe import some
from samebits.findings.rulebook import plain_title
from samebits.records.comparison import CellResult
from samebits.records.finding import Finding, RuleText, StackFinding
from samebits.records.ids import Verdict
from samebits.records.report import Report
from samebits.reports.plain import KINDS, explaining_codes, mended
from samebits.reports.stories import is_reference
from samebits.text.lists import grouped

Since = Literal["changed", "repaired", "alike"]
"""changed: a candidate has the defect. repaired: the reference alone has it. alike: every release has it."""

_ORDER: tuple[Since, ...] = ("changed", "alike", "repaired")


class Defect(NamedTuple):
    """A known defect that explains no verdict."""

    text: RuleText
    where: str
    """The first place that has it."""
    models: tuple[str, ...]
    since: Since
    stacks: tuple[str, ...]
    """Those that have it."""

    @property
    def heading(self) -> str:
        """Code, name and place."""
        title = plain_title(self.text)
        return f"{title} ({self.where})" if self.where else title


def defects(report: Report, cells: Iterable[CellResult] | None = None) -> list[Defect]:
    """Return the defects in these cells, by default in all: what a candidate has first, then the worst kind.

    Of a kind, what a use of the model shows precedes what only a saved copy has.
    """
    cells = list(report.cells if cells is None else cells)
    of_models = grouped(cells, lambda cell: cell.cell.model)
    explaining = {model: _mended_codes(shown, report) for model, shown in of_models.items()}
    shown: dict[str, list[tuple[CellResult, Finding]]] = {}
    for cell in cells:
        for finding in cell.findings:
            if finding.code not in explaining[cell.cell.model]:
                shown.setdefault(finding.code, []).append((cell, finding))
    texts = {text.code: text for text in report.rules if text.scope == "model"}
    n_present = Counter(_row(cell) for cell in cells if cell.verdict != Verdict.ABSENT)
    listed = [
        _defect(texts[code], pairs, n_present, is_one=len(cells) == 1)
        for code, pairs in shown.items()
        if code in texts
    ]
    return sorted(
        listed,
        key=lambda d: (
            _ORDER.index(d.since),
            KINDS.index(d.text.kind),
            all(finding.of_saving for _, finding in shown[d.text.code]),
            -len(d.models),
            d.text.code,
        ),
    )


def alone(report: Report, repaired: Iterable[Defect]) -> str:
    """Return `` alone`` for defects of the reference; '' if a candidate of such a model raises, as it may have them too."""
    models = {model for defect in repaired for model in defect.models}
    raises = any(
        cell.failures and not is_reference(cell)
        for cell in report.cells
        if cell.cell.model in models
    )
    return "" if raises else " alone"


def of_releases(report: Report) -> list[tuple[RuleText, tuple[str, ...]]]:
    """Return the silent defects of a release and the uses that raise in it, with the stacks in which a model shows them."""
    silent = {text.code for text in report.rules if text.kind == "silent"}
    shown: dict[str, list[str]] = {}
    for stack in report.stacks:
        for finding in stack.findings:
            if finding.code in silent or finding.raises:
                shown.setdefault(finding.code, []).append(stack.id)
    return [(text, tuple(shown[text.code])) for text in report.rules if text.code in shown]


def raising_uses(report: Report) -> list[tuple[RuleText, StackFinding]]:
    """Return the uses of a model that raise in a candidate and work in the reference."""
    texts = {text.code: text for text in report.rules}
    return [
        (texts[finding.code], finding)
        for stack in report.stacks
        for finding in stack.findings
        if finding.raises and finding.code in texts
    ]


def limits_beside(report: Report) -> Iterator[str]:
    """Yield which checks beside the verdicts raise, and which defects no exception shows, but in the reference alone.

    A verdict is of the bits alone, so a run that passes has to say it beside its verdict.
    """
    changed = [defect for defect in defects(report) if defect.since == "changed"]
    codes = {defect.text.code for defect in changed}
    of_cells = (finding for cell in report.cells for finding in cell.findings)
    raising = [
        *((f.code, f.raises) for f in of_cells if f.code in codes and f.raises),
        *((finding.code, finding.raises) for _, finding in raising_uses(report)),
    ]
    loud = {code for code, _ in raising}
    # rules of processors, for example, look at one side at a time and name no stack
    crashes = [d for d in changed if d.text.kind == "crash" and d.text.code not in loud]
    raising += [(defect.text.code, stack) for defect in crashes for stack in defect.stacks]
    if raising:
        words = (
            "a check beside the verdict raises"
            if len(raising) == 1
            else "checks beside the verdict raise"
        )
        stacks = dict.fromkeys(stack for _, stack in raising)
        where = f"in {', '.join(stacks)} only" if len(stacks) == 1 else "in one release only"
        yield f"{words} {where} ({some(dict.fromkeys(code for code, _ in raising))})"
    silent = [d.text.code for d in changed if d.text.kind == "silent" and d.text.code not in loud]
    if silent:
        yield f"silent findings beside the verdict ({some(silent)})"


def _mended_codes(cells: list[CellResult], report: Report) -> set[str]:
    """Return the defects that explain a verdict, and those that go when these are mended."""
    also = (code for others in mended(cells, report).values() for code in others)
    return {*explaining_codes(cells), *also}


def _row(cell: CellResult) -> tuple[str, str]:
    return cell.cell.model, str(cell.cell.variant)


def _defect(
    text: RuleText,
    shown: list[tuple[CellResult, Finding]],
    n_present: Counter[tuple[str, str]],
    *,
    is_one: bool,
) -> Defect:
    """Return a defect; ``n_present`` counts the cells of each row whose release has the model."""
    # what the reference alone does otherwise is no sign of a candidate that has the defect elsewhere
    own = [(cell, finding) for cell, finding in shown if not finding.of_reference] or shown
    of_cell = (finding for cell, finding in own if cell.faulty(finding) == cell.cell.stack)
    first = next(of_cell, own[0][1])
    models = dict.fromkeys(cell.cell.model for cell, _ in shown)
    stacks = dict.fromkeys(cell.faulty(finding) for cell, finding in own)
    since = _since(shown, n_present, is_one=is_one)
    return Defect(text, first.where, tuple(models), since, tuple(stacks))


def _since(
    shown: list[tuple[CellResult, Finding]], n_present: Counter[tuple[str, str]], *, is_one: bool
) -> Since:
    if all(_is_of_the_reference(cell, finding) for cell, finding in shown):
        return "alike" if is_one else "repaired"
    return "alike" if _is_everywhere([cell for cell, _ in shown], n_present) else "changed"


def _is_of_the_reference(cell: CellResult, finding: Finding) -> bool:
    """Return True if the reference has the defect, be it shown at the candidate."""
    return is_reference(cell) or cell.faulty(finding) != cell.cell.stack


def _is_everywhere(shown: Sequence[CellResult], n_present: Counter[tuple[str, str]]) -> bool:
    """Return True if all releases that have a model show the defect, wherever one of them does."""
    present = {cell.cell: cell for cell in shown if cell.verdict != Verdict.ABSENT}
    n_shown = Counter(map(_row, present.values()))
    return all(n_present[row] > 1 and n_shown[row] == n_present[row] for row in {*map(_row, shown)})
