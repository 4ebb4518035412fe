"""Training: one step of each model, compared with the reference, and ways to train that must agree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from samebits.findings.training import item_line, relation_line
from samebits.text.blocks import bullets, heading, link, page, table
from samebits.text.markdown import EMPTY, Markdown, fill, prose
from samebits.text.names import page_path
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.records.report import Report, Row
    from samebits.records.training import TrainingRelation, TrainingReport, TrainingStanding

TITLE = "Training"
INTRO = (
    "One training step of each model, dropout off: losses of seeded rows with labels, the gradient "
    "of every tensor of the checkpoint, the global norm, and the loss behind one step of AdamW. It "
    "is compared with the reference's step byte for byte, and differences are judged in float64. "
    "Training makes no verdict and does not change the exit code: what diverged by itself is a "
    "finding."
)
MAX_MODELS = 60
"""Limit for the models with a line of their own; the pages of the models have them all."""

_WORDS: dict[TrainingStanding, str] = {
    "identical": "the same bits",
    "rounding": "rounding",
    "diverged": "diverged",
    "undecided": "differs, and float64 cannot tell why",
    "follows": "follows from the forward",
    "failed": "raises",
    "not compared": "not compared",
}
_NOTABLE = ("diverged", "undecided", "failed")


def training(report: Report) -> Markdown:
    """Return the section of all models; empty if none was trained."""
    rows = [row for row in report.rows if row.training]
    if not rows:
        return EMPTY
    notable = [row for row in rows if _is_notable(row)]
    blocks = [heading(2, TITLE), prose(INTRO), _counts(rows)]
    lines = [_line(row, stack) for row in notable for stack in row.training if _tells(row, stack)]
    headers = ["model · variant", "stack", "step", "first difference", "broken ways to train"]
    blocks.append(table(headers, lines[:MAX_MODELS]))
    blocks.append(_untrained(rows))
    return page(blocks)


def training_of(rows: Iterable[Row]) -> Markdown:
    """Return the section of a model's page; empty if it was not trained."""
    rows = [row for row in rows if row.training]
    if not rows:
        return EMPTY
    blocks = [heading(2, TITLE)]
    for row in rows:
        blocks += [_made(row), _figures(row), _items(row), _relations(row), _reasons(row)]
    return page(blocks)


def has_training_details(rows: Iterable[Row]) -> bool:
    """Return True if a step diverged, cannot be told, raises, or breaks a relation."""
    return any(map(_is_notable, rows))


def _is_notable(row: Row) -> bool:
    return any(_tells(row, stack) for stack in row.training)


def _tells(row: Row, stack: str) -> bool:
    report = row.training[stack]
    standing = report.comparison.standing if report.comparison is not None else ""
    return standing in _NOTABLE or any(_broken(report))


def _broken(report: TrainingReport) -> Iterator[TrainingRelation]:
    relations = report.relations.relations if report.relations is not None else ()
    yield from (relation for relation in relations if relation.broken)


def _counts(rows: list[Row]) -> Markdown:
    counted = Counter(
        report.comparison.standing
        for row in rows
        for report in row.training.values()
        if report.comparison is not None
    )
    if not counted:
        return prose("No cell was compared: a comparison needs two stacks that train the model.")
    texts = [f"{plural(counted[s], 'cell')}: {_WORDS[s]}" for s in _WORDS if counted[s]]
    return bullets(texts)


def _line(row: Row, stack: str) -> list[str]:
    report = row.training[stack]
    comparison = report.comparison
    first = comparison.first if comparison is not None else None
    reason = comparison.reason if comparison is not None else ""
    name = fill("{}", link(f"{row.model} · {row.variant}", page_path(row.model)))
    return [
        name,
        stack,
        _WORDS[comparison.standing] if comparison is not None else "reference",
        prose(item_line(first)) if first is not None else prose(reason),
        prose("; ".join(relation.relation for relation in _broken(report))),
    ]


def _untrained(rows: list[Row]) -> Markdown:
    """Return how many models have no step in any stack, by reason."""
    reasons: Counter[str] = Counter()
    for row in rows:
        reports = row.training.values()
        if not any(report.losses for report in reports):
            first = next(iter(reports))
            reasons[first.reason or (first.failure.in_short if first.failure else "")] += 1
    if not reasons:
        return EMPTY
    texts = [f"{plural(n, 'model')} not trained: {reason}" for reason, n in reasons.most_common(8)]
    return bullets(texts)


def _made(row: Row) -> Markdown:
    made = next((r.asked_of for r in row.training.values() if r.asked_of is not None), None)
    return fill("Trained was {}.", made.in_words) if made is not None else EMPTY


def _figures(row: Row) -> Markdown:
    """Return losses, norm and the loss behind the update, stack by stack."""
    lines = []
    for stack, report in row.training.items():
        if not report.losses:
            continue
        comparison = report.comparison
        losses = ", ".join(f"{name} {loss:.6g}" for name, loss in report.losses.items())
        lines.append(
            [
                stack,
                _WORDS[comparison.standing] if comparison is not None else "reference",
                losses,
                "" if report.norm is None else f"{report.norm:.6g}",
                "" if report.behind is None else f"{report.behind:.6g}",
                str(report.n_gradients),
            ]
        )
    headers = ["stack", "step", "losses", "norm", "behind one update", "gradients"]
    return table(headers, lines, right=("norm", "behind one update", "gradients"))


def _items(row: Row) -> Markdown:
    return bullets(
        prose(f"{stack}: {item.outcome}, {item_line(item)}")
        for stack, report in row.training.items()
        if report.comparison is not None
        for item in report.comparison.items
        if item.outcome in _NOTABLE
    )


def _relations(row: Row) -> Markdown:
    """Return each relation with its standing, stack by stack."""
    names: dict[str, dict[str, str]] = {}
    for stack, report in row.training.items():
        for relation in report.relations.relations if report.relations is not None else ():
            names.setdefault(relation.relation, {})[stack] = _standing(relation)
    stacks = list(row.training)
    lines = [
        [name, *(of.get(stack, "not tried") for stack in stacks)] for name, of in names.items()
    ]
    broken = [
        prose(f"{stack}: {relation_line(relation)}")
        for stack, report in row.training.items()
        for relation in _broken(report)
    ]
    blocks = [table(["ways to train", *stacks], lines), bullets(broken) if broken else EMPTY]
    return page(blocks) if lines else EMPTY


def _standing(relation: TrainingRelation) -> str:
    if relation.holds:
        return "holds"
    if relation.broken:
        return "broken"
    return "rounding" if relation.promoted is not None else "differs"


def _reasons(row: Row) -> Markdown:
    """Return why a stack has no step, or no comparison."""
    texts = []
    for stack, report in row.training.items():
        comparison = report.comparison
        reason = report.reason or (comparison.reason if comparison is not None else "")
        if reason:
            texts.append(prose(f"{stack}: {reason}"))
        texts += [prose(f"{stack}, batch {b}: {why}") for b, why in report.refused.items()]
    return bullets(texts) if texts else EMPTY
