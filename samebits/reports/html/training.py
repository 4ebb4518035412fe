"""What a model's page shows of training: one step, the ways to train, and Trainer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from samebits.findings.training import item_line, relation_line
from samebits.reports.sections.training import (
    TRAINER_HEADERS,
    TRAINER_INTRO,
    broken_ways,
    explained,
    standing_in_words,
    trainer_figures,
    trainer_lines,
    ways_to_train,
)

if TYPE_CHECKING:
    from samebits.records.report import Row
    from samebits.records.training import TrainingReport


class Step(NamedTuple):
    """The training step of one stack."""

    stack: str
    standing: str
    first: str
    """What differs first, or why there is no step."""
    losses: str
    norm: str
    behind: str
    differs: bool
    explained: tuple[str, ...]
    broken: tuple[str, ...]


class Training(NamedTuple):
    """Everything that a page shows of the training of one row."""

    made: str
    """Which model was trained in place of a large one; '' if the model itself was."""
    steps: tuple[Step, ...]
    ways: dict[str, list[str]]
    """Relation -> its standing in each stack."""
    trainer_intro: str
    trainer_headers: tuple[str, ...]
    trainer: list[list[str]]
    trainer_lines: tuple[tuple[str, tuple[str, ...]], ...]
    """Stack, and what Trainer does otherwise there."""


def training_of(row: Row) -> Training | None:
    """Return what the page of a row's model shows; None if it was not trained."""
    if not row.training:
        return None
    made = next((r.asked_of for r in row.training.values() if r.asked_of is not None), None)
    by_trainer = {stack: tuple(trainer_lines(r.trainer)) for stack, r in row.training.items()}
    return Training(
        made.in_words if made is not None else "",
        tuple(_step(stack, report) for stack, report in row.training.items()),
        ways_to_train(row),
        TRAINER_INTRO,
        TRAINER_HEADERS,
        trainer_figures(row),
        tuple((stack, lines) for stack, lines in by_trainer.items() if lines),
    )


def _step(stack: str, report: TrainingReport) -> Step:
    comparison = report.comparison
    first = comparison.first if comparison is not None else None
    reason = comparison.reason if comparison is not None else ""
    return Step(
        stack,
        standing_in_words(comparison) if report.losses else "not trained",
        item_line(first) if first is not None else reason or report.reason,
        ", ".join(f"{batch} {loss:.6g}" for batch, loss in report.losses.items()),
        "" if report.norm is None else f"{report.norm:.6g}",
        "" if report.behind is None else f"{report.behind:.6g}",
        comparison is not None and comparison.standing == "diverged",
        tuple(explained(comparison)),
        tuple(relation_line(relation) for relation in broken_ways(report)),
    )
