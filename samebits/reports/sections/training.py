"""Training: one step of each model, compared with the reference, and ways to train that must agree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from samebits.findings.trainer import change_line, trainer_item_line
from samebits.findings.training import item_line, origin_line, relation_line
from samebits.text.blocks import bullets, heading, link, page, table
from samebits.text.markdown import EMPTY, Markdown, fill, prose
from samebits.text.names import page_path
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.records.judgement import TrainingStanding
    from samebits.records.report import Report, Row
    from samebits.records.step_trace import StepOrigin
    from samebits.records.trainer import TrainerComparison, TrainerReport
    from samebits.records.training import (
        TrainingComparison,
        TrainingRelation,
        TrainingReport,
    )

TITLE = "Training"
INTRO = (
    "One training step of each model, dropout off: losses of seeded rows with labels, the gradient "
    "of every tensor of the checkpoint, the global norm, and the loss behind one step of AdamW. It "
    "is compared with the reference's step byte for byte, and differences are judged in float64. "
    "Training makes no verdict and does not change the exit code: what diverged by itself is a "
    "finding."
)
TRAINER = "By Trainer"
TRAINER_INTRO = (
    "The same models, trained by transformers' own Trainer with its default arguments: four rows in "
    "four steps, the same rows accumulated in one step, and as one batch. What Trainer chooses and "
    "what the model receives is compared exactly; losses, norms and the weights behind the last "
    "step byte for byte, and what differs is judged in float64. Trainer's accelerate lies "
    "beside the stack and is used by nothing else."
)
MAX_MODELS = 60
"""Limit for the models with a line of their own; the pages of the models have them all."""

STANDINGS: dict[TrainingStanding, str] = {
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
    headers = [
        "model · variant",
        "stack",
        "step",
        "first difference",
        "first operation",
        "broken ways to train",
    ]
    blocks.append(table(headers, lines[:MAX_MODELS]))
    blocks += [_untrained(rows), _by_trainer(rows)]
    return page(blocks)


def training_of(rows: Iterable[Row]) -> Markdown:
    """Return the section of a model's page; empty if it was not trained."""
    rows = [row for row in rows if row.training]
    if not rows:
        return EMPTY
    blocks = [heading(2, TITLE)]
    for row in rows:
        blocks += [_made(row), _figures(row), _items(row), _origins(row)]
        blocks += [_relations(row), _reasons(row)]
        blocks += [_trainer_figures(row), _trainer_changes(row)]
    return page(blocks)


def has_training_details(rows: Iterable[Row]) -> bool:
    """Return True if a step diverged, cannot be told, raises, or breaks a relation."""
    return any(map(_is_notable, rows))


def _is_notable(row: Row) -> bool:
    return any(_tells(row, stack) for stack in row.training)


def _tells(row: Row, stack: str) -> bool:
    report = row.training[stack]
    comparisons = (report.comparison, report.trainer.comparison if report.trainer else None)
    standings = [comparison.standing for comparison in comparisons if comparison is not None]
    return any(standing in _NOTABLE for standing in standings) or any(broken_ways(report))


def broken_ways(report: TrainingReport) -> Iterator[TrainingRelation]:
    """Yield the ways to train that do not agree."""
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
    texts = [f"{plural(counted[s], 'cell')}: {STANDINGS[s]}" for s in STANDINGS if counted[s]]
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
        standing_in_words(comparison),
        prose(item_line(first)) if first is not None else prose(reason),
        prose("; ".join(filter(None, (first_operation(comparison), _restored_by(comparison))))),
        prose("; ".join(relation.relation for relation in broken_ways(report))),
    ]


def first_operation(comparison: TrainingComparison | None) -> str:
    """Return the first operation that differs, or why none is known; '' if none was looked for."""
    if comparison is None:
        return ""
    if comparison.origin is not None:
        return origin_line(comparison.origin)
    return comparison.no_origin and f"not known: {comparison.no_origin}"


def _restored_by(comparison: TrainingComparison | None) -> str:
    """Return which pieces of the reference's loss restore its step; '' if none does."""
    graft = comparison.graft if comparison is not None else None
    return graft.headline if graft is not None and graft.smallest else ""


def _untrained(rows: list[Row]) -> Markdown:
    """Return how many models have no step in any stack, by reason."""
    reasons: Counter[str] = Counter()
    for row in rows:
        reports = row.training.values()
        if not any(report.losses for report in reports):
            first = next(iter(reports))
            raised = (
                f"not observed, as it raises: {first.failure.in_short}" if first.failure else ""
            )
            reasons[first.reason or raised] += 1
    if not reasons:
        return EMPTY
    texts = [f"{plural(n, 'model')} not trained: {reason}" for reason, n in reasons.most_common(8)]
    return bullets(texts)


def _by_trainer(rows: list[Row]) -> Markdown:
    """Return how Trainer's runs compare, and what it does otherwise, by stack."""
    reports = [
        (row, stack, report.trainer)
        for row in rows
        for stack, report in row.training.items()
        if report.trainer is not None
    ]
    if not reports:
        return EMPTY
    standings: Counter[TrainingStanding] = Counter()
    models: dict[tuple[str, str], list[str]] = {}
    reasons: Counter[str] = Counter()
    for row, stack, report in reports:
        failure = f"not observed, as it raises: {report.failure.in_short}" if report.failure else ""
        if report.reason or failure:
            reasons[report.reason or failure] += 1
        if report.comparison is not None:
            standings[report.comparison.standing] += 1
            for change in report.comparison.changes:
                models.setdefault((stack, change_line(change)), []).append(row.model)
    order = list(dict.fromkeys(stack for _, stack, _ in reports))
    lines = [
        [stack, prose(line), of[0] if len(of) == 1 else plural(len(of), "model")]
        for (stack, line), of in sorted(models.items(), key=lambda item: order.index(item[0][0]))
    ]
    blocks = [heading(3, TRAINER), prose(TRAINER_INTRO)]
    blocks.append(bullets(f"{plural(standings[s], 'cell')}: {STANDINGS[s]}" for s in standings))
    headers = ["stack", "what Trainer does otherwise than in the reference", "of"]
    blocks.append(table(headers, lines[:MAX_MODELS]))
    texts = [f"{plural(n, 'cell')} not trained: {reason}" for reason, n in reasons.most_common(8)]
    blocks.append(bullets(map(prose, texts)))
    return page(blocks)


TRAINER_HEADERS = (
    "stack",
    "by Trainer",
    "rows",
    "num_items_in_batch",
    "losses",
    "norms",
    "rates",
    "optim",
)


def trainer_figures(row: Row) -> list[list[str]]:
    """Return what Trainer computed and built, stack by stack, under TRAINER_HEADERS."""
    return [
        [
            stack,
            standing_in_words(trainer.comparison),
            ", ".join("?" if i is None else str(i) for i in trainer.rows),
            ", ".join("none" if n is None else f"{n:g}" for n in trainer.items),
            ", ".join(f"{loss:.6g}" for loss in trainer.losses),
            ", ".join(f"{norm:.6g}" for norm in trainer.norms),
            ", ".join(f"{rate:.6g}" for rate in trainer.rates),
            trainer.arguments.get("optim", ""),
        ]
        for stack, report in row.training.items()
        if (trainer := report.trainer) is not None and trainer.losses
    ]


def _trainer_figures(row: Row) -> Markdown:
    lines = trainer_figures(row)
    return table(list(TRAINER_HEADERS), lines) if lines else EMPTY


def standing_in_words(comparison: TrainingComparison | TrainerComparison | None) -> str:
    """Return how a step compares with the reference's; that of the reference is the reference."""
    return STANDINGS[comparison.standing] if comparison is not None else "reference"


def _trainer_changes(row: Row) -> Markdown:
    """Return what Trainer does otherwise, and the numbers that diverged for no such reason."""
    return _by_stack(
        (stack, line)
        for stack, report in row.training.items()
        for line in trainer_lines(report.trainer)
    )


def _by_stack(lines: Iterable[tuple[str, str]]) -> Markdown:
    """Return lines of stacks; a line that several stacks have stands once."""
    stacks: dict[str, list[str]] = {}
    for stack, line in lines:
        stacks.setdefault(line, []).append(stack)
    texts = [prose(f"{', '.join(of)}: {line}") for line, of in stacks.items()]
    return bullets(texts) if texts else EMPTY


def trainer_lines(trainer: TrainerReport | None) -> Iterator[str]:
    """Yield why Trainer did not run, what it does otherwise, and the numbers that diverged."""
    if trainer is None:
        return
    if reason := trainer.reason or (trainer.failure.in_short if trainer.failure else ""):
        yield f"by Trainer: {reason}"
    if trainer.comparison is not None:
        yield from map(change_line, trainer.comparison.changes)
        for item in trainer.comparison.items:
            if item.outcome in _NOTABLE:
                yield f"{item.outcome}, {trainer_item_line(item)}"


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
                standing_in_words(comparison),
                losses,
                "" if report.norm is None else f"{report.norm:.6g}",
                "" if report.behind is None else f"{report.behind:.6g}",
                str(report.n_gradients),
            ]
        )
    headers = ["stack", "step", "losses", "norm", "behind one update", "gradients"]
    return table(headers, lines, right=("norm", "behind one update", "gradients"))


def _items(row: Row) -> Markdown:
    return _by_stack(
        (stack, f"{item.outcome}, {item_line(item)}")
        for stack, report in row.training.items()
        if report.comparison is not None
        for item in report.comparison.items
        if item.outcome in _NOTABLE
    )


def _origins(row: Row) -> Markdown:
    """Return what explains each step that diverged by itself."""
    return _by_stack(
        (stack, line)
        for stack, report in row.training.items()
        for line in explained(report.comparison)
    )


def explained(comparison: TrainingComparison | None) -> Iterator[str]:
    """Yield the first operation that differs, with its evidence, and what restores the reference's step."""
    if comparison is None:
        return
    if text := first_operation(comparison):
        yield text
    if comparison.origin is not None:
        yield from _details(comparison.origin)
    yield from _grafts(comparison)


def _details(origin: StepOrigin) -> Iterator[str]:
    """Yield what the operation takes on both sides, and the first result that differs by it."""
    for side in filter(None, (origin.counterpart, origin.side)):
        yield f"in {side.stack} {side.op}({side.arguments}) takes {', '.join(side.inputs)}"
    yield from origin.evidence
    exact = ", seen in float64" if origin.rung == "float64" else ""
    yield f"the first result that differs by it: {origin.sink} of batch {origin.batch}{exact}"


def _grafts(comparison: TrainingComparison) -> Iterator[str]:
    """Yield which pieces of the reference's loss restore its step, and those that do not fit."""
    if comparison.no_graft:
        yield f"no piece of the reference's loss was tried: {comparison.no_graft}"
    if comparison.graft is not None:
        yield comparison.graft.headline
        yield from (f"not put in: {u.what}, {u.reason}" for u in comparison.graft.untried)


def _relations(row: Row) -> Markdown:
    """Return the relations that do not agree with their standing in each stack, and the others by name."""
    ways = ways_to_train(row)
    if not ways:
        return EMPTY
    same = [name for name, standings in ways.items() if {*standings} <= {"holds", "not tried"}]
    rounded = [
        name
        for name, standings in ways.items()
        if name not in same and {*standings} <= {"holds", "rounding", "not tried"}
    ]
    rest = [[n, *standings] for n, standings in ways.items() if n not in (*same, *rounded)]
    broken = [
        prose(f"{stack}: {relation_line(relation)}")
        for stack, report in row.training.items()
        for relation in broken_ways(report)
    ]
    return page(
        [
            prose(f"Ways to train with the same bits: {'; '.join(same)}.") if same else EMPTY,
            prose(f"Apart by rounding: {'; '.join(rounded)}.") if rounded else EMPTY,
            table(["ways to train", *row.training], rest) if rest else EMPTY,
            bullets(broken) if broken else EMPTY,
        ]
    )


def ways_to_train(row: Row) -> dict[str, list[str]]:
    """Return relation -> its standing in each stack of the row's training."""
    reports = row.training.values()
    tried = [
        {r.relation: standing_of(r) for r in report.relations.relations} if report.relations else {}
        for report in reports
    ]
    names = dict.fromkeys(name for standings in tried for name in standings)
    return {name: [of.get(name, "not tried") for of in tried] for name in names}


def standing_of(relation: TrainingRelation) -> str:
    """Return whether two ways to train agree."""
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
        untried = report.relations.inapplicable if report.relations is not None else ()
        raised = (entry for entry in untried if entry.raised)
        texts += [prose(f"{stack}, {e.relation}: not observed, {e.reason}") for e in raised]
    return bullets(texts) if texts else EMPTY
