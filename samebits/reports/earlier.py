"""What questions said in a report.json before schema 12, in the form that it has now.

Each function takes a row of such a report, and the report, and returns the question's answer of the row;
None if it has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Part = dict[str, Any]
"""An object of JSON."""
_OF_TRAINER = "Trainer: "
"""How the names of Trainer's relations begin, which were among those of the training step."""


def relations(row: Part, _report: Part) -> Part | None:
    """Return the relations inside the cells."""
    signals = row.pop("relations", {})
    return {"stacks": signals} if signals else None


def training(row: Part, _report: Part) -> Part | None:
    """Return the training steps, without what Trainer does."""
    steps = row.pop("training", {})
    row["trainer"] = {stack: _runs(step) for stack, step in steps.items() if step.get("trainer")}
    for step in steps.values():
        step.pop("trainer", None)
        step["relations"] = _ways(step.get("relations"), of_trainer=False)
    return {"stacks": steps} if steps else None


def trainer(row: Part, _report: Part) -> Part | None:
    """Return what Trainer does, which stood within the training steps."""
    runs = row.pop("trainer", {})
    return {"stacks": runs} if runs else None


def _runs(step: Part) -> Part:
    return {**step["trainer"], "relations": _ways(step.get("relations"), of_trainer=True)}


def _ways(ways: Part | None, *, of_trainer: bool) -> Part | None:
    """Return the relations of Trainer, or the others; None if there are none."""
    if ways is None:
        return None
    kept = {
        name: [entry for entry in ways.get(name, ()) if _is_trainers(entry) == of_trainer]
        for name in ("relations", "inapplicable")
    }
    return {**ways, **kept} if not of_trainer or any(kept.values()) else None


def _is_trainers(entry: Part) -> bool:
    return str(entry["relation"]).startswith(_OF_TRAINER)


_QUESTIONS: dict[str, Callable[[Part, Part], Part | None]] = {
    "relations": relations,
    "training": training,
    "trainer": trainer,
}
"""In the order in which they take what is theirs from a row."""


def moved(report: Part) -> Part:
    """Return a report with what its rows say for questions where it has its place since schema 12."""
    for row in report.get("rows", ()):
        answers = {name: answer(row, report) for name, answer in _QUESTIONS.items()}
        said = {name: answer for name, answer in answers.items() if answer is not None}
        row["answers"] = row.get("answers", {}) | said
    return report
