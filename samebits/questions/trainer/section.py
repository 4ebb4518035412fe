"""By Trainer: what transformers' own Trainer does with the models otherwise than in the reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from samebits.questions.trainer.records import TrainerReport, runs_of
from samebits.questions.trainer.rules import change_line, trainer_item_line
from samebits.questions.training.section import NOTABLE, STANDINGS, by_stack, standing_in_words
from samebits.text.blocks import bullets, heading, page, table
from samebits.text.markdown import EMPTY, Markdown, prose
from samebits.text.numbers import plural

if TYPE_CHECKING:
    from samebits.questions.training.records import TrainingStanding
    from samebits.records.report import Report, Row

TITLE = "By Trainer"
INTRO = (
    "The same models, trained by transformers' own Trainer with its default arguments: four rows in "
    "four steps, the same rows accumulated in one step, and as one batch; and evaluated without a step. What Trainer chooses and "
    "what the model receives is compared exactly; losses, norms and the weights behind the last "
    "step byte for byte, and what differs is judged in float64. Trainer's accelerate lies "
    "beside the environment and is used by nothing else."
)
MAX_LINES = 60
"""Limit for what Trainer does differently; the pages of the models have all of it."""
HEADERS = (
    "environment",
    "by Trainer",
    "rows",
    "num_items_in_batch",
    "losses",
    "norms",
    "rates",
    "optim",
    "evaluation",
)


def by_trainer(report: Report) -> Markdown:
    """Return how Trainer's runs compare, and what it does otherwise, by stack; empty if it trained none."""
    reports = [(row, *of_stack) for row in report.rows for of_stack in runs_of(row).items()]
    if not reports:
        return EMPTY
    standings: Counter[TrainingStanding] = Counter()
    models: dict[tuple[str, str], list[str]] = {}
    reasons: Counter[str] = Counter()
    for row, stack, of in reports:
        failure = f"not observed, as it raises: {of.failure.in_short}" if of.failure else ""
        if of.reason or failure:
            reasons[of.reason or failure] += 1
        if of.comparison is not None:
            standings[of.comparison.standing] += 1
            for change in of.comparison.changes:
                models.setdefault((stack, change_line(change)), []).append(row.model)
    order = list(dict.fromkeys(stack for _, stack, _ in reports))
    lines = [
        [stack, prose(line), names[0] if len(names) == 1 else plural(len(names), "model")]
        for (stack, line), names in sorted(models.items(), key=lambda item: order.index(item[0][0]))
    ]
    blocks = [heading(3, TITLE), prose(INTRO)]
    blocks.append(bullets(f"{plural(standings[s], 'cell')}: {STANDINGS[s]}" for s in standings))
    headers = ["environment", "what Trainer does differently than in the reference", "of"]
    blocks.append(table(headers, lines[:MAX_LINES]))
    texts = [f"{plural(n, 'cell')} not trained: {reason}" for reason, n in reasons.most_common(8)]
    blocks.append(bullets(map(prose, texts)))
    return page(blocks)


def by_trainer_of(rows: Iterable[Row]) -> Markdown:
    """Return what Trainer computed, built and does otherwise, for a model's page."""
    return page(block for row in rows for block in (_figures(row), _changes(row)))


def _figures(row: Row) -> Markdown:
    """Return what Trainer computed and built, stack by stack."""
    lines = [
        [
            stack,
            standing_in_words(trainer.comparison),
            ", ".join("?" if i is None else str(i) for i in trainer.rows),
            ", ".join("none" if n is None else f"{n:g}" for n in trainer.items),
            ", ".join(f"{loss:.6g}" for loss in trainer.losses),
            ", ".join(f"{norm:.6g}" for norm in trainer.norms),
            ", ".join(f"{rate:.6g}" for rate in trainer.rates),
            trainer.arguments.get("optim", ""),
            "" if trainer.evaluation is None else f"{trainer.evaluation:.6g}",
        ]
        for stack, trainer in runs_of(row).items()
        if trainer.losses
    ]
    return table(HEADERS, lines)


def _changes(row: Row) -> Markdown:
    """Return what Trainer does otherwise, and the numbers that diverged for no such reason."""
    return by_stack(
        (stack, line) for stack, trainer in runs_of(row).items() for line in _lines(trainer)
    )


def _lines(trainer: TrainerReport) -> Iterator[str]:
    """Yield why Trainer did not run, what it does otherwise, and the numbers that diverged."""
    if reason := trainer.reason or (trainer.failure.in_short if trainer.failure else ""):
        yield f"by Trainer: {reason}"
    if trainer.comparison is not None:
        yield from map(change_line, trainer.comparison.changes)
        evaluation = trainer.comparison.evaluation
        for item in (*filter(None, (evaluation,)), *trainer.comparison.items):
            if item.outcome in NOTABLE:
                yield f"{item.outcome}, {trainer_item_line(item)}"
