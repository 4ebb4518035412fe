"""Training: one step of each model, compared with the reference, and ways to train that must agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from samebits.questions.training.judge import Compared
from samebits.questions.training.records import (
    AlsoTrained,
    TrainingComparison,
    TrainingRelation,
    TrainingRelations,
    TrainingStanding,
    steps_of,
)
from samebits.questions.training.rules import item_line, origin_line, relation_line
from samebits.questions.training.step_trace import StepOrigin
from samebits.records.report import Report, Row
from samebits.text.blocks import bullets, heading, link, page, table
from samebits.text.lists import grouped
from samebits.text.markdown import EMPTY, Markdown, fill, prose
from samebits.text.names import page_path
from samebits.text.numbers import plural

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

STANDINGS: dict[TrainingStanding, str] = {
    "identical": "the same bits",
    "rounding": "rounding",
    "diverged": "diverged",
    "undecided": "differs, and float64 does not show why",
    "follows": "follows from the forward",
    "failed": "raises",
    "not compared": "not compared",
}
NOTABLE = ("diverged", "undecided", "failed")


def training(report: Report) -> Markdown:
    """Return the section of all models; empty if none was trained."""
    rows = [row for row in report.rows if steps_of(row)]
    if not rows:
        return EMPTY
    notable = [row for row in rows if _is_notable(row)]
    blocks = [heading(2, TITLE), prose(INTRO), _counts(rows)]
    lines = [_line(row, stack) for row in notable for stack in steps_of(row) if _tells(row, stack)]
    headers = [
        "model · variant",
        "environment",
        "step",
        "first difference",
        "first operation",
        "broken ways to train",
    ]
    blocks.append(table(headers, lines[:MAX_MODELS]))
    return page([*blocks, _untrained(rows)])


def training_of(rows: Iterable[Row]) -> Markdown:
    """Return the section of a model's page; empty if it was not trained."""
    rows = [row for row in rows if steps_of(row)]
    if not rows:
        return EMPTY
    blocks = [heading(2, TITLE)]
    for row in rows:
        blocks += [_made(row), _figures(row), _items(row), _origins(row)]
        blocks += [_relations(row), _reasons(row)]
    return page(blocks)


def has_details(rows: Iterable[Row]) -> bool:
    """Return True if a step diverged, cannot be told, raises, or breaks a relation."""
    return any(map(_is_notable, rows))


def _is_notable(row: Row) -> bool:
    return any(_tells(row, stack) for stack in steps_of(row))


def _tells(row: Row, stack: str) -> bool:
    comparison = steps_of(row)[stack].comparison
    standings = [comparison.standing if comparison is not None else None]
    standings += [other.standing_on(stack) for other in _others(row)]
    return any(standing in NOTABLE for standing in standings) or any(_broken_ways(row, stack))


def _others(row: Row) -> list[AlsoTrained]:
    """Return the answers of other questions about training the same cells."""
    return [answer for answer in row.answers.values() if isinstance(answer, AlsoTrained)]


def _ways(row: Row, stack: str) -> list[TrainingRelations]:
    """Return the relations between ways to train on a stack, those of the step first."""
    step = steps_of(row)[stack].relations
    ways = [step, *(other.ways_on(stack) for other in _others(row))]
    return [relations for relations in ways if relations is not None]


def _broken_ways(row: Row, stack: str) -> Iterator[TrainingRelation]:
    """Yield the ways to train that do not agree."""
    for ways in _ways(row, stack):
        yield from (relation for relation in ways.relations if relation.broken)


def _counts(rows: list[Row]) -> Markdown:
    counted = Counter(
        report.comparison.standing
        for row in rows
        for report in steps_of(row).values()
        if report.comparison is not None
    )
    if not counted:
        return prose(
            "No cell was compared: a comparison needs two environments that train the model."
        )
    texts = [f"{plural(counted[s], 'cell')}: {STANDINGS[s]}" for s in STANDINGS if counted[s]]
    return bullets(texts)


def _line(row: Row, stack: str) -> list[str]:
    comparison = steps_of(row)[stack].comparison
    first = comparison.first if comparison is not None else None
    reason = comparison.reason if comparison is not None else ""
    name = fill("{}", link(f"{row.model} · {row.variant}", page_path(row.model)))
    return [
        name,
        stack,
        standing_in_words(comparison),
        prose(item_line(first)) if first is not None else prose(reason),
        prose("; ".join(filter(None, (_first_operation(comparison), _restored_by(comparison))))),
        prose("; ".join(relation.relation for relation in _broken_ways(row, stack))),
    ]


def _first_operation(comparison: TrainingComparison | None) -> str:
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
        reports = steps_of(row).values()
        if not any(report.losses for report in reports):
            first = next(iter(reports))
            raised = (
                f"not observed, as it raises: {first.failure.in_short}" if first.failure else ""
            )
            reasons[first.reason or raised] += 1
    texts = [f"{plural(n, 'model')} not trained: {reason}" for reason, n in reasons.most_common(8)]
    return bullets(texts)


def standing_in_words(comparison: Compared | None) -> str:
    """Return how a cell compares with the reference's; that of the reference is the reference."""
    return STANDINGS[comparison.standing] if comparison is not None else "reference"


def by_stack(lines: Iterable[tuple[str, str]]) -> Markdown:
    """Return lines of stacks; a line that several stacks have stands once."""
    groups = grouped(lines, lambda pair: pair[1])
    texts = [f"{', '.join(stack for stack, _ in pairs)}: {line}" for line, pairs in groups.items()]
    return bullets(map(prose, texts))


def _made(row: Row) -> Markdown:
    made = next((r.asked_of for r in steps_of(row).values() if r.asked_of is not None), None)
    return fill("Trained: {}.", made.in_words) if made is not None else EMPTY


def _figures(row: Row) -> Markdown:
    """Return losses, norm and the loss behind the update, stack by stack."""
    lines = []
    for stack, report in steps_of(row).items():
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
    headers = ["environment", "step", "losses", "norm", "behind one update", "gradients"]
    return table(headers, lines, right=("norm", "behind one update", "gradients"))


def _items(row: Row) -> Markdown:
    return by_stack(
        (stack, f"{item.outcome}, {item_line(item)}")
        for stack, report in steps_of(row).items()
        if report.comparison is not None
        for item in report.comparison.items
        if item.outcome in NOTABLE
    )


def _origins(row: Row) -> Markdown:
    """Return what explains each step that diverged by itself."""
    return by_stack(
        (stack, line)
        for stack, report in steps_of(row).items()
        for line in _explained(report.comparison)
    )


def _explained(comparison: TrainingComparison | None) -> Iterator[str]:
    """Yield the first operation that differs, with its evidence, and what restores the reference's step."""
    if comparison is None:
        return
    if text := _first_operation(comparison):
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
    ways = _ways_to_train(row)
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
        for stack in steps_of(row)
        for relation in _broken_ways(row, stack)
    ]
    return page(
        [
            prose(f"Ways to train with the same bits: {'; '.join(same)}.") if same else EMPTY,
            prose(f"Apart by rounding: {'; '.join(rounded)}.") if rounded else EMPTY,
            table(["ways to train", *steps_of(row)], rest),
            bullets(broken),
        ]
    )


def _ways_to_train(row: Row) -> dict[str, list[str]]:
    """Return relation -> its standing in each stack of the row's training."""
    columns = [
        {r.relation: _standing_of(r) for ways in _ways(row, stack) for r in ways.relations}
        for stack in steps_of(row)
    ]
    names = dict.fromkeys(name for standings in columns for name in standings)
    return {name: [of.get(name, "not tried") for of in columns] for name in names}


def _standing_of(relation: TrainingRelation) -> str:
    """Return whether two ways to train agree."""
    if relation.holds:
        return "holds"
    if relation.broken:
        return "broken"
    return "rounding" if relation.promoted is not None else "differs"


def _reasons(row: Row) -> Markdown:
    """Return why a stack has no step, or no comparison."""
    texts = []
    for stack, report in steps_of(row).items():
        comparison = report.comparison
        reason = report.reason or (comparison.reason if comparison is not None else "")
        if reason:
            texts.append(prose(f"{stack}: {reason}"))
        texts += [prose(f"{stack}, batch {b}: {why}") for b, why in report.refused.items()]
        untried = (entry for ways in _ways(row, stack) for entry in ways.inapplicable)
        raised = (entry for entry in untried if entry.raised)
        texts += [prose(f"{stack}, {e.relation}: not observed, {e.reason}") for e in raised]
    return bullets(texts)
