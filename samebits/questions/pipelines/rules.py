"""SB861 to SB865: rules for what pipelines answer."""

from __future__ import annotations

from collections.abc import Iterator

from samebits.findings.case import Case
from samebits.findings.rule import Check, Rule, Sighting
from samebits.findings.tokenizers import side_lines
from samebits.questions.pipelines.compare import pads_behind, report
from samebits.questions.pipelines.records import (
    PIPELINES,
    PipelineCase,
    PipelineDifference,
    PipelineOutcome,
)
from samebits.text.numbers import plural

_MAX_CASES = 3
"""Calls of one finding that the evidence shows."""


def _differing(outcome: PipelineOutcome) -> Check:
    """Return a check for tasks of which calls differ in this way."""

    def check(case: Case) -> Iterator[Sighting]:
        by_task: dict[str, list[PipelineDifference]] = {}
        for difference in _differences(case):
            if difference.outcome == outcome:
                by_task.setdefault(difference.task, []).append(difference)
        for task, differences in by_task.items():
            yield _sighting(case, task, differences)

    return check


def _differences(case: Case) -> tuple[PipelineDifference, ...]:
    pair = PIPELINES.on_both(case.reference, case.capture)
    if case.reference is None or pair is None:
        return ()
    differences = report(case.reference.cell.stack, *pair).differences
    if case.failure is None and case.reference.raised is None:
        return differences
    # a model that raises by itself raises in a pipeline, too
    return tuple(each for each in differences if each.outcome != "raised")


def _sighting(case: Case, task: str, differences: list[PipelineDifference]) -> Sighting:
    first = differences[0]
    place = ": ".join(filter(None, (f"pipeline({task!r})", first.case, first.at or first.field)))
    lines = [line for d in differences[:_MAX_CASES] for line in _lines(case, d)]
    if len(differences) > _MAX_CASES:
        lines.append(f"and {plural(len(differences) - _MAX_CASES, 'more call')}")
    raising = ""
    if first.outcome == "raised":
        assert case.reference is not None
        raising = (case.capture if first.raises_here else case.reference).cell.stack
    return Sighting(place, tuple(lines), raises=raising)


def _lines(case: Case, difference: PipelineDifference) -> Iterator[str]:
    where = ", ".join(filter(None, (difference.case, difference.field, difference.at)))
    if where:
        yield where
    yield from side_lines(case, difference.reference, difference.candidate)


def _padded_behind(case: Case) -> Iterator[Sighting]:
    """Find a batch of prompts of which the shorter ones go on behind their padding."""
    pipelines = PIPELINES.in_cell(case.capture)
    for name, task in pipelines.tasks.items() if pipelines is not None else ():
        for call, asked in task.cases.items():
            if pads_behind(asked):
                yield Sighting(f"pipeline({name!r}): {call}", tuple(_apart(asked)))


def _apart(case: PipelineCase) -> Iterator[str]:
    alone, batch = case.one_by_one, case.own
    assert alone is not None
    yield (
        "the batch has padding_side right: logits of the next token differ from those of a prompt "
        f"by itself by up to {alone.distance:.2g}, and by {alone.in_float64:.2g} in float64"
    )
    for place, field in batch.fields.items() if batch is not None else ():
        other = alone.own.fields.get(place)
        if other is not None and other.exact != field.exact:
            yield from (f"{place}: {field.exact}", f"one by one: {other.exact}")
            return


RULES = (
    Rule("SB861", _differing("raised")),
    Rule("SB862", _differing("other answer")),
    Rule("SB863", _differing("other input")),
    Rule("SB864", _differing("removed")),
    Rule("SB865", _padded_behind),
)
