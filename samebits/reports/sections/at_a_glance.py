"""What an upgrade changes, before all details: verdicts per stack, and the models to look at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from itertools import product
from typing import NamedTuple

from samebits.diagnose.everywhere import is_everywhere
from samebits.diagnose.exit_code import OPEN
from samebits.records.comparison import CellResult
from samebits.records.ids import Verdict
from samebits.records.report import ExpectedReport, Report
from samebits.reports.answer.of_model import way_of
from samebits.reports.answer.releases import release
from samebits.reports.commands import compare_two
from samebits.reports.sections.findings import named
from samebits.text.blocks import below, first_of, heading, link, page, table, titled
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.names import page_path
from samebits.text.numbers import count, plural

COLUMNS = {
    Verdict.IDENTICAL: "same bits",
    Verdict.ROUNDING: "rounding",
    Verdict.DIVERGED: "diverged",
    Verdict.UNDECIDED: "undecided",
    Verdict.UNSTABLE: "unstable",
    Verdict.FAILED: "failed",
    Verdict.NOT_FINISHED: "not finished",
    Verdict.NOT_OBSERVED: "not observed",
    Verdict.ABSENT: "absent",
}
"""Verdicts as judged, before ``expected`` of matrix.yaml applies, and their columns."""

SERIOUS = (Verdict.FAILED, Verdict.UNSTABLE, Verdict.DIVERGED, Verdict.UNDECIDED)
"""Verdicts that are worse than rounding, the worst first."""


MAX_STEPS = 20
"""Limit for the lines of the steps in report.md."""

MAX_MODELS = 6
"""Limit for the models that such a line names."""


def glance(report: Report) -> Markdown:
    """Return the cells of each stack by kind, and what is worse than rounding, stack by stack.

    With the releases between the stacks, the counts are those of the matrix's own stacks.
    """
    if len(report.stacks) < 2 or not report.rows:
        return EMPTY
    headers = ["environment", "transformers", *COLUMNS.values()]
    rows = [
        [
            code(stack.id),
            stack.transformers or "not built",
            *_counts(list(_cells(report, stack.id))),
        ]
        for stack in report.stacks
        if not stack.between
    ]
    cell_counts = table(headers, rows, right=headers[2:])
    return page(
        [heading(2, "At a glance"), cell_counts, _LEGEND, _serious(report, MAX_STEPS, MAX_MODELS)]
    )


_LEGEND = Markdown(
    "Comparisons with the reference, by release. Known differences count under their kind; failures "
    "that are the same in every release are left out."
)


def _cells(report: Report, stack: str) -> Iterator[CellResult]:
    for cell in report.cells:
        is_left_out = cell.judged == Verdict.REFERENCE or is_everywhere(cell)
        if cell.cell.stack == stack and not is_left_out:
            yield cell


def _counts(cells: list[CellResult]) -> Iterator[str]:
    verdicts = Counter(cell.judged for cell in cells)
    for verdict in COLUMNS:
        yield count(verdicts[verdict]) if verdicts[verdict] else ""


def every_step(report: Report) -> Markdown:
    """Return every step with every model; empty if report.md has all of it."""
    lines = [names for step in steps(report) for names in step.changes.values()]
    if len(lines) <= MAX_STEPS and all(len(names) <= MAX_MODELS for names in lines):
        return EMPTY
    return page([heading(2, "From one environment to the next"), _serious(report)])


def _serious(report: Report, most: int | None = None, names: int | None = None) -> Markdown:
    """Return the models that begin or cease to be worse than rounding, step by step.

    A step leads from one stack to the next. Of more than ``most`` lines the last are shown, which
    lead to the newest release, each with the first ``names`` models.
    """
    lines = []
    for before, stack, changes in steps(report):
        name = release(stack, report)
        step = fill("{}\u00a0→\u00a0{}", release(before, report), name) if before else name
        lines += [
            [step, _MOVES[what][1], count(len(models)), first_of(models, names or len(models))]
            for what, models in changes.items()
        ]
    if not lines:
        return EMPTY
    title = titled("Changes worse than rounding, from one environment to the next")
    n_more = max(0, len(lines) - most) if most else 0
    step_table = table(["step", "what", "models", "which"], lines[n_more:], right=["models"])
    if n_more:
        title = titled(f"Changes worse than rounding, the last {most} of {len(lines)} lines")
    return page([title, step_table, fill(_STEPS, code(compare_two(report, "A", "B")))])


class StackStep(NamedTuple):
    """What a stack changes beside the one before it; '' for the first one."""

    before: str
    stack: str
    changes: dict[str, list[Markdown]]
    """What begins, changes or ends -> links to the models for which it does."""


def steps(report: Report) -> list[StackStep]:
    """Return the steps from stack to stack at which something worse than rounding changes."""
    built = [stack.id for stack in report.stacks if stack.failure is None]
    pairs = zip([None, *built], built, strict=False)
    all_steps = [
        StackStep(before or "", stack, _step(report, before, stack)) for before, stack in pairs
    ]
    return [step for step in all_steps if step.changes]


_STEPS = (
    "For an upgrade over several releases, read all steps in between. Codes in brackets name known "
    "causes: the page of the model has the remedy. {} compares two releases directly."
)

_MOVES: dict[str, tuple[str, str]] = {
    COLUMNS[Verdict.FAILED]: ("raises", "raise"),
    COLUMNS[Verdict.UNSTABLE]: ("becomes unstable", "become unstable"),
    COLUMNS[Verdict.DIVERGED]: ("changes", "change"),
    COLUMNS[Verdict.UNDECIDED]: ("may change", "may change"),
    f"{COLUMNS[Verdict.DIVERGED]} in another way": ("changes again", "change again"),
    f"{COLUMNS[Verdict.UNDECIDED]} in another way": ("may change again", "may change again"),
    "resolved": ("is fixed", "are fixed"),
}
"""What happens at a step -> words: for one model, for several."""


def moves(report: Report) -> list[str]:
    """Return a sentence for each step from release to release, such as ``5 models raise``.

    The only step between two releases is what the heading says.
    """
    is_one = len(report.stacks) == 2
    return [
        f"{release(step.before, report)} → {release(step.stack, report)}: {_moved(step)}"
        if step.before
        else f"In {release(step.stack, report)}{', the reference' if step.stack == report.reference else ''}: {_moved(step)}"
        for step in steps(report)
        if not (is_one and step.before)
    ]


def _moved(step: StackStep) -> str:
    parts: list[str] = []
    for what, models in step.changes.items():
        number = count(len(models)) if parts else plural(len(models), "model")
        parts.append(f"{number} {_MOVES[what][len(models) != 1]}")
    return ", ".join(parts)


def _step(report: Report, before: str | None, stack: str) -> dict[str, list[Markdown]]:
    """Return what begins, changes or ends with a stack, and the models for which it does."""
    models_before, models_now = _by_model(report, before), _by_model(report, stack)
    changes: dict[str, list[Markdown]] = {}
    for verdict, changed in product(SERIOUS, (False, True)):
        for model, cells in models_now.items():
            cells_before = models_before.get(model, [])
            if _worst(cells) != verdict or not _is_news(cells_before, cells, changed=changed):
                continue
            new_codes = named(cells, report) - named(cells_before, report)
            what = f"{COLUMNS[verdict]} in another way" if changed else COLUMNS[verdict]
            changes.setdefault(what, []).append(_model_link(model, sorted(new_codes)))
    for model, cells in models_now.items():
        if any(cell.judged in OPEN for cell in cells):
            continue  # it is unknown whether the difference is gone
        if _worst(models_before.get(model, [])) in SERIOUS and _worst(cells) not in SERIOUS:
            changes.setdefault("resolved", []).append(_model_link(model, []))
    return changes


def _by_model(report: Report, stack: str | None) -> dict[str, list[CellResult]]:
    """Return the cells of each model that a stack knows."""
    models: dict[str, list[CellResult]] = {}
    for cell in report.cells:
        is_left_out = cell.judged == Verdict.ABSENT or is_everywhere(cell)
        if cell.cell.stack == stack and not is_left_out:
            models.setdefault(cell.cell.model, []).append(cell)
    return models


def _worst(cells: list[CellResult]) -> Verdict | None:
    """Return the most serious verdict of the cells; None if none is worse than rounding."""
    judged = {cell.judged for cell in cells}
    return next((verdict for verdict in SERIOUS if verdict in judged), None)


def _is_news(cells_before: list[CellResult], cells: list[CellResult], *, changed: bool) -> bool:
    """Return True if the most serious verdict begins here.

    With ``changed``, return True if it continues in another way.
    """
    worst = _worst(cells)
    if not changed:
        return _worst(cells_before) != worst
    has_figures = worst in (Verdict.DIVERGED, Verdict.UNDECIDED)
    return has_figures and _worst(cells_before) == worst and _ways(cells_before) != _ways(cells)


def _ways(cells: list[CellResult]) -> set[Hashable]:
    """Return how cells differ from their references; numbers that only round otherwise are no other way."""
    return {(str(cell.cell.variant), way_of(cell)) for cell in cells}


def _model_link(model: str, codes: list[str]) -> Markdown:
    name = link(model, page_path(model))
    return fill("{} ({})", name, ", ".join(codes)) if codes else name


def explanations(report: Report) -> Markdown:
    """Return the long explanations of the matrix file, a paragraph for each of its entries."""
    entries = [entry for entry in report.expected if entry.explanation and entry.cells]
    return below(heading(2, "Explained"), *map(_explanation, entries))


def _explanation(entry: ExpectedReport) -> Markdown:
    models = dict.fromkeys(cell.partition("/")[0] for cell in entry.cells)
    stacks = dict.fromkeys(cell.rpartition("@")[2] for cell in entry.cells)
    where = fill(
        "{} on {} ({}, line {} of the matrix file).",
        join(link(name, page_path(name)) for name in models),
        join(map(code, stacks)),
        plural(len(entry.cells), "cell"),
        str(entry.line),
    )
    title = heading(3, entry.title or ", ".join(models))
    return page([title, prose(entry.explanation, limit=4000), where])
