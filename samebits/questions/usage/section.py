"""API checks: what users do with a model, which releases answer differently, and defects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from samebits.base.finding_pages import KINDS, finding_page
from samebits.findings.rulebook import advice, plain_title, title
from samebits.questions.made_models import made_models
from samebits.questions.usage.answers import USAGES, Usage
from samebits.questions.usage.records import signals_of
from samebits.records.finding import RuleText, StackFinding
from samebits.records.report import Report, Row, StackReport
from samebits.text.blocks import below, bullets, codes, first_of, heading, link, page, slug, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, prose
from samebits.text.moments import moment
from samebits.text.numbers import count, part, plural

TITLE = "API checks"
PAGE = "api-checks.md"
"""The page with all details, next to report.md."""

MAX_GROUPS = 2
"""Limit for the groups of models that report.md shows of each usage; the page has them all."""
MAX_MODELS = 2
PAGE_MODELS = 12
"""Limit for the names in one place of the page; the page of each model has its own answers."""

Answers = dict[str, str]
"""Stack -> answer; stacks without an answer are left out."""


class Group(NamedTuple):
    """Models that give the same answers wherever they give one."""

    answers: Answers
    models: tuple[str, ...]


def around_the_model(report: Report) -> Markdown:
    """Return the section; empty if no usage was tried and no release has a finding."""
    models, rules = _models_tried(report.rows), _rules(report)
    if not models and not rules:
        return EMPTY
    blocks = [heading(2, TITLE)]
    if rules:
        blocks.append(
            prose(
                "These findings come from the release and not from one model, so they are counted "
                "here by environment and not repeated for each cell. They do not affect the verdict."
            )
        )
        blocks.append(_finding_table(report))
    if models:
        blocks.append(
            fill(
                "What users do with a model besides a forward, tried once with each of {} in every environment. The "
                "results do not affect the verdict. The table shows usages whose result differs "
                "between environments, and the largest groups of models with the same results. A model "
                "that some environments do not have is in a group with the same results in all others.",
                plural(len(models), "model"),
            )
        )
        blocks.append(made_models(report.rows, signals_of))
    blocks.append(_answer_table(report, MAX_GROUPS, MAX_MODELS))
    blocks.append(fill("{}.", link("All groups, and the remedies", PAGE)))
    return page(blocks)


def around_page(report: Report) -> Markdown:
    """Return the page with every group of models and every finding; empty if there is none."""
    rules = _rules(report)
    if not _models_tried(report.rows) and not rules:
        return EMPTY
    blocks = [
        heading(1, TITLE),
        fill("Part of the {} on {} of {}.", _origin(), report.matrix, moment(report.started)),
        bullets(link(title(text), f"#{slug(plain_title(text))}") for text in rules),
        *(_finding(text, report) for text in rules),
    ]
    if _models_tried(report.rows):
        blocks += [
            heading(2, "All groups of models"),
            prose("The page of each model has its answers that differ between environments."),
            made_models(report.rows, signals_of),
            _answer_table(report, len(report.rows), PAGE_MODELS),
            _skip_table(report.rows),
        ]
    return page(blocks)


def _rules(report: Report) -> list[RuleText]:
    return [text for text in report.rules if text.scope == "release"]


def usage_of(rows: list[Row]) -> Markdown:
    """Return the answers of one model that differ between stacks, for its own page."""
    answers = {usage: _model_answers(usage, rows) for usage in USAGES}
    differing = {
        usage: stack_answers
        for usage, stack_answers in answers.items()
        if len(set(stack_answers.values())) > 1
    }
    if not differing:
        return EMPTY
    stacks = list(
        dict.fromkeys(stack for stack_answers in differing.values() for stack in stack_answers)
    )
    table_rows = [
        [usage.what, *(stack_answers.get(stack, "") for stack in stacks)]
        for usage, stack_answers in differing.items()
    ]
    note = fill("Findings of the releases, for all models: {}.", link(TITLE, f"../{PAGE}"))
    made = made_models(rows, signals_of)
    return page([heading(2, TITLE), made, table(["what", *stacks], table_rows), note])


def _origin() -> Markdown:
    return link("report", "report.md")


def _models_tried(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.model for row in rows if signals_of(row)))


def _model_answers(usage: Usage, rows: Iterable[Row]) -> Answers:
    """Return the answers that the rows of one model give."""
    answers = (
        (stack, usage.answer(signal, row.variant.partition("-")[0]))
        for row in rows
        for stack, signal in signals_of(row).items()
    )
    return {stack: answer for stack, answer in answers if answer}


def _finding_table(report: Report) -> Markdown:
    """Return the table of findings by stacks: the number of models for which each is true."""
    lines = [
        [
            title(text),
            text.kind,
            *(_share(text.code, report, stack_report) for stack_report in report.stacks),
        ]
        for text in _rules(report)
    ]
    headers = ["finding: number of models", "kind", *(stack.id for stack in report.stacks)]
    return table(headers, lines, right=headers[2:])


def _share(rule_code: str, report: Report, stack: StackReport) -> str:
    finding_of_stack = next(
        (finding for finding in stack.findings if finding.code == rule_code), None
    )
    if finding_of_stack is None:
        return ""
    n = len(finding_of_stack.models)
    return (
        f"all {count(n)}"
        if n == len(_observed_models(finding_of_stack, report.rows, stack.id))
        else count(n)
    )


def _observed_models(finding: StackFinding, rows: Iterable[Row], stack: str) -> list[str]:
    """Return the models for which a stack has the signal that the finding is seen in, and those that have the finding.

    What raises on one side, SB932, may do so in any question.
    """
    name, _, field = finding_page(finding.code).seen_in.partition(".")
    observations = ((row.model, row.answer_on(name, stack)) for row in rows)
    observed = (
        model
        for model, signal in observations
        if (getattr(signal, field, None) if field else signal)
    )
    return list(dict.fromkeys([*observed, *finding.models]))


def _answer_table(report: Report, max_groups: int, max_models: int) -> Markdown:
    """Return the answers on which stacks disagree; models with the same answers share a line."""
    stacks = [
        stack.id for stack in report.stacks if any(stack.id in signals_of(r) for r in report.rows)
    ]
    lines = []
    for usage in USAGES:
        groups = [group for group in _groups(usage, report.rows) if _disagrees(group)]
        for group in groups[:max_groups]:
            answers = [group.answers.get(stack, "") for stack in stacks]
            lines.append([usage.what, first_of(group.models, max_models), *answers])
    return table(["what a user does", "models", *stacks], lines)


def _disagrees(group: Group) -> bool:
    return len(set(group.answers.values())) > 1


def _groups(usage: Usage, rows: Iterable[Row]) -> list[Group]:
    """Return models by their answers, the largest group first.

    A model that some stacks do not know joins the group with which it agrees in all other stacks.
    """
    by_model: dict[str, list[Row]] = {}
    for row in rows:
        by_model.setdefault(row.model, []).append(row)
    groups: list[Group] = []
    # first the models that most stacks know, so that the others can join them
    for model_rows in sorted(
        by_model.values(), key=lambda model_rows: -len(_stacks_of(model_rows))
    ):
        answers = _model_answers(usage, model_rows)
        index = next(
            (i for i, g in enumerate(groups) if _agrees(answers, g, _stacks_of(model_rows))), None
        )
        if index is not None:
            models = (*groups[index].models, model_rows[0].model)
            groups[index] = groups[index]._replace(models=models)
        elif answers:
            groups.append(Group(answers, (model_rows[0].model,)))
    return sorted(groups, key=lambda group: -len(group.models))


def _stacks_of(rows: Iterable[Row]) -> set[str]:
    """Return the stacks in which a model was tried."""
    return {stack for row in rows for stack in signals_of(row)}


def _agrees(answers: Answers, group: Group, stacks: set[str]) -> bool:
    """Return True if a model gave the group's answers, or none, in all of its stacks."""
    return bool(answers) and answers == {s: a for s, a in group.answers.items() if s in stacks}


def _finding(text: RuleText, report: Report) -> Markdown:
    """Return one finding with its evidence for the first model in every stack, and its advice."""
    return page(
        [
            heading(2, title(text)),
            fill("*{}: {}*", text.kind, KINDS[text.kind]),
            *_sightings(text.code, report),
            advice(text),
        ]
    )


def _sightings(rule_code: str, report: Report) -> Iterator[Markdown]:
    """Yield where the finding was seen, and its evidence; stacks with equal evidence are joined."""
    by_evidence: dict[tuple[str, tuple[str, ...]], list[Markdown]] = {}
    first_models: dict[tuple[str, tuple[str, ...]], str] = {}
    for stack in report.stacks:
        for finding in stack.findings:
            if finding.code == rule_code:
                key = (finding.where, finding.evidence)
                by_evidence.setdefault(key, []).append(_extent(finding, report.rows, stack.id))
                first_models.setdefault(key, finding.models[0])
    for (where, evidence), extents in by_evidence.items():
        yield fill("{}, as seen with {}:", code(where), code(first_models[where, evidence]))
        yield bullets([*map(prose, evidence), *extents])


def _extent(finding: StackFinding, rows: Iterable[Row], stack: str) -> Markdown:
    """Return the models for which a finding is true in one stack: these, or all others if fewer."""
    observed = _observed_models(finding, rows, stack)
    others = [model for model in observed if model not in finding.models]
    if not others:
        return fill("in {}: all models, {}", stack, count(len(observed)))
    share = part(len(finding.models), len(observed))
    if len(others) < len(finding.models):
        return fill("in {}: {} models, all but {}", stack, share, codes(others))
    return fill("in {}: {} models, {}", stack, share, codes(finding.models))


def _skip_table(rows: Iterable[Row]) -> Markdown:
    """Return why some usages were not tried, and how often."""
    reasons = Counter(
        (name, reason)
        for row in rows
        for signal in signals_of(row).values()
        for name, reason in signal.skips.items()
    )
    lines = [[name, count(n), reason] for (name, reason), n in sorted(reasons.items())]
    reason_table = table(["what", "times", "why"], lines, right=["times"])
    return below(heading(2, "Not tried"), reason_table)
