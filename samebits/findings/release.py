"""Findings about a release, which are the same for every model: one per stack, not per cell."""

from __future__ import annotations

from collections.abc import Iterable

from samebits.base.finding_pages import finding_page
from samebits.records.comparison import CellResult
from samebits.records.finding import Finding, StackFinding


def of_the_model(result: CellResult) -> CellResult:
    """Return the result with only those findings that are about its model."""
    about_model = tuple(finding for finding in result.findings if not _of_release(finding))
    return result.model_copy(update={"findings": about_model})


def of_stacks(results: Iterable[CellResult]) -> dict[str, tuple[StackFinding, ...]]:
    """Return the findings about each stack. Each is listed once, with the models that show it."""
    stacks: dict[str, dict[str, StackFinding]] = {}
    for result in results:
        for finding in filter(_of_release, result.findings):
            by_code = stacks.setdefault(result.faulty(finding), {})
            by_code[finding.code] = _joined(by_code.get(finding.code), finding, result)
    return {
        name: tuple(stack_finding for _, stack_finding in sorted(by_code.items()))
        for name, by_code in stacks.items()
    }


def _joined(listed: StackFinding | None, finding: Finding, result: CellResult) -> StackFinding:
    """Return the finding about a stack with one more cell that shows it."""
    listed = listed or StackFinding(
        code=finding.code, where=finding.where, evidence=finding.evidence, models=()
    )
    models = tuple(dict.fromkeys((*listed.models, result.cell.model)))
    raises = listed.raises or (finding.raises if finding.raises == result.cell.stack else "")
    update = {"models": models, "evidence": _evidence(listed, finding, models), "raises": raises}
    return listed.model_copy(update=update)


def _evidence(listed: StackFinding, finding: Finding, models: tuple[str, ...]) -> tuple[str, ...]:
    """Return the lines of the first model's places: a second place may have a second cause."""
    if len(models) > 1 or finding.where == listed.where:
        return listed.evidence
    lines = (f"{finding.where}: {line}" for line in finding.evidence)
    return tuple(dict.fromkeys((*listed.evidence, *lines)))


def _of_release(finding: Finding) -> bool:
    return finding_page(finding.code).scope == "release"
