"""Around the model: what users do with one, which releases answer otherwise, and what is wrong."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from samebits.reports.rulebook import KINDS, advice, plain_title, title
from samebits.reports.sections.usage_answers import SEEN_IN, USAGES
from samebits.text.blocks import bullets, codes, heading, link, page, slug, table
from samebits.text.markdown import EMPTY, Markdown, code, fill, join, prose
from samebits.text.numbers import count, part, plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samebits.records.finding import RuleText, StackFinding
    from samebits.records.report import Report, Row, StackReport
    from samebits.reports.sections.usage_answers import Usage

TITLE = "Around the model"
PAGE = "around-the-model.md"
"""Where all of it stands, beside report.md."""

MOST_GROUPS = 2
"""Groups of models that report.md has of each usage; the page has them all."""
MOST_MODELS = 2
EVERY_MODEL = 10_000

Answers = dict[str, str]
"""Stack -> answer; without the stacks that gave none."""


class Group(NamedTuple):
    """Models that answer alike wherever they answer."""

    answers: Answers
    models: tuple[str, ...]


def around_the_model(report: Report) -> Markdown:
    """Return the section; nothing if nothing was tried and no release was seen to differ."""
    tried, rules = _tried(report.rows), _rules(report)
    if not tried and not rules:
        return EMPTY
    blocks = [heading(2, TITLE)]
    if rules:
        blocks.append(
            prose(
                "A release does these to every model that the question can be asked of, so they are "
                "counted here by stack and are not repeated at the cells. They make no verdict."
            )
        )
        blocks.append(_met(report))
    if tried:
        blocks.append(
            fill(
                "What users do around a model, done once with each of {} in every stack. It "
                "explains and makes no verdict. Below are, of the models whose stacks disagree, the "
                "largest groups that answer alike; a model that a stack does not know stands with "
                "those it agrees with elsewhere.",
                plural(len(tried), "model"),
            )
        )
    blocks.append(_answers(report, MOST_GROUPS, MOST_MODELS))
    blocks.append(fill("{}.", link("Every group, and what to do", PAGE)))
    return page(blocks)


def around_page(report: Report) -> dict[str, Markdown]:
    """Return the page with every group of models and every finding, by its path; none without."""
    rules = _rules(report)
    if not _tried(report.rows) and not rules:
        return {}
    blocks = [
        heading(1, TITLE),
        fill("Part of the {} on {} of {}.", _back(), report.matrix, report.started),
        bullets(link(title(text), f"#{slug(plain_title(text))}") for text in rules),
        *(_finding(text, report) for text in rules),
    ]
    if _tried(report.rows):
        blocks += [
            heading(2, "Every group of models"),
            _answers(report, EVERY_MODEL, EVERY_MODEL),
            _untried(report.rows),
        ]
    return {PAGE: page(blocks)}


def _rules(report: Report) -> list[RuleText]:
    return [text for text in report.rules if text.scope == "release"]


def usage_of(rows: list[Row]) -> Markdown:
    """Return what one model answers otherwise in one stack than in another, for its own page."""
    answers = {usage: _told(usage, rows) for usage in USAGES}
    lines = {usage: told for usage, told in answers.items() if len(set(told.values())) > 1}
    if not lines:
        return EMPTY
    stacks = list(dict.fromkeys(stack for told in lines.values() for stack in told))
    drawn = [
        [usage.what, *(told.get(stack, "") for stack in stacks)] for usage, told in lines.items()
    ]
    every = fill("{} has what every model meets.", link(TITLE, f"../{PAGE}"))
    return page([heading(2, TITLE), table(["what", *stacks], drawn), every])


def _back() -> Markdown:
    return link("report", f"report.md#{slug(TITLE)}")


def _tried(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(row.model for row in rows if row.usage))


def _told(usage: Usage, rows: Iterable[Row]) -> Answers:
    """Return the answers of the rows of one model."""
    found = (
        (stack, usage.answer(signal, row.variant.partition("-")[0]))
        for row in rows
        for stack, signal in row.usage.items()
    )
    return {stack: answer for stack, answer in found if answer}


def _met(report: Report) -> Markdown:
    """Return the table of findings by stacks: of how many models each is true."""
    lines = [
        [title(text), text.kind, *(_share(text.code, report, one) for one in report.stacks)]
        for text in _rules(report)
    ]
    headers = ["finding: number of models", "kind", *(stack.id for stack in report.stacks)]
    return table(headers, lines, right=headers[2:])


def _share(number: str, report: Report, stack: StackReport) -> str:
    found = next((finding for finding in stack.findings if finding.code == number), None)
    if found is None:
        return ""
    n = len(found.models)
    return f"all {count(n)}" if n == len(_asked(number, report.rows, stack.id)) else count(n)


def _asked(number: str, rows: Iterable[Row], stack: str) -> list[str]:
    """Return the models of which a stack answered what the finding is seen in."""
    signals, field = SEEN_IN[number]
    found = ((row.model, getattr(row, signals).get(stack)) for row in rows)
    return list(dict.fromkeys(model for model, signal in found if getattr(signal, field, None)))


def _answers(report: Report, most_groups: int, most_models: int) -> Markdown:
    """Return the answers on which stacks disagree, models with the same ones in one line."""
    stacks = [stack.id for stack in report.stacks if any(stack.id in r.usage for r in report.rows)]
    lines = []
    for usage in USAGES:
        groups = [group for group in _groups(usage, report.rows) if _disagrees(group)]
        for group in groups[:most_groups]:
            told = [group.answers.get(stack, "") for stack in stacks]
            lines.append([usage.what, _names(group.models, most_models), *told])
    return table(["what a user does", "models", *stacks], lines)


def _disagrees(group: Group) -> bool:
    return len(set(group.answers.values())) > 1


def _groups(usage: Usage, rows: Iterable[Row]) -> list[Group]:
    """Return models by their answers, the largest group first.

    A model that some stacks do not know joins the group with which it agrees in all others.
    """
    by_model: dict[str, list[Row]] = {}
    for row in rows:
        by_model.setdefault(row.model, []).append(row)
    found: list[Group] = []
    # those that most stacks know first, for the others to join
    for its in sorted(by_model.values(), key=lambda its: -len(_known(its))):
        answers = _told(usage, its)
        alike = next((i for i, g in enumerate(found) if _agrees(answers, g, _known(its))), None)
        if alike is not None:
            models = (*found[alike].models, its[0].model)
            found[alike] = found[alike]._replace(models=models)
        elif answers:
            found.append(Group(answers, (its[0].model,)))
    return sorted(found, key=lambda group: -len(group.models))


def _known(rows: Iterable[Row]) -> set[str]:
    """Return the stacks in which a model was tried."""
    return {stack for row in rows for stack in row.usage}


def _agrees(answers: Answers, group: Group, known: set[str]) -> bool:
    """Return True if a model gave the group's answers, or none, in all stacks that know it."""
    return bool(answers) and answers == {s: a for s, a in group.answers.items() if s in known}


def _names(models: tuple[str, ...], limit: int) -> Markdown:
    rest = len(models) - limit
    shown = join(models[:limit])
    return fill("{} and {} more", shown, count(rest)) if rest > 0 else shown


def _finding(text: RuleText, report: Report) -> Markdown:
    """Return one finding with what was seen of the first model in every stack, and its advice."""
    return page(
        [
            heading(2, title(text)),
            fill("*{}: {}*", text.kind, KINDS[text.kind]),
            *_sightings(text.code, report),
            advice(text),
        ]
    )


def _sightings(number: str, report: Report) -> Iterator[Markdown]:
    """Yield where it was seen, and by what; stacks with the same evidence together."""
    alike: dict[tuple[str, tuple[str, ...]], list[Markdown]] = {}
    first: dict[tuple[str, tuple[str, ...]], str] = {}
    for stack in report.stacks:
        for found in stack.findings:
            if found.code == number:
                key = (found.where, found.evidence)
                alike.setdefault(key, []).append(_extent(found, report.rows, stack.id))
                first.setdefault(key, found.models[0])
    for (where, evidence), extents in alike.items():
        yield fill("{}, as seen of {}:", code(where), code(first[where, evidence]))
        yield bullets([*map(prose, evidence), *extents])


def _extent(found: StackFinding, rows: Iterable[Row], stack: str) -> Markdown:
    """Return of which models it is true in one stack, naming the fewer: those, or the others."""
    asked = _asked(found.code, rows, stack)
    others = [model for model in asked if model not in found.models]
    if not others:
        return fill("in {}: every model, {}", stack, count(len(asked)))
    share = part(len(found.models), len(asked))
    if len(others) < len(found.models):
        return fill("in {}: {} models, all but {}", stack, share, codes(others, EVERY_MODEL))
    return fill("in {}: {} models, {}", stack, share, codes(found.models, EVERY_MODEL))


def _untried(rows: Iterable[Row]) -> Markdown:
    """Return why something was not tried, with how often."""
    reasons = Counter(
        (name, reason)
        for row in rows
        for signal in row.usage.values()
        for name, reason in signal.skips.items()
    )
    if not reasons:
        return EMPTY
    lines = [[name, count(n), reason] for (name, reason), n in sorted(reasons.items())]
    drawn = table(["what", "times", "why"], lines, right=["times"])
    return page([heading(2, "What was not tried"), drawn])
